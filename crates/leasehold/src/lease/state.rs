//! What is true of one lease: until when it is valid, and whether it was lost. Lost is final.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::validity;
use crate::{
    clock::{BootInstant, Clock},
    engine::{Grant, Hold},
    fence::Fence,
    telemetry::{Count, Event, Telemetry},
};

pub(crate) struct LeaseState {
    hold: Hold,
    acks: u8,
    acquired_at: BootInstant,
    kept_alive: bool,
    /// Renewals never carry a lease beyond this.
    lifetime_end: Option<BootInstant>,
    standing: Mutex<Standing>,
    lost: CancellationToken,
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

pub(crate) struct NewLease {
    pub(crate) hold: Hold,
    pub(crate) grant: Grant,
    pub(crate) keep_alive: bool,
    pub(crate) max_lifetime: Option<Duration>,
}

impl LeaseState {
    pub(crate) fn new(new: NewLease, clock: Clock, telemetry: Arc<Telemetry>) -> Self {
        let acquired_at = clock.now();
        let lifetime_end = new.max_lifetime.map(|most| acquired_at + most);
        let valid_until = validity::valid_until(new.grant.since, new.grant.ttl);
        let standing = Standing {
            valid_until: capped(valid_until, lifetime_end),
            ttl: new.grant.ttl,
            phase: Phase::Held,
        };
        Self {
            hold: new.hold,
            acks: new.grant.acks,
            acquired_at,
            kept_alive: new.keep_alive,
            lifetime_end,
            standing: Mutex::new(standing),
            lost: CancellationToken::new(),
            clock,
            telemetry,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(crate) fn fence(&self) -> Fence {
        self.hold.fence
    }

    pub(crate) fn acks(&self) -> u8 {
        self.acks
    }

    pub(crate) fn acquired_at(&self) -> BootInstant {
        self.acquired_at
    }

    pub(crate) fn kept_alive(&self) -> bool {
        self.kept_alive
    }

    /// When the holder must be told, at the latest, that the lease is lost.
    pub(crate) fn lost_at(&self) -> BootInstant {
        self.standing().lost_at()
    }

    /// Zero from the moment at which [`is_held`](Self::is_held) says no.
    pub(crate) fn remaining(&self) -> Duration {
        let (standing, now) = (self.standing(), self.clock.now());
        match standing.phase {
            Phase::Held if standing.lost_at() > now => standing.valid_until.since(now),
            Phase::Held | Phase::Ended | Phase::Lost => Duration::ZERO,
        }
    }

    /// The truth now, whatever the keeper's task has come to so far.
    pub(crate) fn is_held(&self) -> bool {
        if self.lost_at() <= self.clock.now() {
            self.lose();
        }
        self.standing().phase == Phase::Held
    }

    /// Keeps its own time besides what the keeper tells: the client may be closed, or its runtime gone.
    pub(crate) async fn lost(&self) {
        while self.lost_at() > self.clock.now() {
            tokio::select! {
                biased;
                () = self.lost.cancelled() => return,
                () = self.clock.sleep_until(self.lost_at()) => {}
            }
        }
        self.lose();
        self.lost.cancelled().await;
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.standing().phase == Phase::Lost
    }

    /// A renewal succeeded. It revives nothing: a lease that was lost stays lost.
    pub(crate) fn extend(&self, since: BootInstant, ttl: Duration) {
        let mut standing = self.standing();
        let until = capped(validity::valid_until(since, ttl), self.lifetime_end);
        if standing.phase == Phase::Held && until > standing.valid_until {
            standing.valid_until = until;
            standing.ttl = ttl;
        }
    }

    /// The lease can no longer be trusted.
    pub(crate) fn lose(&self) {
        {
            let mut standing = self.standing();
            if standing.phase != Phase::Held {
                return;
            }
            standing.phase = Phase::Lost;
        }
        self.telemetry.count(Count::lost);
        let held = self.clock.now().since(self.acquired_at);
        self.telemetry.held_for(held);
        tracing::warn!(name = %self.hold.name, fence = %self.fence(), ?held, "lost the lock");
        self.telemetry.tell(|| Event::Lost { name: self.hold.name.clone(), fence: self.fence() });
        self.lost.cancel();
    }

    /// The holder is done. Answers whether it held until now.
    pub(crate) fn end(&self) -> bool {
        self.is_held() && {
            let mut standing = self.standing();
            let held = standing.phase == Phase::Held;
            if held {
                standing.phase = Phase::Ended;
            }
            held
        }
    }
}

fn capped(until: BootInstant, end: Option<BootInstant>) -> BootInstant {
    end.map_or(until, |end| until.min(end))
}
