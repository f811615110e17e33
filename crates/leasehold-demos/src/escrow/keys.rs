//! The keys of all locks and requests. Names and times are those of `policies/escrow.toml`.

use std::time::Duration;

use leasehold::{IdempotencyKey, Leasehold, Lock, Policies};

/// How many times faster than in the file time passes here: a killed worker delays others for a second or two, not for
/// half of the demo.
const FASTER: u32 = 30;
/// The longest of them, reconciliation, must not hold up the end of the demo either.
const TTL_MAX: Duration = Duration::from_secs(1);
/// How long the request of a killed worker cannot be retried.
const REQUEST_LEASE: Duration = Duration::from_secs(1);

pub(super) fn policies() -> leasehold::Result<Policies> {
    Policies::parse(include_str!("../../policies/escrow.toml"), "policies/escrow.toml")
}

/// The lock of a policy: its values in the order of the key.
pub(super) fn lock(leases: &Leasehold, policy: &str, id: Option<(&str, u64)>) -> leasehold::Result<Lock> {
    let bound = leases.lock_policy(policy)?;
    let mut lock = bound.key(id);
    if let Some(ttl) = bound.policy().ttl {
        lock = lock.ttl((ttl / FASTER).min(TTL_MAX));
    }
    if let Some(wait) = bound.policy().wait {
        lock = lock.wait(wait / FASTER);
    }
    Ok(lock)
}

/// A request that is executed once.
pub(super) fn request(
    leases: &Leasehold,
    policy: &str,
    (what, id): (&str, impl ToString),
) -> leasehold::Result<IdempotencyKey> {
    let keep = leases.policies().idempotency(policy)?.ttl / FASTER;
    Ok(leases.idempotency_policy(policy)?.key([(what, id)]).lease_ttl(REQUEST_LEASE).keep_result_for(keep))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_moves_money_never_goes_on_without_its_lock() {
        let policies = policies().unwrap();
        for policy in ["deal", "deposit", "payout", "refund", "balance", "reconciliation"] {
            assert!(policies.lock(policy).unwrap().critical, "{policy}");
        }
    }
}
