//! A policy together with the client that acts on it.

use super::{LockPolicy, NO_PARAMETERS};
use crate::{client::Leasehold, lock::Lock};

/// A lock policy of a client; made by [`Leasehold::policy`].
#[derive(Debug)]
#[must_use = "a policy does nothing until its lock is acquired"]
pub struct BoundPolicy<'a> {
    leases: &'a Leasehold,
    policy: &'a LockPolicy,
}

impl<'a> BoundPolicy<'a> {
    pub(crate) fn new(leases: &'a Leasehold, policy: &'a LockPolicy) -> Self {
        Self { leases, policy }
    }

    /// The lock for these values, set as the policy says. Wrong values are reported when it is acquired.
    pub fn key<K: AsRef<str>, V: ToString>(&self, values: impl IntoIterator<Item = (K, V)>) -> Lock {
        let policy = self.policy;
        let mut lock = Lock::named(self.leases.core().clone(), policy.key(values))
            .critical(policy.critical)
            .on_outage(policy.on_outage);
        if let Some(ttl) = policy.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(wait) = policy.wait {
            lock = lock.wait(wait);
        }
        if let Some(keep_alive) = policy.keep_alive {
            lock = if keep_alive { lock.keep_alive() } else { lock.fixed() };
        }
        if let Some(delay) = policy.lock_delay {
            lock = lock.lock_delay(delay);
        }
        if let Some(acks) = policy.acks {
            lock = lock.acks(acks);
        }
        if let Some(most) = policy.max_lifetime {
            lock = lock.max_lifetime(most);
        }
        if let Some(least) = policy.hold_at_least {
            lock = lock.hold_at_least(least);
        }
        lock
    }

    /// The lock of a policy without parameters.
    pub fn lock(&self) -> Lock {
        self.key(NO_PARAMETERS)
    }

    /// The policy itself.
    pub fn policy(&self) -> &'a LockPolicy {
        self.policy
    }
}
