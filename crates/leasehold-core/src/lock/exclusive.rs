//! The exclusive lock: one holder at a time.

use std::{future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use tracing::Instrument;

use super::{
    attempt,
    retry::Retry,
    run::{self, RunError},
};
use crate::{
    builder::setters,
    config::{Config, WAIT_MAX, between, check_label, check_wait},
    core::Core,
    engine::Acks,
    error::{Error, Result},
    lease::{Guard, Lease, validity::TTL_MAX_LIMIT},
    name::Name,
    owner::Holder,
    telemetry::Count,
};

/// How a lock is asked for and held.
#[derive(Clone, Default)]
pub(crate) struct LockRequest {
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retry: Retry,
    /// Unless set, a lease is renewed in [`Lock::run`] only.
    pub(crate) keep_alive: Option<bool>,
    pub(crate) label: String,
    pub(crate) lock_delay: Duration,
    pub(crate) acks: Acks,
    pub(crate) max_lifetime: Option<Duration>,
    pub(crate) hold_at_least: Duration,
    pub(crate) on_outage: OnOutage,
    /// Never to go on without protection, whatever the caller says.
    pub(crate) critical: bool,
    pub(crate) progress: Option<Progress>,
}

/// Receives the progress of a wait.
type Progress = Arc<dyn Fn(&Waited<'_>) + Send + Sync>;

/// What to do when the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOutage {
    /// Do not go on. The only choice for anything that moves money.
    #[default]
    Deny,
    /// Go on without protection, as its own type, counted.
    Proceed,
}

/// The state of a wait, for people who watch it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Waited<'a> {
    /// Who holds the lock.
    pub holder: Option<&'a Holder>,
    /// How many are before this attempt in the queue.
    pub ahead: u32,
    /// How long it has waited so far.
    pub waited: Duration,
}

/// The result of asking once for a lock.
#[derive(Debug)]
#[must_use = "a lock that was acquired is given back when dropped"]
pub enum Attempt<G = Guard> {
    /// It is yours.
    Held(G),
    /// Somebody else holds it.
    Busy {
        /// Who, as far as the store says.
        holder: Option<Holder>,
        /// When to ask again. Jittered: clients refused together do not come back together.
        retry_after: Duration,
    },
}

impl<G> Attempt<G> {
    /// The guard, if it was acquired.
    pub fn held(self) -> Option<G> {
        match self {
            Self::Held(guard) => Some(guard),
            Self::Busy { .. } => None,
        }
    }
}

/// The result of [`Lock::acquire_or_proceed`].
#[derive(Debug)]
#[must_use = "a lock that was acquired is given back when dropped"]
pub enum Protection<G = Guard> {
    /// The lock is held.
    Held(G),
    /// The store is out of reach and the lock's policy is to go on. There is no fence: nothing protects this run.
    Unprotected {
        /// Why.
        cause: Error,
    },
}

/// Builder of an exclusive lock; made by `Leasehold::lock`.
///
/// Awaiting it is the same as [`Lock::acquire`].
///
/// Not the right tool when "already being worked on" is enough (use a marker) or when the same request must not be
/// executed twice (use an idempotency key).
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    core: Arc<Core>,
    // A bad name is reported when the lock is acquired, so that the builder reads as one sentence.
    name: Result<Name>,
    pub(crate) request: LockRequest,
}

impl Lock {
    pub(crate) fn named(core: Arc<Core>, name: Result<Name>) -> Self {
        let Config { ttl, wait, retry, .. } = core.config;
        Self { name, request: LockRequest { ttl, wait, retry, ..LockRequest::default() }, core }
    }

    setters! {
        /// How long the lease lasts: after a crash the lock stays closed that long. Given alone it is a fixed lease.
        ttl(ttl: Duration) => request.ttl;
        /// How long to wait for the lock; zero asks once.
        wait(wait: Duration) => request.wait;
        /// Gives up after the store was asked this often.
        max_attempts(most: u32) => request.max_attempts;
        /// How often to ask again while waiting.
        retry(retry: Retry) => request.retry;
        /// What people see as the holder, besides host and process.
        label(label: impl Into<String>) => request.label;
        /// Keeps the lock closed for this long after the lease *expired*, for resources that cannot check fences.
        /// A release opens it at once.
        lock_delay(delay: Duration) => request.lock_delay;
        /// How many replicas must have the lock before it counts as acquired, so that a fail-over cannot forget it: a number
        /// or [`Acks::Majority`]. With fewer in time, the lock is given back and the error says so.
        ///
        /// The time for it is that of one command, and at most half of the ttl; renewals and releases wait for no replica.
        /// It costs another round trip, and one to the replicas. It does not protect against a primary that is cut off from
        /// everybody but its replicas; it is refused by stores that have none.
        acks(acks: impl Into<Acks>) => request.acks;
        /// The longest time the lock can be held, renewals included.
        max_lifetime(most: Duration) => request.max_lifetime;
        /// Keeps the lock closed at least this long from when it was acquired, even if it is released earlier: once per
        /// interval across a fleet whose clocks differ.
        hold_at_least(least: Duration) => request.hold_at_least;
        /// What [`Lock::acquire_or_proceed`] does when the store is out of reach.
        on_outage(what: OnOutage) => request.on_outage;
        /// Refuses [`OnOutage::Proceed`]: nothing may go on without this lock.
        critical(critical: bool) => request.critical;
    }

    /// Waits as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.wait(WAIT_MAX)
    }

    /// Renews the lease, every third of its ttl, until it is released or lost.
    pub fn keep_alive(mut self) -> Self {
        self.request.keep_alive = Some(true);
        self
    }

    /// Does not renew the lease, not even in [`Lock::run`].
    pub fn fixed(mut self) -> Self {
        self.request.keep_alive = Some(false);
        self
    }

    /// Is called whenever the store says that somebody else still holds the lock.
    pub fn on_wait(mut self, progress: impl Fn(&Waited<'_>) + Send + Sync + 'static) -> Self {
        self.request.progress = Some(Arc::new(progress));
        self
    }

    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt in the background: it leaves the queue, or gives back what was granted
    /// meanwhile. Its place in the queue is lost.
    ///
    /// # Errors
    /// `timed_out` when it was not free in time; `store_unreachable` and `store_refused` when the store is at fault;
    /// `invalid` when the builder was given something out of range.
    pub async fn acquire(self) -> Result<Guard> {
        if self.request.wait.is_zero() || self.request.max_attempts == Some(1) {
            return Box::pin(self.acquire_at_once()).await;
        }
        let name = self.checked()?;
        let span = tracing::debug_span!("acquire", %name);
        if span.is_disabled() {
            return attempt::wait_for(&self.core, name, &self.request).await;
        }
        Box::pin(attempt::wait_for(&self.core, name, &self.request).instrument(span)).await
    }

    async fn acquire_at_once(self) -> Result<Guard> {
        let name = self.name.clone();
        match self.try_acquire().await? {
            Attempt::Held(guard) => Ok(guard),
            Attempt::Busy { holder, .. } => {
                Err(Error::TimedOut { name: name?, waited: Duration::ZERO, attempts: 1, holder })
            }
        }
    }

    /// Asks once and does not wait: one command, no place in the queue.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been granted.
    ///
    /// # Errors
    /// As [`Lock::acquire`], except that a held lock is [`Attempt::Busy`] and not an error.
    pub async fn try_acquire(self) -> Result<Attempt> {
        let name = self.checked()?;
        let span = tracing::debug_span!("acquire", %name);
        if span.is_disabled() {
            return attempt::ask_once(&self.core, name, &self.request).await;
        }
        Box::pin(attempt::ask_once(&self.core, name, &self.request).instrument(span)).await
    }

    /// Waits for the lock; when the store is out of reach and [`OnOutage::Proceed`] was chosen, goes on without it.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    /// As [`Lock::acquire`]; a lock held by somebody else is never a reason to go on.
    pub async fn acquire_or_proceed(self) -> Result<Protection> {
        let proceed = self.request.on_outage == OnOutage::Proceed;
        let core = self.core.clone();
        match self.acquire().await {
            Ok(guard) => Ok(Protection::Held(guard)),
            // A wrong password or a missing right is no outage: it would last.
            Err(cause @ (Error::StoreUnreachable { .. } | Error::StoreRefused { .. }))
                if proceed && cause.is_retryable() =>
            {
                core.telemetry.count(Count::degraded);
                tracing::error!(%cause, "going on without protection");
                Ok(Protection::Unprotected { cause })
            }
            Err(error) => Err(error),
        }
    }

    /// Runs `body` while holding the lock, kept alive unless [`Lock::fixed`]. When the lease can no longer be trusted
    /// the body is cancelled; the lock is always given back, also when the body panics.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and gives the lock back in the background.
    ///
    /// # Errors
    /// [`RunError::Lost`] when the lease ended before the body did, with the body's value if there is one;
    /// [`RunError::NotRun`] when the lock was not acquired. A release that fails is logged and counted and hides nothing.
    pub async fn run<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire_for_run().await.map_err(RunError::NotRun)?;
        run::under(guard, body).await
    }

    /// [`Lock::acquire`], kept alive unless [`Lock::fixed`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire_for_run(mut self) -> Result<Guard> {
        self.request.keep_alive.get_or_insert(true);
        self.acquire().await
    }

    fn checked(&self) -> Result<Name> {
        self.core.check_open()?;
        let name = self.name.clone()?;
        self.core.check_name(&name)?;
        self.check_ranges().map_err(|error| error.about(format!("the lock \"{name}\"")))?;
        Ok(name)
    }

    fn check_ranges(&self) -> Result<()> {
        let request = &self.request;
        let capabilities = self.core.engine.capabilities();
        self.core.config.check_ttl(request.ttl)?;
        between("ttl", request.ttl, *capabilities.ttl.start(), *capabilities.ttl.end())?;
        check_wait(request.wait)?;
        check_label(&request.label)?;
        request.retry.check()?;
        let most = self.core.config.max_ttl;
        between("lock delay", request.lock_delay, Duration::ZERO, most)?;
        between("minimum hold time", request.hold_at_least, Duration::ZERO, TTL_MAX_LIMIT)?;
        if let Some(lifetime) = request.max_lifetime {
            between("maximum lifetime", lifetime, request.ttl.min(most), WAIT_MAX)?;
        }
        if request.critical && request.on_outage == OnOutage::Proceed {
            return Err(Error::invalid("critical on-outage", "proceed", "deny"));
        }
        if let (true, Some(why)) = (request.acks != Acks::None, capabilities.no_acks) {
            return Err(Error::unsupported("waiting for replicas", why));
        }
        if request.max_attempts == Some(0) {
            return Err(Error::invalid("max attempts", "0", "1 or more"));
        }
        Ok(())
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
