//! Running records: begun, kept alive like a lock, settled. What idempotency keys and guards of markers share.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::{BootInstant, Until},
    core::Core,
    engine::{
        EngineError, Fault, Grant,
        records::{Begin, Begun, Fingerprint, Outcome, Records, Settle, Settled},
    },
    error::{Refusal, Result},
    fence::Fence,
    lease::{Cleanup, Lease, Terms, validity},
    name::Name,
    telemetry::Telemetry,
};

/// Longest time between two polls: a wake-up may have been lost.
const FAR_POLL: Duration = Duration::from_secs(5);
/// Shortest time between two polls.
const NEAR_POLL: Duration = Duration::from_millis(2);
/// Those who wait for a dead execution do not all poll at the same moment.
const SPREAD: Duration = Duration::from_millis(50);
/// Pause before a store that could not be reached is asked, or sent an outcome, again.
const OUTAGE_PAUSE: Duration = Duration::from_millis(50);

/// What a caller wants of a record.
pub(crate) struct RecordRequest {
    pub(crate) key: Name,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) lease: Duration,
    /// How long to wait for somebody else's execution; zero asks once.
    pub(crate) wait: Duration,
    pub(crate) label: String,
    /// Whether a lease that is dropped runs out instead of being given back.
    pub(crate) left_when_dropped: bool,
    /// Where it is counted.
    pub(crate) telemetry: Arc<Telemetry>,
}

/// How it went.
pub(crate) enum Began {
    /// It is ours to execute.
    Yours(Held),
    /// It is not; this is how it stands. Never [`Begun::Yours`].
    Stands(Begun),
}

/// Begins a record, or waits for the execution in progress. A store that does not answer gets as much time as one command.
pub(crate) async fn begin(core: &Arc<Core>, request: &RecordRequest) -> Result<Began> {
    let records = core.records()?;
    let began = core.clock.now();
    let begin = Begin {
        key: request.key.clone(),
        owner: core.new_owner(&request.label, began),
        fingerprint: request.fingerprint.clone(),
        lease: request.lease,
        wake: !request.wait.is_zero(),
    };
    let until = began + request.wait;
    let answer_until = until.max(began + core.config.command_timeout);
    Waiter { core, begin, owed: false, until, answer_until, running: None }.wait(records, request).await
}

/// An attempt, and what it owes the store: dropped before it was settled, it gives back in the background what it may have
/// got.
struct Waiter<'a> {
    core: &'a Arc<Core>,
    begin: Begin,
    owed: bool,
    until: Until,
    /// Until when an answer is waited for.
    answer_until: Until,
    /// The last answer that another execution is in progress.
    running: Option<Begun>,
}

impl Waiter<'_> {
    async fn wait(&mut self, records: &dyn Records, request: &RecordRequest) -> Result<Began> {
        let core = self.core;
        let ticket = self.begin.wake.then(|| core.waiting.enter(self.begin.owner.id(), None));
        loop {
            if let Some(ticket) = &ticket {
                ticket.forget_hints();
            }
            let again = match self.ask(records).await {
                Ok(Begun::Yours(grant)) if validity::is_worth_having(&grant, core.clock.now()) => {
                    self.owed = false;
                    return Ok(Began::Yours(Held::new(core, request, &self.begin, grant)));
                }
                // Answered too late to be of use; it is ours, and asking again refreshes it.
                Ok(Begun::Yours(_)) => self.outage(EngineError::too_slow())?,
                Ok(Begun::Running { holder, expires_in }) => {
                    // Its end may not be announced.
                    self.running = Some(Begun::Running { holder, expires_in });
                    let over = expires_in + NEAR_POLL + SPREAD.mul_f64(core.entropy.fraction());
                    core.clock.now() + over.min(FAR_POLL)
                }
                Ok(stands) => return Ok(Began::Stands(stands)),
                Err(error) => self.outage(error)?,
            };
            let end = if self.running.is_some() { self.until } else { self.answer_until };
            let again = again.min(end);
            match &ticket {
                Some(ticket) => drop(core.clock.bounded(again, ticket.notified()).await),
                None if self.running.is_some() => {}
                None => core.clock.sleep_until(again).await,
            }
            core.check_open()?;
            if core.clock.now() >= end
                && let Some(running) = self.running.take()
            {
                return Ok(Began::Stands(running));
            }
        }
    }

    /// Asks the store. The obligation exists before the first byte leaves.
    async fn ask(&mut self, records: &dyn Records) -> Result<Begun, EngineError> {
        let owed_before = std::mem::replace(&mut self.owed, true);
        let limit = self.core.command_until().min(self.answer_until);
        let answer = records.begin(&self.begin, limit).await;
        let may_be_ours = match &answer {
            Ok(begun) => matches!(begun, Begun::Yours(_)),
            Err(error) => error.fault == Fault::NoAnswer,
        };
        self.owed = owed_before || may_be_ours;
        answer
    }

    fn outage(&mut self, error: EngineError) -> Result<BootInstant> {
        let passing = match error.fault {
            Fault::Unreachable | Fault::NoAnswer => true,
            // No reason to stop waiting for an execution in progress.
            Fault::Overloaded | Fault::Busy | Fault::Refused(Refusal::ReadOnly | Refusal::OutOfMemory) => {
                self.running.is_some()
            }
            _ => false,
        };
        let pause = OUTAGE_PAUSE.mul_f64(0.5 + self.core.entropy.fraction());
        let again = self.core.clock.now() + pause;
        if passing && (self.running.is_some() || again < self.answer_until) {
            return Ok(again);
        }
        Err(self.core.failed(error, "beginning", &self.begin.key))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.owed {
            // Its fence is not known; the owner value is proof enough.
            self.core.reaper.spawn(Cleanup::Settle(giving_back(&self.begin, Fence::new(0))));
        }
    }
}

/// The end of an execution without a result.
fn giving_back(begin: &Begin, fence: Fence) -> Settle {
    let (hold, fingerprint) = (begin.hold(fence), begin.fingerprint.clone());
    Settle { hold, fingerprint, outcome: Outcome::Retry, keep: Duration::ZERO }
}

/// A record that is running under our lease, until its outcome is stored.
pub(crate) struct Held {
    lease: Lease,
    ending: Settle,
    /// Whether that is still to be sent when it is dropped.
    owed: bool,
}

impl Held {
    fn new(core: &Arc<Core>, request: &RecordRequest, begin: &Begin, grant: Grant) -> Self {
        let telemetry = request.telemetry.clone();
        let terms = Terms { keep_alive: true, max_lifetime: None, handed_over: false, telemetry, bond: None };
        tracing::debug!(key = %request.key, fence = %grant.fence, "begun");
        let ending = giving_back(begin, grant.fence);
        let lease = Lease::begin(core, ending.hold.clone(), &grant, terms, core.clock.now());
        Self { lease, ending, owed: !request.left_when_dropped }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Ends the lease on this side only.
    pub(crate) fn leave(mut self) {
        self.owed = false;
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
            let again = core.clock.now() + OUTAGE_PAUSE;
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
