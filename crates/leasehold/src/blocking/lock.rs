//! Locks, and what a holder has.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use leasehold_core::{lease, lock};

use super::mirror::{for_waiting, mirror, wait};
use crate::{
    Acks, Fence, Format, Mode, Name, OnOutage, Result, Retry, RunError, engine::Released, lock::Waited,
};

mirror! {
    /// Builder of a lock, without `async`; see [`crate::Lock`].
    #[derive(Clone)]
    #[must_use = "a lock does nothing until it is acquired"]
    pub struct Lock(crate::Lock) {
        set permits(permits: u32);
        set mode(mode: Mode);
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
        set format(format: Format);
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
    pub(super) fn into_inner(self) -> crate::Lock {
        self.inner
    }

    /// Runs `body` while holding the lock, kept alive unless [`Lock::without_keep_alive`]. Nothing can cancel the body: a long one
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

/// What asking for an upgrade led to.
pub type Upgrade = lease::Upgrade<Guard>;

fn upgrade(upgrade: lease::Upgrade) -> Upgrade {
    match upgrade {
        lease::Upgrade::Done(guard) => Upgrade::Done(Guard::new(guard)),
        lease::Upgrade::Busy(guard) => Upgrade::Busy(Guard::new(guard)),
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

/// What every holder can ask of its field `lease`, as methods of its own.
macro_rules! lease_methods {
    () => {
        /// The lease as a value that can be cloned into threads. It cannot release anything.
        pub fn lease(&self) -> $crate::blocking::Lease {
            self.lease.clone()
        }

        /// As [`Lease::name`](crate::Lease::name).
        pub fn name(&self) -> &$crate::Name {
            self.lease.name()
        }

        /// As [`Lease::fence`](crate::Lease::fence).
        pub fn fence(&self) -> $crate::Fence {
            self.lease.fence()
        }

        /// As [`Lease::acks`](crate::Lease::acks).
        pub fn acks(&self) -> u8 {
            self.lease.acks()
        }

        /// As [`Lease::remaining`](crate::Lease::remaining).
        pub fn remaining(&self) -> std::time::Duration {
            self.lease.remaining()
        }

        /// As [`Lease::is_held`](crate::Lease::is_held).
        pub fn is_held(&self) -> bool {
            self.lease.is_held()
        }

        /// As [`Lease::extend`](crate::Lease::extend); `unsupported` in async code.
        pub fn extend(&self) -> $crate::Result<()> {
            self.lease.extend()
        }

        /// As [`Lease::wait_lost`](crate::blocking::Lease::wait_lost).
        pub fn wait_lost(&self, timeout: std::time::Duration) -> $crate::Result<bool> {
            self.lease.wait_lost(timeout)
        }
    };
}

pub(super) use lease_methods;

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
        get mode() -> Mode;
        end downgrade() -> Guard => Guard::new;
        end try_upgrade() -> Upgrade => upgrade;
    }

    lease_methods! {}
}
