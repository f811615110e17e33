//! The guard that a holder has.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use tracing::Instrument;

use super::{Handle, state::LeaseState};
use crate::{
    core::Core,
    engine::{Released, Renewed},
    error::{Error, Result},
    fence::Fence,
    name::Name,
    telemetry::{Count, Event},
};

/// A lease that is held, as its holder sees it. Cheap to clone; it cannot give the lock back.
#[derive(Clone)]
pub struct Lease {
    pub(crate) state: Arc<LeaseState>,
    pub(crate) core: Arc<Core>,
}

impl Lease {
    /// What is held.
    pub fn name(&self) -> &Name {
        &self.state.hold().name
    }

    /// The fencing token: give it to whatever you write to.
    pub fn fence(&self) -> Fence {
        self.state.fence()
    }

    /// How many replicas had the lock when it was acquired; zero unless [`acks`](crate::Lock::acks) asked for some.
    pub fn acks(&self) -> u8 {
        self.state.acks()
    }

    /// How long the lease can still be trusted; zero once [`is_held`](Self::is_held) is false.
    pub fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    /// Whether the lease can be trusted at this moment. Once `false` it stays `false`.
    pub fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// Completes when the lease can no longer be trusted: shortly before it ends, also when the store cannot be
    /// reached, or at once when the store says that it is gone. Never completes for a lease that was given back.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn lost(&self) {
        self.state.lost().await;
    }

    /// Extends the lease by its ttl from now.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lease extended in the store, which this holder then does not know of.
    ///
    /// # Errors
    /// `lost` if the lease was or is gone; `store_unreachable` if there was no answer, in which case the lease
    /// stays as it was.
    pub async fn extend(&self) -> Result<()> {
        let hold = self.state.hold();
        if !self.state.is_held() {
            return Err(self.lost_error());
        }
        let answer =
            self.core.renew(hold).await.map_err(|error| self.core.explain(error, "extending", &hold.name))?;
        match answer {
            Renewed::Kept { since } => {
                self.core.telemetry.count(Count::renewed);
                self.state.extend(since, hold.ttl);
                if self.state.is_held() { Ok(()) } else { Err(self.lost_error()) }
            }
            Renewed::Gone => {
                self.state.lose();
                Err(self.lost_error())
            }
        }
    }

    pub(crate) fn lost_error(&self) -> Error {
        Error::Lost { name: self.name().clone(), fence: self.fence() }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// A lock that is yours until you release it, drop it, or lose it.
///
/// Give it back with [`Guard::release`]. Dropping it gives it back in the background, as well as that is
/// possible: if the program ends first, the lock stays closed until its ttl is over.
///
/// Do not use a guard alone to protect something that cannot undo a late write: pass [`fence`](Lease::fence)
/// along and let the resource check it.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct Guard {
    lease: Lease,
    watch: u64,
    hold_at_least: Duration,
    /// Set when the holder is done: whether the lease could be trusted until then.
    held_to_the_end: Option<bool>,
    /// Nothing is left to be done when it is dropped.
    settled: bool,
}

impl Guard {
    pub(crate) fn new(lease: Lease, watch: u64, hold_at_least: Duration) -> Self {
        Self { lease, watch, hold_at_least, held_to_the_end: None, settled: false }
    }

    /// Gives the lock back, and tells what had become of it.
    ///
    /// An expired or taken lock is an outcome, not an error. With a minimum hold time the lock stays closed until
    /// that is over.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still gives the lock back, in the background.
    ///
    /// # Errors
    /// The outcome is unknown: the store did not answer. The release is then repeated in the background, and the
    /// lock ends with its ttl at the latest.
    pub async fn release(self) -> Result<Released> {
        let span = tracing::debug_span!("release", name = %self.name(), fence = %self.fence());
        self.send_release().instrument(span).await
    }

    async fn send_release(mut self) -> Result<Released> {
        let (state, core) = (self.lease.state.clone(), self.lease.core.clone());
        let still = self.stop();
        let hold = state.hold();
        let answer = match still {
            Some(still) => core.renew(&hold.closed_for(still)).await.map(|renewed| match renewed {
                Renewed::Kept { .. } => Released::Closed { remaining: still },
                Renewed::Gone => Released::Expired,
            }),
            None => core.release(hold).await,
        };
        self.settled = true;
        match answer {
            Ok(outcome) => {
                self.report(outcome);
                Ok(outcome)
            }
            Err(error) => {
                core.telemetry.count(Count::release_failed);
                core.give_back(hold.clone(), still);
                Err(core.failed(error, "releasing", &hold.name))
            }
        }
    }

    /// The lease as a value that can be cloned into tasks.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Whether this is a lost lock whose lock-delay must run: giving it back would end the delay.
    pub(crate) fn keeps_delay(&self) -> bool {
        self.lease.state.is_lost() && !self.lease.state.hold().lock_delay.is_zero()
    }

    /// Gives up the guard without giving up the lock: nothing renews it any more, and whoever has the handle can
    /// extend and release it.
    pub fn detach(mut self) -> Handle {
        self.settled = true;
        self.lease.core.keeper.forget(self.watch);
        Handle { hold: self.lease.state.hold().clone() }
    }

    /// Ends the lease on this side: renewals stop before anything is sent. Answers what is left of the minimum hold
    /// time, if the lock is still ours.
    fn stop(&mut self) -> Option<Duration> {
        let (state, core) = (&self.lease.state, &self.lease.core);
        core.keeper.forget(self.watch);
        let held = *self.held_to_the_end.get_or_insert_with(|| state.end());
        let still = (state.acquired_at() + self.hold_at_least).since(core.clock.now());
        (held && !still.is_zero()).then_some(still)
    }

    fn report(&self, outcome: Released) {
        let state = &self.lease.state;
        let core = &self.lease.core;
        let (name, fence) = (&state.hold().name, state.fence());
        let held = core.clock.now().since(state.acquired_at());
        match outcome {
            Released::Free | Released::HandedOver { .. } | Released::Closed { .. } => {
                core.telemetry.count(Count::released);
                tracing::debug!(%name, %fence, ?held, ?outcome, "released");
            }
            Released::Expired | Released::Taken { .. } => {
                core.telemetry.count(Count::release_not_ours);
                tracing::warn!(%name, %fence, ?held, ?outcome, "released a lock that was not ours any more");
            }
        }
        if self.held_to_the_end == Some(true) {
            core.telemetry.held_for(held);
        }
        if !state.kept_alive() && held > state.hold().ttl / 2 {
            core.telemetry.overheld(name, held, state.hold().ttl);
        }
        core.telemetry.tell(|| Event::Released { name: name.clone(), fence, outcome });
    }
}

impl Deref for Guard {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let still = self.stop();
        let (state, core) = (&self.lease.state, &self.lease.core);
        core.telemetry.count(Count::dropped);
        let held_to_the_end = self.held_to_the_end == Some(true);
        if held_to_the_end {
            core.telemetry.held_for(core.clock.now().since(state.acquired_at()));
        }
        if !self.keeps_delay() {
            core.give_back(state.hold().clone(), still);
        }
    }
}
