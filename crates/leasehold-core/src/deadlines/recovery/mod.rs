//! The recovery loop: claims what is due, again and again, and gives it to a handler.

mod outbox;
mod plan;
mod scanner;

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use plan::Plan;
use scanner::{Handler, Scanner};

use super::{Deadlines, Due};
use crate::{builder::setters, error::Result, lock::Lock};

/// Who scans a pool that several processes recover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scans {
    /// All of them, each with a part of what is due.
    #[default]
    Shared,
    /// One per interval: whoever gets the lock `recovery:POOL`. The others skip the interval without waiting.
    SingleWinner,
}

/// Builder of a [`Recovery`]; made by [`Deadlines::recover`]. Awaiting it is the same as [`Recover::start`].
///
/// The handler is called with what is due, in a task of its own. When it returns `Ok`, the deadline is acknowledged. An
/// error, a panic and a time-out each use up one attempt and postpone it; after the last one it is buried with the reason.
/// A handler that acknowledges, postpones or buries its [`Due`] itself has the last word. A deadline that takes down the
/// whole process is buried after as many claims.
///
/// A handler that blocks its thread cannot be cut off at its time limit, and may then run at the same time as another one:
/// put blocking work into `spawn_blocking`.
#[must_use = "nothing is recovered until it is started"]
pub struct Recover {
    deadlines: Deadlines,
    handler: Handler,
    plan: Plan,
    lock: Option<Lock>,
    stop_when: Option<BoxFuture<'static, ()>>,
}

impl Deadlines {
    /// A task that claims what is due again and again and gives it to `handler`; see [`Recover`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::Due;
    /// let recovery = leases
    ///     .deadlines("payments")
    ///     .recover(async |due: Due| -> leasehold::Result<()> {
    ///         println!("{} is late", due.id());
    ///         Ok(())
    ///     })
    ///     .every(Duration::from_secs(5))
    ///     .await?;
    /// recovery.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn recover<H, F, E>(&self, handler: H) -> Recover
    where
        H: Fn(Due) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let handler: Handler = Arc::new(move |due| {
            let handled = handler(due);
            Box::pin(async move { handled.await.map_err(|error| error.to_string()) })
        });
        Recover { deadlines: self.clone(), handler, plan: Plan::default(), lock: None, stop_when: None }
    }
}

impl Recover {
    setters! {
        /// How often to scan for what is due. Default 5 s. When more is due than one claim takes, the next follows at once.
        every(every: Duration) => plan.every;
        /// How many handlers run at once. Default 16. A claim takes about twice as many, to leave the rest to others.
        parallelism(handlers: usize) => plan.parallelism;
        /// The most that one claim takes from a bucket. Default 100.
        limit(limit: u32) => plan.limit;
        /// How long what was claimed is hidden from others, also after a crash. Default 60 s.
        visibility(visibility: Duration) => plan.visibility;
        /// How often a deadline is tried before it is buried. Default 10.
        attempts(most: u32) => plan.attempts;
        /// How long a handler may take; then it is dropped. Less than the visibility, or two of them could meet. Default:
        /// three quarters of the visibility.
        handler_timeout(timeout: Duration) => plan.handler_timeout;
        /// How long running handlers may go on after a stop. Default 30 s.
        grace(grace: Duration) => plan.grace;
        /// Who scans, of several processes that recover the pool. Default [`Scans::Shared`].
        scans(scans: Scans) => plan.scans;
    }

    /// How long a failed deadline is left alone: `first` after the first attempt, then twice as long each time, up to
    /// `most`, with jitter. Default 1 s to 5 min.
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.plan.backoff = (first, most);
        self
    }

    /// The lock of [`Scans::SingleWinner`], as a policy has it. It is tried once per scan, and stays closed for most of the
    /// interval. Handlers are cut off when it is lost. Default: `recovery:POOL`, for a minute, kept alive.
    pub fn lock(mut self, lock: Lock) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Stops when this ends: a signal, or the cancellation of a token.
    pub fn stop_when(mut self, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop_when = Some(Box::pin(stop));
        self
    }

    /// Starts it. A store that is out of reach is waited for.
    ///
    /// # Cancel safety
    /// Dropping the future starts nothing.
    ///
    /// # Errors
    /// `invalid` for something out of range and for a pool with another layout, `unsupported` on a store that keeps no
    /// deadlines, `store_refused` where waiting would not help.
    pub async fn start(mut self) -> Result<Recovery> {
        self.plan.check()?;
        if let Err(error) = self.deadlines.ready().await
            && !error.is_retryable()
        {
            return Err(error);
        }
        let (name, stop) = (self.deadlines.name()?.clone(), self.deadlines.core().closing());
        if let Some(stop_when) = self.stop_when.take() {
            let stop = stop.clone();
            tokio::spawn(async move {
                if stop.run_until_cancelled(stop_when).await.is_some() {
                    stop.cancel();
                }
            });
        }
        let task = tokio::spawn(Scanner::run(self, name, stop.clone()));
        Ok(Recovery { task, stop_when_dropped: stop.drop_guard() })
    }
}

impl IntoFuture for Recover {
    type Output = Result<Recovery>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

/// A recovery that runs. Dropping it stops it without waiting for the handlers.
#[derive(Debug)]
#[must_use = "dropping it stops the recovery"]
pub struct Recovery {
    task: JoinHandle<bool>,
    stop_when_dropped: DropGuard,
}

impl Recovery {
    /// Stops: nothing more is claimed, what was claimed and not begun is given back, running handlers go on for the
    /// grace. Stop before `Leasehold::close`, or what they handled comes back.
    ///
    /// False if handlers had to be cut off, or if the store did not learn how they ended; what they handled
    /// comes back after its visibility.
    ///
    /// # Cancel safety
    /// Dropping the future stops all the same, unseen.
    pub async fn stop(self) -> bool {
        drop(self.stop_when_dropped);
        self.task.await.unwrap_or(false)
    }

    /// Waits until it was stopped by [`Recover::stop_when`] or the end of the client. False as in [`Recovery::stop`].
    ///
    /// # Cancel safety
    /// Dropping the future stops the recovery.
    pub async fn ended(self) -> bool {
        self.task.await.unwrap_or(false)
    }
}
