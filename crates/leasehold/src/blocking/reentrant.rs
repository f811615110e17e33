//! Owners that acquire a lock again while they hold it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::lock::{Lease, Lock, lease_methods};
use super::mirror::{for_waiting, mirror, wait};
use crate::lock::{self, ReentrantRelease, Waited};
use crate::{Acks, Mode, Result, Retry, RunError};

mirror! {
    /// An owner of locks, without `async`; see [`crate::LockOwner`]. Clones are the same owner.
    #[derive(Clone, Debug)]
    #[must_use = "an owner holds nothing until it acquires a lock"]
    pub struct LockOwner(crate::LockOwner) {
        get lock(name: impl AsRef<str>) -> ReentrantLock => ReentrantLock::new;
        get read_lock(name: impl AsRef<str>) -> ReentrantLock => ReentrantLock::new;
    }
}

impl LockOwner {
    /// As [`crate::LockOwner::own`].
    pub fn own(&self, lock: Lock) -> ReentrantLock {
        ReentrantLock::new(self.inner.own(lock.into_inner()))
    }
}

mirror! {
    /// Builder of a lock of a [`LockOwner`], without `async`; see [`crate::ReentrantLock`].
    #[derive(Clone)]
    #[must_use = "a lock does nothing until it is acquired"]
    pub struct ReentrantLock(crate::ReentrantLock) {
        set ttl(ttl: Duration);
        set wait(wait: Duration);
        set wait_forever();
        set max_attempts(most: u32);
        set retry(retry: Retry);
        set keep_alive();
        set without_keep_alive();
        set label(label: impl Into<String>);
        set lock_delay(delay: Duration);
        set acks(acks: impl Into<Acks>);
        set max_lifetime(most: Duration);
        set on_wait(progress: impl Fn(&Waited<'_>) + Send + Sync + 'static);
        end acquire() -> ReentrantGuard => ReentrantGuard::new;
        end try_acquire() -> lock::Attempt<ReentrantGuard> => attempt;
    }
}

impl ReentrantLock {
    /// Runs `body` while holding the lock, as [`Lock::run`] does.
    ///
    /// # Errors
    /// As [`Lock::run`].
    pub fn run<T>(self, body: impl FnOnce(Lease) -> T) -> Result<T, RunError<T>> {
        let runtime = for_waiting().map_err(RunError::NotRun)?;
        let guard = runtime.block_on(self.inner.acquire_for_run()).map_err(RunError::NotRun)?;
        // Outside of the runtime, so that the body may make blocking calls of its own.
        let ended = catch_unwind(AssertUnwindSafe(|| body(Lease::new(guard.lease()))));
        runtime.block_on(guard.settle(Some(ended)))
    }
}

fn attempt(attempt: lock::Attempt<crate::ReentrantGuard>) -> lock::Attempt<ReentrantGuard> {
    match attempt {
        lock::Attempt::Held(guard) => lock::Attempt::Held(ReentrantGuard::new(guard)),
        lock::Attempt::Busy { holder, retry_after } => lock::Attempt::Busy { holder, retry_after },
    }
}

/// A lock that its owner has, perhaps by several guards at once; see [`crate::ReentrantGuard`].
#[derive(Debug)]
#[must_use = "the lock is given back when the last guard of its owner is dropped"]
pub struct ReentrantGuard {
    lease: Lease,
    inner: crate::ReentrantGuard,
}

impl ReentrantGuard {
    fn new(inner: crate::ReentrantGuard) -> Self {
        Self { lease: Lease::new(inner.lease()), inner }
    }

    mirror! { crate::ReentrantGuard:
        #[doc = "In async code the guard is dropped."]
        end release() -> ReentrantRelease;
        get mode() -> Mode;
    }

    lease_methods! {}
}
