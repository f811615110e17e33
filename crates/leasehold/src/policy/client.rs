//! What a client does with settings and policies from a file.

use super::{LockPolicy, NO_PARAMETERS, Policies};
use crate::config::settings::STORE_PLACES;
use crate::{Builder, Error, IdempotencyKey, Leasehold, Lock, Marker, Result, Settings};

impl Leasehold {
    /// Connects to the store that the environment and the files called `leasehold.toml` name: `LEASEHOLD_STORE`, `store` in a
    /// file, or what `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` describe; if none is named, to the SQLite file that the
    /// command line uses. [`Settings`] lists everything that is read.
    ///
    /// # Errors
    /// As [`Leasehold::connect`]; also `invalid` for a setting that is wrong.
    pub async fn from_env() -> Result<Self> {
        Self::from_settings(Settings::from_env()?)?.connect().await
    }

    /// A client with settings that were loaded; `invalid` when they name no store.
    pub fn from_settings(settings: Settings) -> Result<Builder> {
        let Some(store) = settings.store else {
            return Err(Error::invalid("store", "", STORE_PLACES));
        };
        let mut builder = Self::builder(store);
        (builder.options.config, builder.policies) = (settings.config, settings.policies);
        Ok(builder)
    }

    /// The lock policy `[locks.NAME]`, to be given its values.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Leasehold, Policies};
    ///
    /// let policies = Policies::parse("[locks.payout]\nkey = \"payout:{deal_id}\"\nttl = \"60s\"", "example")?;
    /// let leases = Leasehold::builder("memory:").policies(policies).connect().await?;
    /// let guard = leases.policy("payout")?.key([("deal_id", 42)]).acquire().await?;
    /// assert_eq!(guard.name().as_str(), "payout:42");
    /// # guard.release().await?; leases.close().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// `invalid` for a name that is not there, with the nearest and all others.
    pub fn policy(&self, name: &str) -> Result<BoundPolicy<'_>> {
        Ok(BoundPolicy { leases: self, policy: self.policies.lock(name)?, wrap: |lock| lock })
    }

    /// The policies it was made with.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// One request of the policy `[idempotency.NAME]`, kept as long as that says. Errors as [`Leasehold::policy`]; wrong
    /// values are reported when the key is used.
    pub fn idempotency_policy<K: AsRef<str>, V: ToString>(
        &self,
        name: &str,
        values: impl IntoIterator<Item = (K, V)>,
    ) -> Result<IdempotencyKey> {
        let policy = self.policies.idempotency(name)?;
        Ok(self.idempotency_key(policy.key(values)).keep(policy.ttl))
    }

    /// Marks of the policy `[markers.NAME]`. An id has as many values as the policy's key has parameters, in their order.
    /// Errors as [`Leasehold::policy`].
    pub fn marker_policy(&self, name: &str) -> Result<Marker> {
        let policy = self.policies.marker(name)?;
        Ok(self.marker_with(policy.template.clone(), policy.ttl))
    }
}

impl Builder {
    /// Named policies. If their file sets `prefix` or `max-ttl`, this sets them too; a later
    /// [`configure`](Builder::configure) can still change them.
    pub fn policies(mut self, policies: Policies) -> Self {
        policies.take_over(&mut self.options.config);
        self.policies = policies;
        self
    }
}

/// A lock policy of a client; made by [`Leasehold::policy`].
#[must_use = "a policy does nothing until its lock is acquired"]
pub struct BoundPolicy<'a, L = Lock> {
    pub(crate) leases: &'a Leasehold,
    pub(crate) policy: &'a LockPolicy,
    pub(crate) wrap: fn(Lock) -> L,
}

impl<'a, L> BoundPolicy<'a, L> {
    /// The lock for these values, set as the policy says. Wrong values are reported when it is acquired.
    pub fn key<K: AsRef<str>, V: ToString>(&self, values: impl IntoIterator<Item = (K, V)>) -> L {
        let policy = self.policy;
        let lock = self.leases.lock_named(policy.key(values));
        let lock = lock.critical(policy.critical).on_outage(policy.on_outage);
        let lock = with(lock, policy.ttl, Lock::ttl);
        let lock = with(lock, policy.wait, Lock::wait);
        let lock =
            with(lock, policy.keep_alive, |lock, keep| if keep { lock.keep_alive() } else { lock.fixed() });
        let lock = with(lock, policy.lock_delay, Lock::lock_delay);
        let lock = with(lock, policy.acks, Lock::acks);
        let lock = with(lock, policy.max_lifetime, Lock::max_lifetime);
        let lock = with(lock, policy.hold_at_least, Lock::hold_at_least);
        (self.wrap)(lock)
    }

    /// The lock of a policy without parameters.
    pub fn lock(&self) -> L {
        self.key(NO_PARAMETERS)
    }

    /// The policy itself.
    pub fn policy(&self) -> &'a LockPolicy {
        self.policy
    }
}

fn with<T>(lock: Lock, value: Option<T>, set: impl FnOnce(Lock, T) -> Lock) -> Lock {
    match value {
        Some(value) => set(lock, value),
        None => lock,
    }
}

impl<L> std::fmt::Debug for BoundPolicy<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BoundPolicy").field(self.policy).finish()
    }
}
