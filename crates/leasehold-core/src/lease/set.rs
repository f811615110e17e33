//! Several locks that are held together.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::{join_all, select_all};

use super::{Guard, Lease, state::Bond};
use crate::{
    engine::Released,
    error::Result,
    fence::Fence,
    lock::{RunError, conclude},
    name::Name,
};

/// The leases of a [`GuardSet`], as its holder sees them. Cheap to clone; it cannot give anything back.
#[derive(Clone)]
pub struct LeaseSet {
    leases: Arc<[Lease]>,
    bond: Arc<Bond>,
}

impl LeaseSet {
    /// Each lease, in the order of the names.
    pub fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// Each name with its fence, in the order of the names: give each fence to what its lock protects.
    pub fn fences(&self) -> Vec<(Name, Fence)> {
        self.leases.iter().map(|lease| (lease.name().clone(), lease.fence())).collect()
    }

    /// The fence of the lock of that name, if it is one of them.
    pub fn fence_of(&self, name: &str) -> Option<Fence> {
        self.leases.iter().find(|lease| lease.name().as_str() == name).map(Lease::fence)
    }

    /// How long all of them can still be trusted; zero once one cannot.
    pub fn remaining(&self) -> Duration {
        self.leases.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Whether all of them can be trusted at this moment. Once `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.leases.iter().all(Lease::is_held)
    }

    /// Completes when the first of them can no longer be trusted. All are lost then: none is renewed any more, and
    /// `lost()` of each lease completes. Never completes after they were given back.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn lost(&self) {
        select_all(self.leases.iter().map(|lease| Box::pin(lease.lost()))).await;
    }

    /// The lease that was lost first, if any was.
    pub fn first_lost(&self) -> Option<&Lease> {
        let first = self.bond.first_lost()?;
        self.leases.iter().find(|lease| Arc::ptr_eq(&lease.state, &first))
    }
}

impl fmt::Debug for LeaseSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&*self.leases).finish()
    }
}

/// Several locks that are yours until you release them, drop them, or lose one of them.
///
/// The first loss ends them all: none is renewed any more and [`GuardSet::is_held`] is false. The others stay closed until
/// this guard is released or dropped, because your work may still be under way, or until their ttl is over.
#[must_use = "the locks are given back when the guard is dropped"]
pub struct GuardSet {
    guards: Vec<Guard>,
    leases: LeaseSet,
}

impl GuardSet {
    /// Makes guards that are bonded, in the order of their names, one.
    pub(crate) fn new(guards: Vec<Guard>, bond: Arc<Bond>) -> Self {
        let leases = guards.iter().map(Guard::lease).collect();
        Self { guards, leases: LeaseSet { leases, bond } }
    }

    /// The leases as a value that can be cloned into tasks. It cannot give anything back.
    pub fn lease_set(&self) -> LeaseSet {
        self.leases.clone()
    }

    /// As [`LeaseSet::fences`].
    pub fn fences(&self) -> Vec<(Name, Fence)> {
        self.leases.fences()
    }

    /// As [`LeaseSet::fence_of`].
    pub fn fence_of(&self, name: &str) -> Option<Fence> {
        self.leases.fence_of(name)
    }

    /// As [`LeaseSet::remaining`].
    pub fn remaining(&self) -> Duration {
        self.leases.remaining()
    }

    /// As [`LeaseSet::is_held`].
    pub fn is_held(&self) -> bool {
        self.leases.is_held()
    }

    /// As [`LeaseSet::lost`].
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn lost(&self) {
        self.leases.lost().await;
    }

    /// Gives all locks back, and returns what had become of each. One that fails keeps no other from being given back; it is
    /// repeated in the background.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still gives the locks back, in the background.
    pub async fn release(self) -> ReleasedSet {
        let names: Vec<_> = self.guards.iter().map(|guard| guard.name().clone()).collect();
        let mut outcomes = give_back(self.guards).await;
        outcomes.reverse();
        ReleasedSet { outcomes: names.into_iter().zip(outcomes).collect() }
    }

    /// Gives all locks back after a body that ended or was cancelled: see [`settle`](crate::lock::settle).
    ///
    /// # Errors
    /// [`RunError::Lost`] when one of them was lost by then.
    pub async fn settle<T>(self, ended: Option<std::thread::Result<T>>) -> Result<T, RunError<T>> {
        let Self { guards, leases } = self;
        let held_to_the_end = leases.is_held();
        // Lost locks with a lock-delay are left to their delay; a release that fails is logged.
        let (left, released): (Vec<_>, Vec<_>) = guards.into_iter().partition(Guard::keeps_delay);
        drop(left);
        give_back(released).await;
        let named = leases.first_lost().unwrap_or(&leases.leases[0]);
        conclude(named, held_to_the_end, ended)
    }
}

/// The last name first: whoever waits for several waits for the first of them, and then finds the others free.
pub(crate) async fn give_back(guards: Vec<Guard>) -> Vec<Result<Released>> {
    join_all(guards.into_iter().rev().map(Guard::release)).await
}

impl fmt::Debug for GuardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leases.fmt(f)
    }
}

/// How the release of a [`GuardSet`] ended.
#[must_use = "a lock that expired or was taken did not protect the work to its end"]
#[derive(Debug)]
#[non_exhaustive]
pub struct ReleasedSet {
    /// Each name with its outcome, in the order of the names. An error means that the outcome is unknown: the store did not
    /// answer.
    pub outcomes: Vec<(Name, Result<Released>)>,
}

impl ReleasedSet {
    /// Whether all locks are known to have been ours until they were released.
    pub fn was_held(&self) -> bool {
        self.outcomes.iter().all(|(_, outcome)| outcome.as_ref().is_ok_and(|outcome| outcome.was_held()))
    }
}
