//! The exclusive lock.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use super::{
    lease::{Guard, Lease},
    runtime::{for_waiting, wait},
};
use crate::{
    engine::Acks,
    error::Result,
    lock::{self, OnOutage, Retry, RunError, Waited},
};

/// Builder of an exclusive lock, without `async`; see [`crate::Lock`].
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    inner: lock::Lock,
}

/// The builder's methods are those of the async one, under the same names.
macro_rules! same_as_async {
    ($($method:ident($($argument:ident: $type:ty)?);)+) => {$(
        #[doc = concat!("As [`", stringify!($method), "`](crate::Lock::", stringify!($method), ").")]
        pub fn $method(self $(, $argument: $type)?) -> Self {
            Self { inner: self.inner.$method($($argument)?) }
        }
    )+};
}

impl Lock {
    pub(super) fn new(inner: lock::Lock) -> Self {
        Self { inner }
    }

    same_as_async! {
        ttl(ttl: Duration);
        wait(wait: Duration);
        wait_forever();
        max_attempts(most: u32);
        retry(retry: Retry);
        keep_alive();
        fixed();
        label(label: impl Into<String>);
        lock_delay(delay: Duration);
        acks(acks: impl Into<Acks>);
        max_lifetime(most: Duration);
        hold_at_least(least: Duration);
        on_outage(what: OnOutage);
        on_wait(progress: impl Fn(&Waited<'_>) + Send + Sync + 'static);
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire`]; also `unsupported` in async code.
    pub fn acquire(self) -> Result<Guard> {
        wait(self.inner.acquire())?.map(Guard::new)
    }

    /// Asks once and does not wait.
    ///
    /// # Errors
    /// As [`crate::Lock::try_acquire`]; also `unsupported` in async code.
    pub fn try_acquire(self) -> Result<Attempt> {
        Ok(match wait(self.inner.try_acquire())?? {
            lock::Attempt::Held(guard) => Attempt::Held(Guard::new(guard)),
            lock::Attempt::Busy { holder, retry_after } => Attempt::Busy { holder, retry_after },
        })
    }

    /// Waits for the lock; when the store is out of reach and [`OnOutage::Proceed`] was chosen, goes on without it.
    ///
    /// # Errors
    /// As [`crate::Lock::acquire_or_proceed`]; also `unsupported` in async code.
    pub fn acquire_or_proceed(self) -> Result<Protection> {
        Ok(match wait(self.inner.acquire_or_proceed())?? {
            lock::Protection::Held(guard) => Protection::Held(Guard::new(guard)),
            lock::Protection::Unprotected { cause } => Protection::Unprotected { cause },
        })
    }

    /// Runs `body` while holding the lock, kept alive unless [`Lock::fixed`]. Nothing can cancel the body: a long one
    /// asks [`Lease::is_held`] before each step. The lock is always given back, also when the body panics.
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
