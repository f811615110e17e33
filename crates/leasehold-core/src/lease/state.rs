//! What is true of one lease: until when it is valid, and whether it was lost. Lost is final.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
    pub(crate) kept_alive: bool,
    /// Renewals never carry a lease beyond this.
    lifetime_end: BootInstant,
    standing: Mutex<Standing>,
    lost: Notify,
    clock: Clock,
    telemetry: Arc<Telemetry>,
}

struct Standing {
    valid_until: BootInstant,
    ttl: Duration,
    phase: Phase,
}

impl Standing {
    fn lost_at(&self) -> BootInstant {
        self.valid_until - validity::margin(self.ttl)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// Its end was sent, or is about to be.
    Ended,
    Lost,
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
        let standing = Mutex::new(Standing { valid_until, ttl: grant.ttl, phase: Phase::Held });
        let (acks, kept_alive, lost) = (grant.acks, terms.keep_alive, Notify::new());
        let (clock, telemetry) = (core.clock.clone(), core.telemetry.clone());
        Self { hold, acks, acquired_at, kept_alive, lifetime_end, standing, lost, clock, telemetry }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self) -> (Phase, BootInstant) {
        let standing = self.standing();
        (standing.phase, standing.lost_at())
    }

    /// When the lease counts as lost at the latest.
    pub(crate) fn lost_at(&self) -> BootInstant {
        self.standing().lost_at()
    }

    /// Zero from the moment at which [`is_held`](Self::is_held) says no.
    pub(crate) fn remaining(&self) -> Duration {
        let (standing, now) = (self.standing(), self.clock.now());
        let is_held = standing.phase == Phase::Held && standing.lost_at() > now;
        if is_held { standing.valid_until.since(now) } else { Duration::ZERO }
    }

    /// The truth now, whatever the keeper's task has come to so far.
    pub(crate) fn is_held(&self) -> bool {
        let (phase, lost_at) = self.phase();
        if phase == Phase::Held && lost_at <= self.clock.now() {
            self.lose();
            return false;
        }
        phase == Phase::Held
    }

    /// Keeps its own time besides the keeper: the client may be closed, or its runtime gone.
    pub(crate) async fn lost(&self) {
        loop {
            // Before the phase is read, so that no change of it is missed.
            let changed = self.lost.notified();
            let (phase, lost_at) = self.phase();
            match phase {
                Phase::Lost => return,
                Phase::Ended => std::future::pending().await,
                Phase::Held if lost_at <= self.clock.now() => self.lose(),
                Phase::Held => drop(self.clock.bounded(lost_at, changed).await),
            }
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.standing().phase == Phase::Lost
    }

    /// A renewal succeeded. It revives nothing: a lease that was lost stays lost.
    pub(crate) fn extend(&self, since: BootInstant, ttl: Duration) {
        let mut standing = self.standing();
        let until = validity::valid_until(since, ttl).min(self.lifetime_end);
        if standing.phase == Phase::Held && until > standing.valid_until {
            standing.valid_until = until;
            standing.ttl = ttl;
        }
    }

    /// Leaves [`Phase::Held`] for another phase; false if it had left it before.
    fn leave(&self, phase: Phase) -> bool {
        let mut standing = self.standing();
        let held = standing.phase == Phase::Held;
        if held {
            standing.phase = phase;
        }
        held
    }

    /// The lease can no longer be trusted.
    pub(crate) fn lose(&self) {
        if !self.leave(Phase::Lost) {
            return;
        }
        let (name, fence) = (&self.hold.name, self.hold.fence);
        let held = self.clock.now().since(self.acquired_at);
        self.telemetry.count(Count::lost);
        self.telemetry.held_for(held);
        tracing::warn!(%name, %fence, ?held, "lost the lock");
        self.telemetry.emit(|| Event::Lost { name: name.clone(), fence });
        self.lost.notify_waiters();
    }

    /// The holder is done. Returns whether it held until now.
    pub(crate) fn end(&self) -> bool {
        self.is_held() && self.leave(Phase::Ended)
    }
}
