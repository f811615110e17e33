//! The client.

use super::{
    idempotency::{Idempotency, IdempotencyKey},
    lock::Lock,
    runtime::wait,
};
use crate::{
    client::Builder,
    engine::{Capabilities, Cursor, Health, Inspection, Page, Released},
    error::Result,
    fence::Fence,
    policy::{self, LockPolicy, Policies},
    telemetry::Stats,
};

/// A client of one store, without `async`; see [`crate::Leasehold`].
#[derive(Clone, Debug)]
pub struct Leasehold {
    inner: crate::Leasehold,
}

impl Leasehold {
    /// As [`crate::Leasehold::connect`].
    ///
    /// # Errors
    /// As there; also `unsupported` in async code.
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::build(crate::Leasehold::builder(url))
    }

    /// As [`crate::Leasehold::from_env`].
    ///
    /// # Errors
    /// As there; also `unsupported` in async code.
    pub fn from_env() -> Result<Self> {
        let inner = wait(crate::Leasehold::from_env())??;
        Ok(Self { inner })
    }

    /// Connects with settings of your own.
    ///
    /// ```
    /// use leasehold::blocking::Leasehold;
    ///
    /// let builder = leasehold::Leasehold::builder("memory:").configure(|config| config.label = "nightly".into());
    /// let leases = Leasehold::build(builder)?;
    /// # leases.close()
    /// # ; Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::connect`]; also `unsupported` in async code.
    pub fn build(builder: Builder) -> Result<Self> {
        let inner = wait(builder.connect())??;
        Ok(Self { inner })
    }

    /// Connects with settings of your own, without reaching the store yet.
    ///
    /// # Errors
    /// As [`Builder::connect_lazy`]; also `unsupported` in async code.
    pub fn build_lazy(builder: Builder) -> Result<Self> {
        let inner = wait(async { builder.connect_lazy() })??;
        Ok(Self { inner })
    }

    /// An exclusive lock of that name.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.inner.lock(name))
    }

    /// As [`crate::Leasehold::policy`].
    ///
    /// # Errors
    /// As there.
    pub fn policy(&self, name: &str) -> Result<BoundPolicy<'_>> {
        Ok(BoundPolicy { inner: self.inner.policy(name)? })
    }

    /// The policies it was made with.
    pub fn policies(&self) -> &Policies {
        self.inner.policies()
    }

    /// As [`crate::Leasehold::idempotency`].
    pub fn idempotency(&self, operation: impl AsRef<str>) -> Idempotency {
        Idempotency::new(self.inner.idempotency(operation))
    }

    /// As [`crate::Leasehold::idempotency_policy`].
    ///
    /// # Errors
    /// As there.
    pub fn idempotency_policy<K: AsRef<str>, V: ToString>(
        &self,
        name: &str,
        values: impl IntoIterator<Item = (K, V)>,
    ) -> Result<IdempotencyKey> {
        Ok(IdempotencyKey::new(self.inner.idempotency_policy(name, values)?))
    }

    /// Who holds a lock and who waits for it.
    ///
    /// # Errors
    /// As [`crate::Leasehold::inspect`]; also `unsupported` in async code.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Inspection> {
        wait(self.inner.inspect(name))?
    }

    /// As [`crate::Leasehold::list`].
    ///
    /// # Errors
    /// As there; also `unsupported` in async code.
    pub fn list(&self, prefix: &str, from: Option<Cursor>, limit: u32) -> Result<Page<Inspection>> {
        wait(self.inner.list(prefix, from, limit))?
    }

    /// As [`crate::Leasehold::force_release`].
    ///
    /// # Errors
    /// As there; also `unsupported` in async code.
    pub fn force_release(&self, name: impl AsRef<str>, seen: Fence) -> Result<Released> {
        wait(self.inner.force_release(name, seen))?
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// How often this client has asked its store; see [`Leasehold::round_trips`](crate::Leasehold::round_trips).
    pub fn round_trips(&self) -> Option<u64> {
        self.inner.round_trips()
    }

    /// What an operator should know about the store.
    ///
    /// # Errors
    /// As [`crate::Leasehold::health`]; also `unsupported` in async code.
    pub fn health(&self) -> Result<Health> {
        wait(self.inner.health())?
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    /// The store's URL without its password.
    pub fn store(&self) -> &str {
        self.inner.store()
    }

    /// As [`crate::Leasehold::close`].
    ///
    /// # Errors
    /// As there; also `unsupported` in async code.
    pub fn close(&self) -> Result<()> {
        wait(self.inner.close())?
    }
}

/// A lock policy of a client; made by [`Leasehold::policy`].
#[derive(Debug)]
#[must_use = "a policy does nothing until its lock is acquired"]
pub struct BoundPolicy<'a> {
    inner: policy::BoundPolicy<'a>,
}

impl<'a> BoundPolicy<'a> {
    /// The lock for these values, set as the policy says. Wrong values are reported when it is acquired.
    pub fn key<K: AsRef<str>, V: ToString>(&self, values: impl IntoIterator<Item = (K, V)>) -> Lock {
        Lock::new(self.inner.key(values))
    }

    /// The lock of a policy without parameters.
    pub fn lock(&self) -> Lock {
        Lock::new(self.inner.lock())
    }

    /// The policy itself.
    pub fn policy(&self) -> &'a LockPolicy {
        self.inner.policy()
    }
}
