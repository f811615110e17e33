//! A record that is running under our lease, until its outcome is stored.

use std::{sync::Arc, time::Duration};

use super::RecordRequest;
use crate::{
    core::Core,
    engine::{
        Fault, Grant,
        records::{Begin, Outcome, Settle, Settled},
    },
    error::Result,
    lease::{Cleanup, Lease, Terms},
};

/// Pause before an outcome is sent again.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Held {
    lease: Lease,
    ending: Settle,
    /// Whether that is still to be sent when it is dropped.
    owed: bool,
}

impl Held {
    pub(super) fn new(core: &Arc<Core>, request: &RecordRequest, begin: &Begin, grant: Grant) -> Self {
        let terms = Terms { keep_alive: true, max_lifetime: None, handed_over: false };
        tracing::debug!(key = %request.key, fence = %grant.fence, "begun");
        let hold = begin.hold(grant.fence);
        let lease = Lease::begin(core, hold.clone(), &grant, terms);
        let (fingerprint, outcome, keep) = (begin.fingerprint.clone(), Outcome::Retry, Duration::ZERO);
        let ending = Settle { hold, fingerprint, outcome, keep };
        Self { lease, ending, owed: !request.left_when_dropped }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Sends the outcome, again if there is no answer, for as long as one command may take; then in the background.
    /// Also after the lease was lost: if nobody has begun since, it counts.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still sends the outcome, in the background.
    pub(crate) async fn settle(mut self, outcome: Outcome, keep: Duration) -> Result<Settled> {
        let (core, key) = (self.lease.core.clone(), self.lease.name().clone());
        self.lease.end();
        (self.ending.outcome, self.ending.keep, self.owed) = (outcome, keep, true);
        let records = core.records()?;
        let until = core.command_until();
        loop {
            let mut error = match records.settle(&self.ending, until).await {
                Ok(settled) => {
                    self.owed = false;
                    tracing::debug!(%key, fence = %self.lease.fence(), ?settled, "settled");
                    return Ok(settled);
                }
                Err(error) => error,
            };
            let again = core.clock.now() + AGAIN_PAUSE;
            if matches!(error.fault, Fault::Unreachable | Fault::NoAnswer) && again < until {
                core.clock.sleep_until(again).await;
                continue;
            }
            if error.fault == Fault::NoAnswer {
                error.why += "; whether it is stored is unknown, and it is sent again in the background";
            }
            return Err(core.failed(error, "storing the outcome of", &key));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lease.end();
        if self.owed {
            self.lease.core.reaper.spawn(Cleanup::Settle(self.ending.clone()));
        }
    }
}
