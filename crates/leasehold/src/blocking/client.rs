//! The client.

#[cfg(feature = "config")]
use super::idempotency::IdempotencyKey;
use super::mirror::{mirror, wait};
use super::{
    election::Election,
    idempotency::Idempotency,
    latch::{Barrier, Latch},
    lock::Lock,
    reentrant::LockOwner,
    set::LockSet,
};
use crate::engine::{Capabilities, Cursor, Health, Inspection, Page, Released};
#[cfg(feature = "config")]
use crate::policy::{self, BoundPolicy, LockPolicy, Policies, RecordPolicy};
use crate::{Builder, Fence, Result, Stats};

mirror! {
    /// A client of one store, without `async`; see [`crate::Leasehold`].
    #[derive(Clone, Debug)]
    pub struct Leasehold(crate::Leasehold) {}
}

impl Leasehold {
    mirror! { crate::Client:
        get lock(name: impl AsRef<str>) -> Lock => Lock::new;
        get election(name: impl AsRef<str>) -> Election => Election::new;
        get owner() -> LockOwner => LockOwner::new;
        get read_lock(name: impl AsRef<str>) -> Lock => Lock::new;
        get write_lock(name: impl AsRef<str>) -> Lock => Lock::new;
        get semaphore(name: impl AsRef<str>, limit: u32) -> Lock => Lock::new;
        wait set_limit(name: impl AsRef<str>, limit: u32) -> ();
        get latch(name: impl AsRef<str>, count: u32) -> Latch => Latch::new;
        get barrier(name: impl AsRef<str>, count: u32) -> Barrier => Barrier::new;
        get idempotency(operation: impl AsRef<str>) -> Idempotency => Idempotency::new;
        wait inspect(name: impl AsRef<str>) -> Inspection;
        wait list_page(prefix: &str, from: Option<Cursor>, limit: u32) -> Page<Inspection>;
        wait force_release(name: impl AsRef<str>, seen: Fence) -> Released;
        get stats() -> Stats;
        get round_trips() -> Option<u64>;
        wait health() -> Health;
        get capabilities() -> &Capabilities;
        get store() -> &str;
        wait close() -> ();
    }

    /// As [`crate::Client::lock_all`].
    pub fn lock_all(&self, locks: impl IntoIterator<Item = Lock>) -> LockSet {
        LockSet::new(self.inner.lock_all(locks.into_iter().map(Lock::into_inner)))
    }

    /// As [`crate::Leasehold::connect`]; `unsupported` in async code.
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::build(crate::Leasehold::builder(url))
    }

    /// As [`Builder::connect`], for settings of your own: `Leasehold::build(leasehold::Leasehold::builder(URL))`.
    /// `unsupported` in async code.
    pub fn build(builder: Builder) -> Result<Self> {
        wait(builder.connect())?.map(Self::new)
    }

    /// As [`Builder::connect_lazy`], without reaching the store yet; `unsupported` in async code.
    pub fn build_lazy(builder: Builder) -> Result<Self> {
        wait(async { builder.connect_lazy() })?.map(Self::new)
    }
}

#[cfg(feature = "config")]
impl Leasehold {
    mirror! { crate::Leasehold:
        get policies() -> &Policies;
    }

    /// As [`crate::Leasehold::from_env`]; `unsupported` in async code.
    pub fn from_env() -> Result<Self> {
        wait(crate::Leasehold::from_env())?.map(Self::new)
    }

    /// As [`crate::Leasehold::lock_policy`].
    pub fn lock_policy(&self, name: &str) -> Result<BoundPolicy<'_, LockPolicy, Lock>> {
        let (leases, policy) = (&self.inner, self.inner.policies.lock(name)?);
        Ok(BoundPolicy {
            leases,
            policy,
            make: |leases, policy, key| Lock::new(policy::lock(leases, policy, key)),
        })
    }

    /// As [`crate::Leasehold::idempotency_policy`].
    pub fn idempotency_policy(&self, name: &str) -> Result<BoundPolicy<'_, RecordPolicy, IdempotencyKey>> {
        let (leases, policy) = (&self.inner, self.inner.policies.idempotency(name)?);
        let make =
            |leases: &_, policy: &_, key| IdempotencyKey::new(policy::idempotency_key(leases, policy, key));
        Ok(BoundPolicy { leases, policy, make })
    }
}
