//! Several locks at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::lock::Lease;
use super::mirror::{for_waiting, mirror, wait};
use crate::{Fence, LeaseSet, Name, ReleasedSet, Result, RunError, lock};

mirror! {
    /// Builder of several locks at once, without `async`; see [`crate::LockSet`].
    #[derive(Clone)]
    #[must_use = "locks do nothing until they are acquired"]
    pub struct LockSet(crate::LockSet) {
        set wait(wait: Duration);
        set wait_forever();
        set ttl(ttl: Duration);
        set keep_alive();
        set without_keep_alive();
        end acquire() -> GuardSet => GuardSet::new;
        end try_acquire() -> lock::Attempt<GuardSet> => attempt;
    }
}

impl LockSet {
    /// Runs `body` while holding all locks, kept alive unless [`LockSet::without_keep_alive`]. Nothing can cancel the body: a
    /// long one asks [`LeaseSet::is_held`] before each step. The locks are always released, also when the body panics.
    ///
    /// # Errors
    /// [`RunError::Lost`], with the body's value, when one of them was lost before the body ended; [`RunError::NotRun`] when
    /// they were not acquired, or in async code.
    pub fn run<T>(self, body: impl FnOnce(LeaseSet) -> T) -> Result<T, RunError<T>> {
        let runtime = for_waiting().map_err(RunError::NotRun)?;
        let guards = runtime.block_on(self.inner.acquire_for_run()).map_err(RunError::NotRun)?;
        // Outside of the runtime, so that the body may make blocking calls of its own.
        let ended = catch_unwind(AssertUnwindSafe(|| body(guards.lease_set())));
        runtime.block_on(guards.settle(Some(ended)))
    }
}

fn attempt(attempt: lock::Attempt<crate::GuardSet>) -> lock::Attempt<GuardSet> {
    match attempt {
        lock::Attempt::Held(guards) => lock::Attempt::Held(GuardSet::new(guards)),
        lock::Attempt::Busy { holder, retry_after } => lock::Attempt::Busy { holder, retry_after },
    }
}

mirror! {
    /// Several locks that are yours until you release them, drop them, or lose one of them; see [`crate::GuardSet`].
    #[derive(Debug)]
    #[must_use = "the locks are released when the guard is dropped"]
    pub struct GuardSet(crate::GuardSet) {
        get lease_set() -> LeaseSet;
        get fences() -> Vec<(Name, Fence)>;
        get fence_of(name: &str) -> Option<Fence>;
        get remaining() -> Duration;
        get is_held() -> bool;
    }
}

impl GuardSet {
    /// Each lease, in the order of the names.
    pub fn leases(&self) -> Vec<Lease> {
        self.inner.lease_set().leases().iter().cloned().map(Lease::new).collect()
    }

    /// As [`crate::GuardSet::release`]; `unsupported` in async code, where the locks are released in the background.
    pub fn release(self) -> Result<ReleasedSet> {
        wait(self.inner.release())
    }
}
