//! The exclusive lock, and what its holder has.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ops::Deref, time::Duration};

use leasehold_core::lock;

use super::mirror::{for_waiting, mirror, wait};
use crate::{Acks, Fence, Name, OnOutage, Result, Retry, RunError, Waited, engine::Released};

mirror! {
    /// Builder of an exclusive lock, without `async`; see [`crate::Lock`].
    #[derive(Clone)]
    #[must_use = "a lock does nothing until it is acquired"]
    pub struct Lock(crate::Lock) {
        set ttl(ttl: Duration);
        set wait(wait: Duration);
        set wait_forever();
        set max_attempts(most: u32);
        set retry(retry: Retry);
        set keep_alive();
        set fixed();
        set label(label: impl Into<String>);
        set lock_delay(delay: Duration);
        set acks(acks: impl Into<Acks>);
        set max_lifetime(most: Duration);
        set hold_at_least(least: Duration);
        set on_outage(what: OnOutage);
        set on_wait(progress: impl Fn(&Waited<'_>) + Send + Sync + 'static);
        end acquire() -> Guard => Guard::new;
        end try_acquire() -> Attempt => attempt;
        end acquire_or_proceed() -> Protection => protection;
    }
}

impl Lock {
    /// Runs `body` while holding the lock, kept alive unless [`Lock::fixed`]. Nothing can cancel the body: a long one
    /// asks [`Lease::is_held`] before each step. The lock is always released, also when the body panics.
    ///
    /// # Errors
    /// [`RunError::Lost`], with the body's value, when the lease ended before the body did; [`RunError::NotRun`] when
    /// the lock was not acquired, or in async code.
    pub fn run<T>(self, body: impl FnOnce(Lease) -> T) -> Result<T, RunError<T>> {
        let runtime = for_waiting().map_err(RunError::NotRun)?;
        let guard = runtime.block_on(self.inner.acquire_for_run()).map_err(RunError::NotRun)?;
        // Outside of the runtime, so that the body may make blocking calls of its own.
        let ended = catch_unwind(AssertUnwindSafe(|| body(Lease::new(guard.lease()))));
        runtime.block_on(lock::settle(guard, Some(ended)))
    }
}

/// The result of asking once for a lock.
pub type Attempt = lock::Attempt<Guard>;

/// The result of [`Lock::acquire_or_proceed`].
pub type Protection = lock::Protection<Guard>;

fn attempt(attempt: lock::Attempt) -> Attempt {
    match attempt {
        lock::Attempt::Held(guard) => Attempt::Held(Guard::new(guard)),
        lock::Attempt::Busy { holder, retry_after } => Attempt::Busy { holder, retry_after },
    }
}

fn protection(protection: lock::Protection) -> Protection {
    match protection {
        lock::Protection::Held(guard) => Protection::Held(Guard::new(guard)),
        lock::Protection::Unprotected { cause } => Protection::Unprotected { cause },
    }
}

mirror! {
    /// A lease that is held, without `async`; see [`crate::Lease`]. Cheap to clone; it cannot release the lock.
    #[derive(Clone, Debug)]
    pub struct Lease(crate::Lease) {
        get name() -> &Name;
        get fence() -> Fence;
        get acks() -> u8;
        get remaining() -> Duration;
        get is_held() -> bool;
        wait extend() -> ();
    }
}

impl Lease {
    /// Waits until the lease is lost, but no longer than `timeout`, and returns whether it is; `unsupported` in async code.
    pub fn wait_lost(&self, timeout: Duration) -> Result<bool> {
        wait(self.inner.lost_within(timeout))
    }
}

/// A lock that is yours until you release it, drop it, or lose it; see [`crate::Guard`].
///
/// Dropping it releases the lock in the background, also in async code; if the program ends first, the lock stays closed
/// until its ttl is over.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    lease: Lease,
    inner: crate::Guard,
}

impl Guard {
    fn new(inner: crate::Guard) -> Self {
        Self { lease: Lease::new(inner.lease()), inner }
    }

    mirror! { crate::Guard:
        #[doc = "In async code the lock is released in the background."]
        end release() -> Released;
    }

    /// The lease as a value that can be cloned into threads.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }
}

impl Deref for Guard {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        &self.lease
    }
}
