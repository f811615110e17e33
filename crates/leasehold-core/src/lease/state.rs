//! What is true of one lease: until when it is valid, and whether it was lost. Lost is final.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{Terms, validity};
use crate::{
    clock::{BootInstant, Clock},
    core::Core,
    engine::{Grant, Hold},
    telemetry::{Count, Event, Telemetry},
};

pub(crate) struct LeaseState {
    pub(crate) hold: Hold,
    pub(crate) acks: u8,
    pub(crate) acquired_at: BootInstant,
    kept_alive: AtomicBool,
    /// Renewals never carry a lease beyond this.
    pub(super) lifetime_end: BootInstant,
    standing: Standing,
    /// Those that it is held with.
    pub(super) bond: Option<Arc<Bond>>,
    lost: Notify,
    clock: Clock,
    /// Where it is counted.
    pub(crate) telemetry: Arc<Telemetry>,
}

/// Leases that are held together: the first that is lost ends them all.
#[derive(Default)]
pub(crate) struct Bond {
    members: Mutex<Vec<Weak<LeaseState>>>,
    /// The one that was lost first.
    first: OnceLock<Weak<LeaseState>>,
}

impl Bond {
    pub(super) fn add(&self, member: &Arc<LeaseState>) {
        self.members().push(Arc::downgrade(member));
        if self.first.get().is_some() {
            member.lose_alone();
        }
    }

    /// The one that was lost first, if any was.
    pub(super) fn first_lost(&self) -> Option<Arc<LeaseState>> {
        self.first.get().and_then(Weak::upgrade)
    }

    fn is_first_lost(&self, lost: &LeaseState) {
        if let Some(lost) = self.members().iter().find(|member| std::ptr::eq(member.as_ptr(), lost)) {
            let _later = self.first.set(lost.clone());
        }
    }

    fn lose_all(&self) {
        let members = self.members().clone();
        for member in members.iter().filter_map(Weak::upgrade) {
            member.lose_alone();
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Weak<LeaseState>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until when a lease is valid, in nanoseconds, or [`ENDED`] or [`LOST`], which it never leaves again. One number, so that
/// there are no two truths.
struct Standing(AtomicU64);

/// Its end was sent, or is about to be.
const ENDED: u64 = 0;
const LOST: u64 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held { valid_until: BootInstant },
    Ended,
    Lost,
}

impl Standing {
    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            ENDED => Phase::Ended,
            LOST => Phase::Lost,
            nanos => Phase::Held { valid_until: BootInstant::from_nanos(nanos) },
        }
    }

    /// Goes on as `next` says, unless the lease is not held any more; returns whether it was.
    fn change(&self, next: impl Fn(u64) -> u64) -> bool {
        let held = |now: u64| (now > LOST).then(|| next(now));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, held).is_ok()
    }
}

impl LeaseState {
    pub(crate) fn new(
        core: &Core,
        hold: Hold,
        grant: &Grant,
        terms: Terms,
        acquired_at: BootInstant,
    ) -> Self {
        let lifetime_end = acquired_at + terms.max_lifetime.unwrap_or(Duration::MAX);
        let valid_until = validity::valid_until(grant.since, grant.ttl).min(lifetime_end);
        let standing = Standing(AtomicU64::new(valid_until.as_nanos()));
        let (acks, kept_alive, lost) = (grant.acks, AtomicBool::new(terms.keep_alive), Notify::new());
        let (clock, telemetry, bond) = (core.clock.clone(), terms.telemetry, terms.bond);
        Self { hold, acks, acquired_at, kept_alive, lifetime_end, standing, bond, lost, clock, telemetry }
    }

    /// Whether it is renewed until its end.
    pub(crate) fn is_kept_alive(&self) -> bool {
        self.kept_alive.load(Ordering::Acquire)
    }

    /// From here on it is. Returns whether it was not before.
    pub(super) fn set_kept_alive(&self) -> bool {
        !self.kept_alive.swap(true, Ordering::AcqRel)
    }

    /// Until when the lease is valid and when it counts as lost at the latest; `None` if it is not held any more.
    fn held_until(&self) -> Option<(BootInstant, BootInstant)> {
        match self.standing.phase() {
            Phase::Held { valid_until } => Some((valid_until, valid_until - validity::margin(self.hold.ttl))),
            Phase::Ended | Phase::Lost => None,
        }
    }

    /// When the lease counts as lost at the latest; long ago if it is not held any more.
    pub(crate) fn lost_at(&self) -> BootInstant {
        self.held_until().map_or(BootInstant::from_nanos(0), |(_, lost_at)| lost_at)
    }

    /// Zero from the moment at which [`is_held`](Self::is_held) says no.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.clock.now();
        let held = self.held_until().filter(|(_, lost_at)| *lost_at > now);
        held.map_or(Duration::ZERO, |(valid_until, _)| valid_until.since(now))
    }

    /// The truth now, whatever the keeper's task has come to so far.
    pub(crate) fn is_held(&self) -> bool {
        let Some((_, lost_at)) = self.held_until() else { return false };
        let is_over = lost_at <= self.clock.now();
        if is_over {
            self.lose();
        }
        !is_over
    }

    /// Keeps its own time besides the keeper: the client may be closed, or its runtime gone.
    pub(crate) async fn lost(&self) {
        loop {
            // Before the phase is read, so that no change of it is missed.
            let changed = self.lost.notified();
            match self.standing.phase() {
                Phase::Lost => return,
                Phase::Ended => std::future::pending().await,
                Phase::Held { .. } if self.is_held() => {
                    self.clock.bounded(self.lost_at(), changed).await;
                }
                Phase::Held { .. } => {}
            }
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.standing.phase() == Phase::Lost
    }

    /// A renewal succeeded. It revives nothing: a lease that was lost stays lost.
    pub(crate) fn extend(&self, since: BootInstant) {
        let until = validity::valid_until(since, self.hold.ttl).min(self.lifetime_end);
        self.standing.change(|valid_until| valid_until.max(until.as_nanos()));
    }

    /// The lease can no longer be trusted, nor those that it is held with.
    pub(crate) fn lose(&self) {
        let Some(bond) = &self.bond else {
            self.lose_alone();
            return;
        };
        // Before anybody can learn of the loss.
        if let Phase::Held { .. } = self.standing.phase() {
            bond.is_first_lost(self);
        }
        if self.lose_alone() {
            bond.lose_all();
        }
    }

    /// Returns whether it was held until now.
    fn lose_alone(&self) -> bool {
        if !self.standing.change(|_| LOST) {
            return false;
        }
        let (name, fence) = (&self.hold.name, self.hold.fence);
        let held = self.clock.now().since(self.acquired_at);
        self.telemetry.count(Count::lost);
        self.telemetry.held_for(held);
        tracing::warn!(%name, %fence, ?held, "lost the lock");
        self.telemetry.emit(|| Event::Lost { name: name.clone(), fence, mode: self.hold.mode });
        self.lost.notify_waiters();
        true
    }

    /// The holder is done. Returns whether it held until now.
    pub(crate) fn end(&self) -> bool {
        self.is_held() && self.standing.change(|_| ENDED)
    }
}
