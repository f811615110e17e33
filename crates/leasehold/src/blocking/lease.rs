//! What a holder has.

use std::{fmt, ops::Deref, time::Duration};

use super::runtime::wait;
use crate::{engine::Released, error::Result, fence::Fence, lease, name::Name};

/// A lease that is held, without `async`; see [`crate::Lease`]. Cheap to clone; it cannot give the lock back.
#[derive(Clone)]
pub struct Lease {
    inner: lease::Lease,
}

impl Lease {
    pub(super) fn new(inner: lease::Lease) -> Self {
        Self { inner }
    }

    /// What is held.
    pub fn name(&self) -> &Name {
        self.inner.name()
    }

    /// The fencing token: give it to whatever you write to.
    pub fn fence(&self) -> Fence {
        self.inner.fence()
    }

    /// How many replicas had the lock when it was acquired; zero unless [`acks`](super::Lock::acks) asked for some.
    pub fn acks(&self) -> u8 {
        self.inner.acks()
    }

    /// How long the lease can still be trusted; zero once it was lost or given back.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the lease can be trusted at this moment. Once `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// Waits until the lease is lost, but no longer than `timeout`, and answers whether it is.
    ///
    /// # Errors
    /// `unsupported` in async code.
    pub fn wait_lost(&self, timeout: Duration) -> Result<bool> {
        let clock = &self.inner.core.clock;
        let lost = wait(clock.bounded(clock.now() + timeout, self.inner.lost()))?;
        Ok(lost.is_some())
    }

    /// Extends the lease by its ttl from now.
    ///
    /// # Errors
    /// As [`crate::Lease::extend`]; also `unsupported` in async code.
    pub fn extend(&self) -> Result<()> {
        wait(self.inner.extend())?
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A lock that is yours until you release it, drop it, or lose it; see [`crate::Guard`].
///
/// Dropping it gives it back in the background, also in async code; if the program ends first, the lock stays closed
/// until its ttl is over.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct Guard {
    lease: Lease,
    inner: lease::Guard,
}

impl Guard {
    pub(super) fn new(inner: lease::Guard) -> Self {
        Self { lease: Lease::new(inner.lease()), inner }
    }

    /// Gives the lock back, and tells what had become of it.
    ///
    /// # Errors
    /// As [`crate::Guard::release`]. In async code `unsupported`; the lock is then given back in the background.
    pub fn release(self) -> Result<Released> {
        wait(self.inner.release())?
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
