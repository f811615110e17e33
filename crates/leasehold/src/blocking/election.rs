//! Elections.

use std::time::Duration;

use super::lock::{Lease, lease_methods};
use super::mirror::{for_waiting, mirror, wait};
use crate::election::{self, Observed, Yielded};
use crate::{Acks, Holder, Result, Retry, RunError, engine::Released, lock::Waited};

mirror! {
    /// Builder of a candidacy, or of an observer, without `async`; see [`crate::Election`].
    #[derive(Clone)]
    #[must_use = "an election does nothing until somebody campaigns or observes"]
    pub struct Election(crate::Election) {
        set ttl(ttl: Duration);
        set wait(wait: Duration);
        set retry(retry: Retry);
        set label(label: impl Into<String>);
        set version(version: impl Into<String>);
        set priority(priority: i32);
        set lock_delay(delay: Duration);
        set acks(acks: impl Into<Acks>);
        set max_lifetime(most: Duration);
        set on_wait(progress: impl Fn(&Waited<'_>) + Send + Sync + 'static);
        set poll_every(every: Duration);
        end campaign() -> Leadership => Leadership::new;
        wait candidates() -> Vec<Holder>;
    }
}

impl Election {
    /// Waits to become the leader and runs `body` for one term. Nothing can cancel the body: a long one asks
    /// [`Leadership::is_held`] and [`Leadership::is_resigning`] before each step. The lead is given back when it has ended,
    /// also by a panic.
    ///
    /// # Errors
    /// [`RunError::Lost`], with the body's value, when the lease ended before the body did; [`RunError::NotRun`] when it did
    /// not become the leader, or in async code.
    pub fn lead<T>(self, body: impl FnOnce(Leadership) -> T) -> Result<T, RunError<T>> {
        let runtime = for_waiting().map_err(RunError::NotRun)?;
        let leadership = runtime.block_on(self.inner.campaign()).map_err(RunError::NotRun)?;
        // Outside of the runtime, so that the body may make blocking calls of its own.
        let ended = leadership.run_blocking(|| body(Leadership::new(leadership.clone())));
        runtime.block_on(leadership.settle(Some(ended)))
    }

    /// As [`crate::Election::observe`]; `unsupported` in async code.
    pub fn observe(&self) -> Result<Leaders> {
        for_waiting()?;
        Ok(Leaders { inner: self.inner.observe()? })
    }
}

/// Who leads: first the present, then every change that is seen. `next` waits for it.
#[derive(Debug)]
#[must_use = "an observer asks nobody until it is iterated"]
pub struct Leaders {
    inner: election::Leaders,
}

/// Ends when the client is closed, and in async code, where waiting would stop all tasks of the thread.
impl Iterator for Leaders {
    type Item = Observed;

    fn next(&mut self) -> Option<Observed> {
        wait(self.inner.next()).ok()?
    }
}

/// The lead of an election, kept alive until it is given back or lost; see [`crate::Leadership`].
#[derive(Clone, Debug)]
#[must_use = "the lead is given back when the leadership is dropped"]
pub struct Leadership {
    lease: Lease,
    inner: crate::Leadership,
}

impl Leadership {
    fn new(inner: crate::Leadership) -> Self {
        Self { lease: Lease::new(inner.lease()), inner }
    }

    mirror! { crate::Leadership:
        get is_resigning() -> bool;
        wait resign() -> Released;
        wait yield_to(candidate: &Holder) -> Yielded;
        wait prefer(is_preferred: impl Fn(&Holder) -> bool) -> Yielded;
        wait prefer_highest() -> Yielded;
    }

    lease_methods! {}
}
