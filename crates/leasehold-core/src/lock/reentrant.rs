//! Locks that their owner may acquire again while it holds them.

use std::{
    collections::HashMap,
    fmt,
    future::IntoFuture,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use super::{
    Attempt, Lock, Retry, RunError, Waited,
    run::{conclude, until_lost},
};
use crate::{
    builder::lock_setters,
    client::Client,
    engine::{Acks, Mode, Released},
    error::{Error, Result},
    lease::{Guard, Lease, lease_methods},
    name::Name,
};

/// Somebody in this process who may acquire a lock again that it holds already; made by
/// [`Client::owner`](crate::Client::owner). Clones are the same owner.
///
/// Code that takes a lock and calls other code that takes the same lock would wait for itself. With one owner passed along,
/// the inner acquire joins the lease of the outer one: one lease, one fence, and a count that this client keeps, without a
/// round trip. The lock is given back with the last guard.
///
/// Another owner, of this process or of another one, is a stranger and waits. So does a plain
/// [`Client::lock`](crate::Client::lock).
///
/// - The first guard sets the terms: ttl, label, lock-delay, maximum and minimum hold time. What later guards say about these
///   has no effect.
/// - [`keep_alive`](ReentrantLock::keep_alive) of any guard renews the lease until its end, also after that guard is gone.
/// - A lost lease is lost for all guards at once. Until the last of them is gone, acquiring again is the error `lost`: the
///   code around it works without protection.
/// - Of two tasks that acquire at the same time one asks the store and the other joins it. If the first gives up, the other
///   asks.
/// - An owner that reads cannot re-enter as a writer, nor the other way round. Permits are counted and cannot be re-entered.
///
/// Not for threads or tasks that must exclude each other: they need an owner each.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let leases = leasehold::Leasehold::connect("memory:").await?;
/// let me = leases.owner();
/// let outer = me.lock("deal:42").keep_alive().acquire().await?;
/// let inner = me.lock("deal:42").acquire().await?;
/// assert_eq!(inner.fence(), outer.fence());
/// let stranger = leases.owner().lock("deal:42").try_acquire().await?;
/// assert!(stranger.held().is_none());
/// assert!(inner.release().await?.was_held());
/// assert!(outer.is_held(), "the lock is given back with the last guard");
/// assert!(outer.release().await?.was_held());
/// # leases.close().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "an owner holds nothing until it acquires a lock"]
pub struct LockOwner {
    client: Client,
    names: Arc<Mutex<Names>>,
}

/// The names that an owner holds or asks for.
#[derive(Default)]
struct Names {
    slots: HashMap<Name, Weak<Slot>>,
    /// Names nobody uses any more are removed when there are this many.
    sweep_at: usize,
}

/// One name of an owner. It lives as long as somebody holds it or asks for it.
#[derive(Default)]
struct Slot {
    /// The one who asks the store.
    asking: tokio::sync::Mutex<()>,
    held: Mutex<Weak<Entered>>,
}

/// The lease that all guards of an owner share. Dropping it gives the lock back.
struct Entered {
    guard: Guard,
    acks: Acks,
    // Found by those who acquire again.
    _slot: Arc<Slot>,
}

impl Slot {
    fn held(&self) -> MutexGuard<'_, Weak<Entered>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard of the lease that the owner has already.
    fn join(&self, lock: &Lock) -> Result<Option<ReentrantGuard>> {
        let Some(entered) = self.held().upgrade() else { return Ok(None) };
        let lease = &entered.guard.lease;
        if !lease.is_held() {
            return Err(lease.lost_error());
        }
        let (held, asked) = (entered.guard.mode(), lock.request.mode());
        let what = || format!("re-entering \"{}\" as {asked}", lease.name());
        if held != asked {
            return Err(Error::unsupported(what(), format!("its owner holds it as {held}")));
        }
        if lock.request.acks != Acks::None && lock.request.acks != entered.acks {
            let why = "it was acquired without these acknowledgements of replicas";
            return Err(Error::unsupported(what(), why));
        }
        if lock.request.keep_alive == Some(true) {
            lease.core.keeper.keep_alive(&lease.state);
        }
        Ok(Some(ReentrantGuard { entered }))
    }

    fn enter(self: Arc<Self>, guard: Guard, acks: Acks) -> ReentrantGuard {
        let entered = Arc::new(Entered { guard, acks, _slot: self.clone() });
        *self.held() = Arc::downgrade(&entered);
        ReentrantGuard { entered }
    }
}

impl LockOwner {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, names: Arc::default() }
    }

    /// An exclusive lock of that name.
    pub fn lock(&self, name: impl AsRef<str>) -> ReentrantLock {
        self.own(self.client.lock(name))
    }

    /// The shared side of the read-write lock of that name. A reader that acquires it again does not wait for the writers
    /// that wait for it.
    pub fn read_lock(&self, name: impl AsRef<str>) -> ReentrantLock {
        self.own(self.client.read_lock(name))
    }

    /// A lock that was made otherwise, by a policy for example.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let me = leases.owner();
    /// let outer = me.own(leases.lock("deal:42").counted_as("payout")).acquire().await?;
    /// assert!(me.lock("deal:42").try_acquire().await?.held().is_some());
    /// # let _ = outer.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn own(&self, lock: Lock) -> ReentrantLock {
        ReentrantLock { lock, owner: self.clone() }
    }

    fn slot(&self, name: &Name) -> Arc<Slot> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = names.slots.get(name).and_then(Weak::upgrade) {
            return slot;
        }
        if names.slots.len() >= names.sweep_at {
            names.slots.retain(|_, slot| slot.strong_count() > 0);
            names.sweep_at = 2 * names.slots.len() + 16;
        }
        let slot = Arc::default();
        names.slots.insert(name.clone(), Arc::downgrade(&slot));
        slot
    }
}

impl fmt::Debug for LockOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockOwner").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Builder of a lock of a [`LockOwner`]. Awaiting it is the same as [`ReentrantLock::acquire`].
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct ReentrantLock {
    lock: Lock,
    owner: LockOwner,
}

impl ReentrantLock {
    lock_setters! {
        ttl(ttl: Duration);
        wait(wait: Duration);
        wait_forever();
        max_attempts(most: u32);
        retry(retry: Retry);
        keep_alive();
        without_keep_alive();
        label(label: impl Into<String>);
        lock_delay(delay: Duration);
        acks(acks: impl Into<Acks>);
        max_lifetime(most: Duration);
        on_wait(progress: impl Fn(&Waited<'_>) + Send + Sync + 'static);
    }

    /// Joins the lease that the owner has, or waits for the lock.
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`]. Another task of the owner that waited for this attempt asks for itself then.
    ///
    /// # Errors
    /// As [`Lock::acquire`]; `lost` while the owner still has a guard of a lost lease; `unsupported` for another mode than the
    /// owner's, for permits, and for acknowledgements that the owner's lease does not have.
    pub async fn acquire(mut self) -> Result<ReentrantGuard> {
        let (slot, clock) = (self.check()?, self.lock.core.clock.clone());
        if let Some(guard) = slot.join(&self.lock)? {
            return Ok(guard);
        }
        let began = clock.now();
        let until = began + self.lock.request.wait;
        let Some(_asking) = clock.bounded(until, slot.asking.lock()).await else {
            let (name, waited) = (self.lock.checked()?, clock.now().since(began));
            return Err(Error::TimedOut { name, waited, attempts: 0, holder: None });
        };
        if let Some(guard) = slot.join(&self.lock)? {
            return Ok(guard);
        }
        self.lock.request.wait = until.since(clock.now());
        let acks = self.lock.request.acks;
        let guard = Box::pin(self.lock.acquire()).await?;
        Ok(slot.clone().enter(guard, acks))
    }

    /// Joins the lease that the owner has, or asks once. While another task of the owner asks, the lock is busy.
    ///
    /// # Cancel safety
    /// As [`Lock::try_acquire`].
    ///
    /// # Errors
    /// As [`ReentrantLock::acquire`], except that a held lock is [`Attempt::Busy`] and not an error.
    pub async fn try_acquire(self) -> Result<Attempt<ReentrantGuard>> {
        let slot = self.check()?;
        if let Some(guard) = slot.join(&self.lock)? {
            return Ok(Attempt::Held(guard));
        }
        let Ok(_asking) = slot.asking.try_lock() else {
            let retry_after = self.lock.request.retry.pause(0, self.lock.core.entropy.fraction());
            return Ok(Attempt::Busy { holder: None, retry_after });
        };
        if let Some(guard) = slot.join(&self.lock)? {
            return Ok(Attempt::Held(guard));
        }
        let acks = self.lock.request.acks;
        Ok(match Box::pin(self.lock.try_acquire()).await? {
            Attempt::Held(guard) => Attempt::Held(slot.clone().enter(guard, acks)),
            Attempt::Busy { holder, retry_after } => Attempt::Busy { holder, retry_after },
        })
    }

    /// Runs `body` while holding the lock, as [`Lock::run`] does.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and this guard of the lock.
    ///
    /// # Errors
    /// As [`Lock::run`].
    pub async fn run<T>(self, body: impl AsyncFnOnce(Lease) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire_for_run().await.map_err(RunError::NotRun)?;
        let ended = until_lost(&guard.entered.guard.lease, body).await;
        guard.settle(ended).await
    }

    /// [`ReentrantLock::acquire`], kept alive unless [`ReentrantLock::without_keep_alive`].
    ///
    /// # Errors
    /// As [`ReentrantLock::acquire`].
    pub async fn acquire_for_run(mut self) -> Result<ReentrantGuard> {
        self.lock.request.keep_alive.get_or_insert(true);
        self.acquire().await
    }

    fn check(&self) -> Result<Arc<Slot>> {
        let name = self.lock.checked()?;
        if let Mode::Permits { .. } = self.lock.request.mode() {
            let why = "permits are counted; acquire as many as are needed at once";
            return Err(Error::unsupported(format!("re-entering the semaphore \"{name}\""), why));
        }
        Ok(self.owner.slot(&name))
    }
}

impl IntoFuture for ReentrantLock {
    type Output = Result<ReentrantGuard>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// A lock that its owner has, perhaps by several guards at once. The lock is given back when the last of them is released or
/// dropped.
///
/// It cannot be detached, downgraded or upgraded: other code relies on the lease as it is.
#[must_use = "the lock is given back when the last guard of its owner is dropped"]
pub struct ReentrantGuard {
    entered: Arc<Entered>,
}

impl ReentrantGuard {
    lease_methods! { |guard| &guard.entered.guard.lease }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.entered.guard.mode()
    }

    /// Gives the lock back if this is the last guard of its owner, and returns what had become of it.
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`]; never while the owner has other guards.
    pub async fn release(self) -> Result<ReentrantRelease> {
        let is_held = self.is_held();
        match Arc::into_inner(self.entered) {
            Some(last) => Ok(ReentrantRelease::Released(last.guard.release().await?)),
            None if is_held => Ok(ReentrantRelease::StillHeld),
            None => Ok(ReentrantRelease::Lost),
        }
    }

    /// Gives the lock back after a body that ended or was cancelled: see [`settle`](super::settle).
    ///
    /// # Errors
    /// [`RunError::Lost`] when the lease had ended by then.
    pub async fn settle<T>(self, ended: Option<std::thread::Result<T>>) -> Result<T, RunError<T>> {
        let lease = self.lease();
        let held_to_the_end = lease.is_held();
        if !self.entered.guard.keeps_delay() {
            let _logged = self.release().await;
        }
        conclude(&lease, held_to_the_end, ended)
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entered.guard.fmt(f)
    }
}

/// How the release of a [`ReentrantGuard`] ended.
#[must_use = "a lock that was lost did not protect the work to its end"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReentrantRelease {
    /// Other guards of the owner hold the lock.
    StillHeld,
    /// The lease was lost. Other guards of the owner are still there, and the last one learns what became of the lock.
    Lost,
    /// It was the last guard.
    Released(Released),
}

impl ReentrantRelease {
    /// Whether the lock was ours until this guard was released. If not, somebody else may have worked at the same time.
    pub const fn was_held(self) -> bool {
        match self {
            Self::StillHeld => true,
            Self::Lost => false,
            Self::Released(released) => released.was_held(),
        }
    }
}
