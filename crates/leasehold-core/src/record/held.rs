//! A record that is running under our lease, until its outcome is stored.

use std::{sync::Arc, time::Duration};

use super::RecordRequest;
use crate::{
    core::Core,
    engine::{
        Fault, Grant,
        records::{Begin, Fingerprint, Outcome, Settle, Settled},
    },
    error::Result,
    lease::{Cleanup, Lease, Terms},
};

/// Pause before an outcome is sent again.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Held {
    lease: Lease,
    fingerprint: Option<Fingerprint>,
    left_when_dropped: bool,
    /// What is still to be sent when it is dropped.
    ending: Option<Settle>,
    settled: bool,
}

impl Held {
    pub(super) fn new(core: &Arc<Core>, request: &RecordRequest, begin: &Begin, grant: Grant) -> Self {
        let terms = Terms { keep_alive: true, max_lifetime: None, handed_over: false };
        tracing::debug!(key = %request.key, fence = %grant.fence, "begun");
        Self {
            lease: Lease::begin(core, begin.hold(grant.fence), &grant, terms),
            fingerprint: begin.fingerprint.clone(),
            left_when_dropped: request.left_when_dropped,
            ending: None,
            settled: false,
        }
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
        let settle = self.settlement(outcome, keep);
        self.ending = Some(settle.clone());
        let records = core.records()?;
        let until = core.command_until();
        loop {
            let mut error = match records.settle(&settle, until).await {
                Ok(settled) => {
                    self.settled = true;
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

    fn settlement(&mut self, outcome: Outcome, keep: Duration) -> Settle {
        Settle { hold: self.lease.state.hold.clone(), fingerprint: self.fingerprint.take(), outcome, keep }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        self.lease.end();
        let ending = self.ending.take();
        if ending.is_none() && self.left_when_dropped {
            return;
        }
        let ending = ending.unwrap_or_else(|| self.settlement(Outcome::Retry, Duration::ZERO));
        self.lease.core.reaper.spawn(Cleanup::Settle(ending));
    }
}
