//! What a client does with settings and policies from a file.

use super::{LockPolicy, NO_PARAMETERS, Policies, RecordPolicy};
use crate::config::{ChosenBy, settings::STORE_PLACES};
use crate::{Builder, Error, IdempotencyKey, Leasehold, Lock, Marker, Name, Result, Settings};

impl Leasehold {
    /// Connects to the store that the environment and the files called `leasehold.toml` name: `LEASEHOLD_STORE`, `store` in a
    /// file, or what `REDIS_HOST`, `REDIS_PORT` and `REDIS_PASSWORD` describe; if none is named, to the SQLite file that the
    /// command line uses. [`Settings`] lists everything that is read.
    ///
    /// # Errors
    /// As [`Leasehold::connect`]; also `invalid` for a setting that is wrong.
    pub async fn from_env() -> Result<Self> {
        let settings = Settings::from_env()?;
        if let (Some(ChosenBy::Default { .. }), Some(store)) = (&settings.chosen_by, &settings.store) {
            tracing::warn!("no store is named: {store}, which only this host shares");
        }
        Self::from_settings(settings)?.connect().await
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
    /// let guard = leases.lock_policy("payout")?.key([("deal_id", 42)]).acquire().await?;
    /// assert_eq!(guard.name().as_str(), "payout:42");
    /// # let _ = guard.release().await?; leases.close().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// `invalid` for a name that is not there, with the nearest and all others.
    pub fn lock_policy(&self, name: &str) -> Result<BoundPolicy<'_, LockPolicy, Lock>> {
        Ok(BoundPolicy { leases: self, policy: self.policies.lock(name)?, make: lock })
    }

    /// The policies it was made with.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// The idempotency policy `[idempotency.NAME]`, to be given its values. Errors as [`Leasehold::lock_policy`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Leasehold, Policies};
    ///
    /// let policies = Policies::parse("[idempotency.mail]\nkey = \"mail:{user}\"\nttl = \"24h\"", "example")?;
    /// let leases = Leasehold::builder("memory:").policies(policies).connect().await?;
    /// let mail = leases.idempotency_policy("mail")?;
    /// assert!(mail.key([("user", 7)]).at_most_once().await?.is_first());
    /// # leases.close().await
    /// # }
    /// ```
    pub fn idempotency_policy(&self, name: &str) -> Result<BoundPolicy<'_, RecordPolicy, IdempotencyKey>> {
        Ok(BoundPolicy { leases: self, policy: self.policies.idempotency(name)?, make: idempotency_key })
    }

    /// The marks of the policy `[markers.NAME]`, to be given their values one by one. Errors as [`Leasehold::lock_policy`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Leasehold, Policies};
    ///
    /// let policies = Policies::parse("[markers.busy]\nkey = \"busy:{file}\"\nttl = \"5m\"", "example")?;
    /// let leases = Leasehold::builder("memory:").policies(policies).connect().await?;
    /// assert!(leases.marker_policy("busy")?.mark_if_absent([("file", "a.csv")]).await?);
    /// # leases.close().await
    /// # }
    /// ```
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

/// A policy of a client, to be given the values of its key.
#[must_use = "a policy does nothing until it is given its values"]
pub struct BoundPolicy<'a, P, T> {
    pub(crate) leases: &'a Leasehold,
    pub(crate) policy: &'a P,
    pub(crate) make: fn(&Leasehold, &P, Result<Name>) -> T,
}

impl<T> BoundPolicy<'_, LockPolicy, T> {
    /// The lock of a policy without parameters.
    pub fn lock(&self) -> T {
        self.key(NO_PARAMETERS)
    }
}

impl<'a, P, T> BoundPolicy<'a, P, T> {
    /// The policy itself.
    pub fn policy(&self) -> &'a P {
        self.policy
    }
}

/// A lock of this name, set as the policy says.
pub(crate) fn lock(leases: &Leasehold, policy: &LockPolicy, name: Result<Name>) -> Lock {
    let lock = leases
        .lock_named(name)
        .mode(policy.mode())
        .counted_as(&policy.name)
        .critical(policy.critical)
        .on_outage(policy.on_outage);
    let lock = with(lock, policy.ttl, Lock::ttl);
    let lock = with(lock, policy.wait, Lock::wait);
    let lock = with(lock, policy.retry, Lock::retry);
    let lock = with(lock, policy.max_attempts, |lock, most| lock.max_attempts(most.get()));
    let lock = with(lock, policy.keep_alive, |lock, renewed| match renewed {
        true => lock.keep_alive(),
        false => lock.without_keep_alive(),
    });
    let lock = with(lock, policy.lock_delay, Lock::lock_delay);
    let lock = with(lock, policy.acks, Lock::acks);
    let lock = with(lock, policy.format, Lock::format);
    let lock = with(lock, policy.max_lifetime, Lock::max_lifetime);
    with(lock, policy.hold_at_least, Lock::hold_at_least)
}

/// A request of this key, whose result is kept as the policy says.
pub(crate) fn idempotency_key(
    leases: &Leasehold,
    policy: &RecordPolicy,
    key: Result<Name>,
) -> IdempotencyKey {
    leases.idempotency_key(key).counted_as(&policy.name).keep_result_for(policy.ttl)
}

fn with<T>(lock: Lock, value: Option<T>, set: impl FnOnce(Lock, T) -> Lock) -> Lock {
    match value {
        Some(value) => set(lock, value),
        None => lock,
    }
}

impl<P: std::fmt::Debug, T> std::fmt::Debug for BoundPolicy<'_, P, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BoundPolicy").field(self.policy).finish()
    }
}
