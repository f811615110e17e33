//! Several locks at once: all of them or none.
//!
//! `rounds` says how they are claimed.

mod rounds;

use std::{future::IntoFuture, mem::take, pin::Pin, sync::Arc, time::Duration};

use self::rounds::{Blocked, CheckedSet, Member, Round};
use super::{Attempt, Lock, RunError, run::unless};
use crate::{
    config::WAIT_MAX,
    core::Core,
    error::{Error, Result},
    lease::{GuardSet, LeaseSet, give_back},
};

/// Most locks of one set.
pub const LOCKS_MAX: usize = 64;

/// Builder of several locks at once; made by [`Client::lock_all`](crate::Client::lock_all). Awaiting it is the same as
/// [`LockSet::acquire`].
///
/// The locks may be of different kinds. All are held or none is: while it waits it holds some of them for at most half a second
/// at a time, and the one that keeps it waiting for longer is waited for alone. The order in which they are given does not
/// matter: two callers that want the same locks never wait for each other in a circle.
///
/// The wait is that of the whole. The ttl and keep-alive set here are those of every lock; unless set, each lock has its own,
/// and the wait is the longest of them. Each lock keeps its label, lock-delay, acknowledgements, maximum lifetime and minimum
/// hold time.
///
/// Where a caller waits for several locks it may be overtaken: it keeps no place in the queue of a lock while it waits for
/// another one. Not the right tool for a resource that always comes with the same others: give them one name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let leases = leasehold::Leasehold::connect("memory:").await?;
/// let all = leases.lock_all([leases.lock("account:7"), leases.read_lock("rates"), leases.semaphore("gpu", 4).permits(2)]);
/// let guards = all.keep_alive().acquire().await?;
/// for (name, fence) in guards.fences() {
///     println!("{name} under fence {fence}");
/// }
/// assert!(guards.release().await.was_held());
/// # leases.close().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct LockSet {
    core: Arc<Core>,
    locks: Vec<Lock>,
    wait: Option<Duration>,
    ttl: Option<Duration>,
    keep_alive: Option<bool>,
}

impl LockSet {
    pub(crate) fn new(core: Arc<Core>, locks: Vec<Lock>) -> Self {
        Self { core, locks, wait: None, ttl: None, keep_alive: None }
    }

    /// How long to wait for all of them; zero asks once.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Waits as long as it takes.
    pub fn wait_forever(self) -> Self {
        self.wait(WAIT_MAX)
    }

    /// How long each lease lasts.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Renews all leases, every third of their ttl, until they are released or one of them is lost.
    pub fn keep_alive(self) -> Self {
        Self { keep_alive: Some(true), ..self }
    }

    /// Renews none of them, not even in [`LockSet::run`].
    pub fn without_keep_alive(self) -> Self {
        Self { keep_alive: Some(false), ..self }
    }

    /// Waits until all locks are free at the same time.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what was granted, and leaves the queue.
    ///
    /// # Errors
    /// `timed_out`, with the name of a lock that was not free in time; `invalid` for no lock, for more than [`LOCKS_MAX`], for
    /// a name that comes twice, and for locks of another client; the errors of [`Lock::acquire`]. Nothing is held then.
    pub async fn acquire(self) -> Result<GuardSet> {
        let set = self.checked()?;
        Box::pin(set.acquire()).await
    }

    /// Asks once and does not wait. [`Attempt::Busy`] has the holder of one that is not free.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been granted.
    ///
    /// # Errors
    /// As [`LockSet::acquire`], except that a held lock is [`Attempt::Busy`] and not an error.
    pub async fn try_acquire(self) -> Result<Attempt<GuardSet>> {
        let set = self.checked()?;
        Ok(match Box::pin(set.ask(Round::Together)).await? {
            Ok(guards) => Attempt::Held(guards),
            Err((back, Blocked { member, holder })) => {
                give_back(back).await;
                let retry = &set.members[member].request.retry;
                Attempt::Busy { holder, retry_after: retry.pause(0, set.core.entropy.fraction()) }
            }
        })
    }

    /// Runs `body` while holding all locks, kept alive unless [`LockSet::without_keep_alive`]. When one of them can no longer be
    /// trusted the body is cancelled. All are given back, also when the body panics.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and gives the locks back in the background.
    ///
    /// # Errors
    /// [`RunError::Lost`], with the lock that was lost first, when that was before the body ended; [`RunError::NotRun`] when
    /// the locks were not acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let both = leases.lock_all([leases.lock("account:7"), leases.lock("account:8")]);
    /// let moved = both.run(async |leases| {
    ///     println!("from {:?} to {:?}", leases.fence_of("account:7"), leases.fence_of("account:8"));
    ///     100
    /// });
    /// assert_eq!(moved.await?, 100);
    /// # Ok(()) }
    /// ```
    pub async fn run<T>(self, body: impl AsyncFnOnce(LeaseSet) -> T) -> Result<T, RunError<T>> {
        let guards = self.acquire_for_run().await.map_err(RunError::NotRun)?;
        let leases = guards.lease_set();
        let ended = unless(leases.lost(), body(leases.clone())).await;
        guards.settle(ended).await
    }

    /// [`LockSet::acquire`], kept alive unless [`LockSet::without_keep_alive`].
    ///
    /// # Errors
    /// As [`LockSet::acquire`].
    pub async fn acquire_for_run(mut self) -> Result<GuardSet> {
        self.keep_alive.get_or_insert(true);
        self.acquire().await
    }

    fn checked(self) -> Result<CheckedSet> {
        let Self { core, locks, wait, ttl, keep_alive } = self;
        if locks.is_empty() || locks.len() > LOCKS_MAX {
            let expected = format!("1 to {LOCKS_MAX}");
            return Err(Error::invalid("number of locks", locks.len().to_string(), expected));
        }
        let wait =
            wait.unwrap_or_else(|| locks.iter().map(|lock| lock.request.wait).max().unwrap_or_default());
        let mut members = Vec::with_capacity(locks.len());
        for mut lock in locks {
            let request = &mut lock.request;
            (request.wait, request.max_attempts) = (wait, None);
            request.ttl = ttl.unwrap_or(request.ttl);
            request.keep_alive = keep_alive.or(request.keep_alive);
            let name = lock.checked()?;
            if !Arc::ptr_eq(&lock.core, &core) {
                let expected = "locks of the client that acquires them together";
                return Err(Error::invalid("set of locks", name.as_str(), expected));
            }
            // What is given back for another set is not to stay closed.
            let hold_at_least = take(&mut lock.request.hold_at_least);
            members.push(Member { name, request: lock.request, hold_at_least });
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some((one, other)) =
            members.iter().zip(&members[1..]).find(|(one, other)| one.name == other.name)
        {
            let (a, b) = (one.request.mode(), other.request.mode());
            let twice = if a == b { String::new() } else { format!(", not as {a} and as {b}") };
            return Err(Error::invalid("set of locks", one.name.as_str(), format!("each name once{twice}")));
        }
        let began = core.clock.now();
        Ok(CheckedSet { core, members, began, until: began + wait })
    }
}

impl IntoFuture for LockSet {
    type Output = Result<GuardSet>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}
