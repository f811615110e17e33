//! The builder of a lock, of every kind.

use std::{future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use tracing::Instrument;

use super::{
    Attempt, OnOutage, Protection, Waited, attempt,
    kind::Kind,
    request::LockRequest,
    retry::Retry,
    run::{self, RunError},
};
use crate::{
    builder::setters,
    config::{Config, WAIT_MAX},
    core::Core,
    engine::{Acks, Format, Mode},
    error::{Error, Result},
    lease::{Guard, Lease},
    name::Name,
    telemetry::Count,
};

/// Builder of a lock; made by `Leasehold::lock`, `read_lock`, `write_lock` and `semaphore`.
///
/// Awaiting it is the same as [`Lock::acquire`].
///
/// Not the right tool when "already being worked on" is enough (use a marker) or when the same request must not be
/// executed twice (use an idempotency key).
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    pub(crate) core: Arc<Core>,
    // A bad name is reported when the lock is acquired, so that the builder reads as one sentence.
    name: Result<Name>,
    pub(crate) request: LockRequest,
}

impl Lock {
    pub(crate) fn named(core: Arc<Core>, name: Result<Name>, kind: Kind) -> Self {
        let Config { ttl, wait, retry, .. } = core.config;
        Self { name, request: LockRequest { kind, ttl, wait, retry, ..LockRequest::default() }, core }
    }

    /// How many permits of a semaphore to take; 1 unless set. Whoever asks for more than are free waits until they are, and
    /// nobody behind it overtakes it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let two = leases.semaphore("gpu", 4).permits(2).acquire().await?;
    /// let three = leases.semaphore("gpu", 4).permits(3).try_acquire().await?;
    /// assert!(three.held().is_none());
    /// # let _ = two.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn permits(mut self, permits: u32) -> Self {
        self.request.kind = self.request.kind.taking(permits);
        self
    }

    /// How it is to be held, for a mode that is only known when the program runs: [`Mode::Shared`] makes it what
    /// `Leasehold::read_lock` returns, [`Mode::Permits`] what `Leasehold::semaphore` does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// use leasehold::Mode;
    ///
    /// let is_dry_run = true;
    /// let mode = if is_dry_run { Mode::Shared } else { Mode::Exclusive };
    /// let guard = leases.lock("config").mode(mode).acquire().await?;
    /// assert_eq!(guard.mode(), Mode::Shared);
    /// # Ok(()) }
    /// ```
    pub fn mode(mut self, mode: Mode) -> Self {
        self.request.kind = mode.into();
        self
    }

    setters! {
        /// How long the lease lasts: after a crash the lock stays closed that long. Given alone it is a fixed lease.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let guard = leases.lock("deal:42").ttl(Duration::from_secs(60)).acquire().await?;
        /// assert!(guard.remaining() <= Duration::from_secs(60));
        /// # Ok(()) }
        /// ```
        ttl(ttl: Duration) => request.ttl;
        /// How long to wait for the lock; zero asks once.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let _held = leases.lock("deal:42").acquire().await?;
        /// let late = leases.lock("deal:42").wait(Duration::from_millis(20)).acquire().await;
        /// assert_eq!(late.unwrap_err().kind(), leasehold::ErrorKind::TimedOut);
        /// # Ok(()) }
        /// ```
        wait(wait: Duration) => request.wait;
        /// Gives up after the store was asked this often.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let _held = leases.lock("deal:42").acquire().await?;
        /// assert!(leases.lock("deal:42").max_attempts(3).retry(leasehold::Retry::fixed(Duration::from_millis(1))).await.is_err());
        /// # Ok(()) }
        /// ```
        max_attempts(most: u32) => request.max_attempts;
        /// How often to ask again while waiting.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let retry = leasehold::Retry::exponential(Duration::from_millis(100), 2.0).up_to(Duration::from_secs(1));
        /// let guard = leases.lock("deal:42").retry(retry).acquire().await?;
        /// # let _ = guard.release().await?;
        /// # Ok(()) }
        /// ```
        retry(retry: Retry) => request.retry;
        /// What people see as the holder, besides host and process.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let _held = leases.lock("deal:42").label("nightly report").acquire().await?;
        /// let seen = leases.inspect("deal:42").await?;
        /// assert!(seen.held().unwrap().holder.to_string().starts_with("nightly report"));
        /// # Ok(()) }
        /// ```
        label(label: impl Into<String>) => request.label;
        /// Keeps the lock closed for this long after the lease *expired*, for resources that cannot check fences.
        /// A release opens it at once.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let guard = leases.lock("tape").lock_delay(Duration::from_secs(10)).acquire().await?;
        /// # let _ = guard.release().await?;
        /// # Ok(()) }
        /// ```
        lock_delay(delay: Duration) => request.lock_delay;
        /// How many replicas must have the lock before it counts as acquired, so that a fail-over cannot forget it: a number
        /// or [`Acks::Majority`]. With fewer in time, the lock is given back and the error says so.
        ///
        /// The time for it is that of one command, and at most half of the ttl; renewals and releases wait for no replica.
        /// It costs another round trip, and one to the replicas. It does not protect against a primary that is cut off from
        /// everybody but its replicas; it is refused by stores that have none.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// # use leasehold::Acks;
        /// // On `redis://` with replicas. In memory there are none, and the error says so.
        /// let refused = leases.lock("deal:42").acks(Acks::Majority).acquire().await.unwrap_err();
        /// assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported);
        /// # Ok(()) }
        /// ```
        acks(acks: impl Into<Acks>) => request.acks;
        /// How the lock lies in the store: [`Format::Redisson`] shares it with `RLock` and `RFencedLock` of Redisson, whose name
        /// for it is the store's prefix and the name. All who use the name must choose the same.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// # use leasehold::Format;
        /// // On `redis://`, `redis-sentinel://` and `redis-cluster://`. Other stores refuse it.
        /// let refused = leases.lock("deal:42").format(Format::Redisson).acquire().await.unwrap_err();
        /// assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported);
        /// # Ok(()) }
        /// ```
        format(format: Format) => request.format;
        /// The longest time the lock can be held, renewals included.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let lock = leases.lock("deal:42").keep_alive().max_lifetime(Duration::from_secs(600));
        /// # let _ = lock.acquire().await?.release().await?;
        /// # Ok(()) }
        /// ```
        max_lifetime(most: Duration) => request.max_lifetime;
        /// Keeps the lock closed at least this long from when it was acquired, even if it is released earlier: once per
        /// interval across a fleet whose clocks differ.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// # use leasehold::Released;
        /// let guard = leases.lock("report:daily").hold_at_least(Duration::from_secs(60)).acquire().await?;
        /// assert!(matches!(guard.release().await?, Released::Closed { .. }));
        /// assert!(leases.lock("report:daily").try_acquire().await?.held().is_none());
        /// # Ok(()) }
        /// ```
        hold_at_least(least: Duration) => request.hold_at_least;
        /// What [`Lock::acquire_or_proceed`] does when the store is out of reach.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// # use leasehold::{OnOutage, Protection};
        /// let lock = leases.lock("cache:warm").on_outage(OnOutage::Proceed);
        /// assert!(matches!(lock.acquire_or_proceed().await?, Protection::Held(_)));
        /// # Ok(()) }
        /// ```
        on_outage(what: OnOutage) => request.on_outage;
        /// Refuses [`OnOutage::Proceed`]: nothing may go on without this lock.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// # use leasehold::OnOutage;
        /// let lock = leases.lock("payout:42").critical(true).on_outage(OnOutage::Proceed);
        /// assert!(lock.acquire_or_proceed().await.is_err());
        /// # Ok(()) }
        /// ```
        critical(critical: bool) => request.critical;
    }

    /// Waits as long as it takes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").wait_forever().acquire().await?;
    /// # let _ = guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn wait_forever(self) -> Self {
        self.wait(WAIT_MAX)
    }

    /// Renews the lease, every third of its ttl, until it is released or lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").ttl(Duration::from_secs(30)).keep_alive().acquire().await?;
    /// // Work for as long as it takes; ask `is_held()` before each step, or wait for `lost()` beside it.
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn keep_alive(mut self) -> Self {
        self.request.keep_alive = Some(true);
        self
    }

    /// Does not renew the lease, not even in [`Lock::run`]: it ends with its ttl.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let run = leases.lock("deal:42").ttl(Duration::from_millis(100)).without_keep_alive().run(async |lease| lease.lost().await);
    /// assert!(run.await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn without_keep_alive(mut self) -> Self {
        self.request.keep_alive = Some(false);
        self
    }

    /// Counts the lock under this policy of the client, in [`Stats`](crate::Stats) and spans. A policy that the client was
    /// not made with counts as none, so that the number of labels is bounded. Locks of a policy are counted under it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").counted_as("payout").acquire().await?;
    /// // This client was made without policies.
    /// assert!(leases.stats().by_policy.is_empty());
    /// # Ok(()) }
    /// ```
    pub fn counted_as(mut self, policy: &str) -> Self {
        self.request.policy = self.core.telemetry.of_policy(policy);
        self
    }

    /// Is called whenever the store says that somebody else still holds the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let lock = leases.lock("deal:42").on_wait(|wait| eprintln!("{} ahead, {:?} so far", wait.ahead, wait.waited));
    /// # let _ = lock.acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").wait(Duration::from_secs(5)).acquire().await?;
    /// println!("writing with fence {}", guard.fence());
    /// assert!(guard.release().await?.was_held());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(self) -> Result<Guard> {
        if self.request.wait.is_zero() || self.request.max_attempts == Some(1) {
            return Box::pin(self.acquire_at_once()).await;
        }
        let name = self.checked()?;
        let counted = self.request.telemetry(&self.core);
        let span = tracing::debug_span!("acquire", %name, mode = counted.mode(), policy = counted.policy());
        if span.is_disabled() {
            return attempt::wait_for(&self.core, name, &self.request, Count::timed_out).await;
        }
        Box::pin(attempt::wait_for(&self.core, name, &self.request, Count::timed_out).instrument(span)).await
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::Attempt;
    /// match leases.lock("domain:example.com").try_acquire().await? {
    ///     Attempt::Held(guard) => assert!(guard.release().await?.was_held()),
    ///     Attempt::Busy { retry_after, .. } => println!("look again in {retry_after:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(self) -> Result<Attempt> {
        let name = self.checked()?;
        let counted = self.request.telemetry(&self.core);
        let span = tracing::debug_span!("acquire", %name, mode = counted.mode(), policy = counted.policy());
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::{OnOutage, Protection};
    /// match leases.lock("cache:warm").on_outage(OnOutage::Proceed).acquire_or_proceed().await? {
    ///     Protection::Held(guard) => assert!(guard.release().await?.was_held()),
    ///     Protection::Unprotected { cause } => eprintln!("going on alone: {cause}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn acquire_or_proceed(self) -> Result<Protection> {
        let proceed = self.request.on_outage == OnOutage::Proceed;
        let telemetry = self.request.telemetry(&self.core).clone();
        match self.acquire().await {
            Ok(guard) => Ok(Protection::Held(guard)),
            // A wrong password or a missing right is no outage: it would last.
            Err(cause @ (Error::StoreUnreachable { .. } | Error::StoreRefused { .. }))
                if proceed && cause.is_retryable() =>
            {
                telemetry.count(Count::degraded);
                tracing::error!(%cause, "going on without protection");
                Ok(Protection::Unprotected { cause })
            }
            Err(error) => Err(error),
        }
    }

    /// Runs `body` while holding the lock, kept alive unless [`Lock::without_keep_alive`]. When the lease can no longer be trusted
    /// the body is cancelled; the lock is always given back, also when the body panics.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and gives the lock back in the background.
    ///
    /// # Errors
    /// [`RunError::Lost`] when the lease ended before the body did, with the body's value if there is one;
    /// [`RunError::NotRun`] when the lock was not acquired. A release that fails is logged and counted and hides nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let total = leases.lock("reconciliation").run(async |lease| {
    ///     println!("under fence {}", lease.fence());
    ///     6 * 7
    /// });
    /// assert_eq!(total.await?, 42);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire_for_run().await.map_err(RunError::NotRun)?;
        run::under(guard, body).await
    }

    /// [`Lock::acquire`], kept alive unless [`Lock::without_keep_alive`].
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("reconciliation").acquire_for_run().await?;
    /// assert!(leasehold::lock::settle(guard, Some(Ok(42))).await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_for_run(mut self) -> Result<Guard> {
        self.request.keep_alive.get_or_insert(true);
        self.acquire().await
    }

    pub(crate) fn checked(&self) -> Result<Name> {
        self.core.check_open()?;
        let name = self.name.clone()?;
        self.core.check_name(&name)?;
        self.request.check(&self.core).map_err(|error| error.about(format!("the lock \"{name}\"")))?;
        Ok(name)
    }
}

impl IntoFuture for Lock {
    type Output = Result<Guard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
