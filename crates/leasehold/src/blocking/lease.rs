//! What a holder has.

use std::{fmt, ops::Deref, time::Duration};

use super::{mirror::mirror, runtime::wait};
use crate::{engine::Released, error::Result, fence::Fence, lease, name::Name};

/// A lease that is held, without `async`; see [`crate::Lease`]. Cheap to clone; it cannot release the lock.
#[derive(Clone)]
pub struct Lease {
    inner: lease::Lease,
}

impl Lease {
    pub(super) fn new(inner: lease::Lease) -> Self {
        Self { inner }
    }

    mirror! { "Lease"
        get name() -> &Name;
        get fence() -> Fence;
        get acks() -> u8;
        get remaining() -> Duration;
        get is_held() -> bool;
        wait extend() -> ();
    }

    /// Waits until the lease is lost, but no longer than `timeout`, and returns whether it is.
    ///
    /// # Errors
    /// `unsupported` in async code.
    pub fn wait_lost(&self, timeout: Duration) -> Result<bool> {
        wait(self.inner.lost_within(timeout))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
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
    inner: lease::Guard,
}

impl Guard {
    pub(super) fn new(inner: lease::Guard) -> Self {
        Self { lease: Lease::new(inner.lease()), inner }
    }

    mirror! { "Guard"
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
