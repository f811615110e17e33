//! The keys of all locks and requests. Names and times are those of `policies/escrow.toml`.

use std::time::Duration;

use leasehold::{IdempotencyKey, Leasehold, Lock};

use crate::policy;

/// How long a cashier that died keeps others from a request.
const EXECUTION: Duration = Duration::from_secs(30);

/// The lock of a policy.
pub(super) fn lock(leases: &Leasehold, name: &str, id: Option<(&str, u64)>) -> leasehold::Result<Lock> {
    Ok(leases.lock_policy(name)?.key(id))
}

/// A request that is executed once.
pub(super) fn request(
    leases: &Leasehold,
    name: &str,
    id: (&str, impl ToString),
) -> leasehold::Result<IdempotencyKey> {
    Ok(leases.idempotency_policy(name)?.key([id]).lease_ttl(policy::faster(EXECUTION)))
}
