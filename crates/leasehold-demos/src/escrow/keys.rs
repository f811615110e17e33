//! The keys of all locks and requests. Names and times are those of `policies/escrow.toml`.

use leasehold::{IdempotencyKey, Leasehold, Lock};

/// The lock of a policy.
pub(super) fn lock(leases: &Leasehold, policy: &str, id: Option<(&str, u64)>) -> leasehold::Result<Lock> {
    Ok(leases.lock_policy(policy)?.key(id))
}

/// A request that is executed once.
pub(super) fn request(
    leases: &Leasehold,
    policy: &str,
    id: (&str, impl ToString),
) -> leasehold::Result<IdempotencyKey> {
    Ok(leases.idempotency_policy(policy)?.key([id]))
}
