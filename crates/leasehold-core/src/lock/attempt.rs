//! One attempt to get a lock, from the first claim to a guard or an error.

use std::{sync::Arc, time::Duration};

use super::{
    Attempt, Waited,
    request::LockRequest,
    retry,
    waiting::{Bound, Notification, Ticket},
};
use crate::{
    clock::{BootInstant, Until},
    core::Core,
    engine::{Acks, Answer, Claim, EngineError, Fault, Grant, Holders, Queue},
    error::{Error, Refusal, Result},
    lease::{Cleanup, Guard, Lease, Terms, validity},
    name::Name,
    owner::Holder,
    telemetry::{Count, Event},
};

/// A claim is answered even if the caller's time is shorter than a round trip.
const ANSWER_GRACE: Duration = Duration::from_millis(90);
/// First pause before a store that could not be reached, or that refuses for now, is tried again; doubles each time.
const OUTAGE_PAUSE: Duration = Duration::from_millis(50);
/// Longest such pause while no server is reached: asking then costs nobody anything.
const OUTAGE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest pause before a new owner value takes the place of one that was spent; doubles with each that is.
const START_OVER_PAUSE: Duration = Duration::from_millis(10);

/// What an attempt owes the store: dropped before it was settled, it ends the attempt in the background.
struct Obligation<'a> {
    core: &'a Arc<Core>,
    request: &'a LockRequest,
    began: BootInstant,
    claim: Claim,
    /// Where wake-ups for it arrive, if it may wait.
    ticket: Option<Ticket<'a>>,
    /// A claim may have had an effect.
    owed: bool,
    settled: bool,
    until: Until,
    /// Until when this client may have kept its claim back, so that the store had no time to answer.
    busy_until: BootInstant,
    history: History,
}

/// How an attempt ended well.
pub(super) struct Acquired {
    pub(super) grant: Grant,
    pub(super) handed_over: bool,
    /// When this client learned of it.
    pub(super) at: BootInstant,
}

/// What one claim led to.
enum Asked {
    Acquired(Acquired),
    /// Claim again at this time, or when woken.
    Again(BootInstant),
}

/// What an attempt that waits went through so far.
#[derive(Default)]
struct History {
    attempts: u32,
    /// Owner values that were spent.
    spent: u32,
    /// Claims in a row that failed.
    outages: u32,
    /// The store answered at least once: somebody else has the lock.
    answered: bool,
    /// Why no claim has had an answer.
    last_fault: Option<EngineError>,
    holder: Option<Holder>,
}

impl<'a> Obligation<'a> {
    fn new(core: &'a Arc<Core>, name: Name, request: &'a LockRequest, wait: Option<Duration>) -> Self {
        request.telemetry(core).count(Count::attempts);
        let &LockRequest { format, ttl, lock_delay, acks, .. } = request;
        let (began, history) = (core.clock.now(), History::default());
        let (owner, mode) = (core.new_owner(&request.label, began), request.mode());
        let queue = wait.map(|wait| Queue { wait, poll_every: retry::poll_every(ttl) });
        let claim = Claim { name, owner, mode, format, ttl, lock_delay, queue, acks };
        let (until, busy_until) = (began + wait.unwrap_or_default(), began);
        let (ticket, owed, settled) = (None, false, false);
        Self { core, request, began, claim, ticket, owed, settled, until, busy_until, history }
    }

    /// Sends the claim. The obligation exists before the first byte leaves.
    async fn claim(&mut self, until: Until) -> Result<Answer, EngineError> {
        let owed_before = self.owed;
        self.owed = true;
        let answer = self.core.engine.leases().claim(&self.claim, until).await;
        self.owed = owed_before
            || match &answer {
                Ok(answer) => matches!(answer, Answer::Granted(_) | Answer::Queued { .. }),
                // What was refused may be the wait for replicas, after the grant.
                Err(EngineError { fault: Fault::Refused(_), .. }) => self.claim.acks != Acks::None,
                Err(error) => error.fault == Fault::NoAnswer,
            };
        answer
    }

    /// Before the first claim leaves, so that no wake-up can be missed.
    fn enter(&mut self) {
        self.ticket = Some(self.core.waiting.enter(self.claim.owner.id(), Some(self.claim.clone())));
    }

    /// Whether the client was closed and has ended the attempt.
    fn leave(&mut self) -> bool {
        self.ticket.take().is_some_and(Ticket::leave)
    }

    fn failed(&self, error: EngineError) -> Error {
        self.core.failed(error, "acquiring", &self.claim.name)
    }

    fn into_guard(mut self, acquired: &Acquired) -> Guard {
        (self.owed, self.settled) = (false, true);
        acquired.guard(self.core, self.request, &self.claim, self.began)
    }
}

impl Acquired {
    /// The guard of what was granted to a claim that began then.
    pub(super) fn guard(
        &self,
        core: &Arc<Core>,
        request: &LockRequest,
        claim: &Claim,
        began: BootInstant,
    ) -> Guard {
        let &Self { grant, handed_over, at } = self;
        let (hold, keep_alive) = (claim.hold(grant.fence), request.keep_alive == Some(true));
        let telemetry = request.telemetry(core).clone();
        let (max_lifetime, bond) = (request.max_lifetime, request.bond.clone());
        let terms = Terms { keep_alive, max_lifetime, handed_over, telemetry, bond };
        let lease = Lease::begin(core, hold, &grant, terms, at);
        let (name, fence, waited) = (lease.name(), grant.fence, at.since(began));
        let mode = lease.state.hold.mode;
        request.telemetry(core).acquired_after(waited);
        tracing::debug!(%name, %fence, ?waited, handed_over, "acquired");
        core.telemetry.emit(|| Event::Acquired { name: name.clone(), fence, mode, waited });
        Guard::new(lease, request.hold_at_least)
    }
}

impl Drop for Obligation<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.request.telemetry(self.core).count(Count::cancelled);
        }
        // Ended by close(): a second end would come too late to be sent.
        if !self.leave() && self.owed {
            if self.claim.queue.is_some() {
                self.core.waiting.ended(self.claim.clone());
            }
            self.core.reaper.spawn(Cleanup::Abandon(self.claim.clone()));
        }
    }
}

/// Asks once: one command, no queue entry, no subscription.
pub(super) async fn ask_once(core: &Arc<Core>, name: Name, request: &LockRequest) -> Result<Attempt> {
    let mut obligation = Obligation::new(core, name, request, None);
    let answer = obligation.claim(obligation.began + core.config.command_timeout).await;
    let at = core.clock.now();
    obligation.settled = true;
    let holders = match answer {
        Ok(Answer::Granted(grant)) if validity::is_worth_having(&grant, at) => {
            return Ok(Attempt::Held(obligation.into_guard(&Acquired { grant, handed_over: false, at })));
        }
        Ok(Answer::Queued { holders, .. } | Answer::Busy { holders }) => holders,
        Ok(Answer::Spent) => Holders::default(),
        Ok(Answer::Granted(_)) | Err(_) => {
            request.telemetry(core).count(Count::failed);
            return Err(obligation.failed(answer.err().unwrap_or_else(EngineError::too_slow)));
        }
    };
    request.telemetry(core).count(Count::refused);
    request.telemetry(core).count(Count::contended);
    let pause = request.retry.pause(0, core.entropy.fraction());
    let retry_after = holders.free_in.map_or(pause, |left| left.min(pause).max(Duration::from_millis(1)));
    Ok(Attempt::Busy { holder: holders.into_first(), retry_after })
}

/// Waits for the lock. `too_late` is how it is counted when that took longer than the wait.
pub(super) async fn wait_for(
    core: &Arc<Core>,
    name: Name,
    request: &LockRequest,
    too_late: Count,
) -> Result<Guard> {
    let mut obligation = Obligation::new(core, name, request, Some(request.wait));
    let result = obligation.wait().await.and_then(|got| obligation.not_ended().map(|()| got));
    obligation.settled = true;
    match result {
        Ok(acquired) => {
            if acquired.handed_over {
                request.telemetry(core).count(Count::handed_over);
            }
            Ok(obligation.into_guard(&acquired))
        }
        Err(error) => {
            let timed_out = matches!(error, Error::TimedOut { .. });
            request.telemetry(core).count(if timed_out { too_late } else { Count::failed });
            Err(error)
        }
    }
}

impl Obligation<'_> {
    /// Claims until the lock is ours, by an answer or by a hand-over.
    async fn wait(&mut self) -> Result<Acquired> {
        self.enter();
        match self.ask(self.began).await? {
            Asked::Acquired(acquired) => Ok(acquired),
            // Boxed, because most locks are free, and every attempt would carry the room for a wait.
            Asked::Again(again) => Box::pin(self.wait_in_queue(again)).await,
        }
    }

    async fn wait_in_queue(&mut self, mut again: BootInstant) -> Result<Acquired> {
        loop {
            let handed_over = self.rest(again).await;
            let now = self.core.clock.now();
            if let Some(grant) = handed_over {
                return Ok(Acquired { grant, handed_over: true, at: now });
            }
            if now >= self.until {
                return Err(self.timed_out());
            }
            self.core.check_open()?;
            match self.ask(now).await? {
                Asked::Acquired(acquired) => return Ok(acquired),
                Asked::Again(at) => again = at,
            }
        }
    }

    /// Claims once, from `asked_at` on.
    async fn ask(&mut self, asked_at: BootInstant) -> Result<Asked> {
        let core = self.core;
        self.history.attempts += 1;
        self.ticket().forget_hints();
        let limit = asked_at + core.config.command_timeout;
        let answer = self.claim(limit.min(self.until.max(self.began + ANSWER_GRACE))).await;
        let (now, mut spent) = (core.clock.now(), false);
        let mut pause = match answer {
            Ok(Answer::Granted(grant)) if validity::is_worth_having(&grant, now) => {
                return Ok(Asked::Acquired(Acquired { grant, handed_over: false, at: now }));
            }
            // Answered too late to be of use; it is ours, and asking again refreshes it.
            Ok(Answer::Granted(_)) => Duration::ZERO,
            Ok(Answer::Queued { ahead, holders, last, link }) => {
                self.ticket().queued(Bound { link, last, asked_at });
                self.queued(ahead, holders)
            }
            Ok(Answer::Busy { holders }) => self.queued(0, holders),
            Ok(Answer::Spent) => {
                spent = true;
                self.queued(0, Holders::default())
            }
            // A claim that failed was given back; it is no news of the store.
            Err(EngineError { fault: Fault::Ended, .. }) => {
                spent = true;
                Duration::ZERO
            }
            Err(error) => self.outage(error)?,
        };
        if self.request.max_attempts.is_some_and(|most| self.history.attempts >= most) {
            return Err(self.timed_out());
        }
        if spent {
            core.check_open()?;
            pause = pause.min(self.start_over());
        }
        Ok(Asked::Again((now + pause).min(self.until)))
    }

    /// Waits until it is time to claim again, unless the lock is handed over before.
    async fn rest(&self, again: BootInstant) -> Option<Grant> {
        let clock = &self.core.clock;
        loop {
            match clock.bounded(again, self.ticket().notified()).await {
                Some(Notification::Granted(grant)) => {
                    return validity::handover_is_fresh(&grant, clock.now()).then_some(grant);
                }
                // A link that breaks is no reason to hurry: with many waiters that would be a storm.
                Some(Notification::LookAgain)
                    if self.history.outages > 0 && self.core.check_open().is_ok() => {}
                Some(Notification::LookAgain) | None => return None,
            }
        }
    }

    /// Goes on under a new owner value: the old one was given back, and nothing of it is believed any more. Returns the
    /// longest pause before it asks: its place in the queue is open until then, but a store that spends one after the
    /// other is not hurried.
    fn start_over(&mut self) -> Duration {
        self.claim.owner = self.core.another_owner(&self.claim.owner);
        self.owed = false;
        self.enter();
        self.history.spent = (self.history.spent + 1).min(16);
        START_OVER_PAUSE * (1 << (self.history.spent - 1))
    }

    fn ticket(&self) -> &Ticket<'_> {
        self.ticket.as_ref().expect("entered before the first claim")
    }

    /// Nothing is believed of an attempt that close() has ended: the lock is on its way to the next one.
    fn not_ended(&mut self) -> Result<()> {
        if self.leave() {
            self.owed = false;
            self.core.check_open()?;
        }
        Ok(())
    }

    fn waited(&self) -> Duration {
        self.core.clock.now().since(self.began)
    }

    fn queued(&mut self, ahead: u32, holders: Holders) -> Duration {
        if !std::mem::replace(&mut self.history.answered, true) {
            self.request.telemetry(self.core).count(Count::contended);
            tracing::debug!(name = %self.claim.name, ahead, "waiting");
        }
        self.history.outages = 0;
        self.history.last_fault = None;
        let free_in = holders.free_in;
        self.history.holder = holders.into_first();
        if let Some(progress) = &self.request.progress {
            progress(&Waited { holder: self.history.holder.as_ref(), ahead, waited: self.waited() });
        }
        let near = self.request.retry.pause(self.history.attempts - 1, self.core.entropy.fraction());
        retry::pause_in_queue(near, ahead, free_in, retry::poll_every(self.request.ttl))
    }

    /// A store that never answered gets as much time as one command; a break in the middle is waited out.
    fn outage(&mut self, error: EngineError) -> Result<Duration> {
        let (is_busy, command_timeout) = (error.fault == Fault::Busy, self.core.config.command_timeout);
        let is_silent = matches!(error.fault, Fault::Unreachable | Fault::NoAnswer);
        // A client too busy for a poll, or a store that cannot write for a while, is no reason to give up a place in the
        // queue.
        let keeps_place = match error.fault {
            Fault::Refused(why) => {
                matches!(why, Refusal::ReadOnly | Refusal::OutOfMemory | Refusal::Abstention)
            }
            fault => fault == Fault::Overloaded,
        };
        let passing = is_silent || is_busy || keeps_place && self.history.answered;
        // A client that is busy says nothing about the store.
        if is_busy {
            self.busy_until = self.core.clock.now() + command_timeout;
        }
        let patience = if is_busy { self.until } else { self.until.min(self.busy_until + command_timeout) };
        let longest = if is_silent { OUTAGE_PAUSE_MAX } else { Duration::MAX };
        let longest = longest.min(retry::poll_every(self.request.ttl));
        let random = self.core.entropy.fraction();
        let pause = retry::pause_in_outage(OUTAGE_PAUSE, longest, self.history.outages, random);
        self.history.outages += 1;
        // Once it was answered, somebody holds the lock: silence at the end of the wait is no outage.
        if passing && (self.history.answered || self.core.clock.now() + pause < patience) {
            self.history.last_fault = (!self.history.answered).then_some(error);
            return Ok(pause);
        }
        Err(self.failed(error))
    }

    fn timed_out(&mut self) -> Error {
        // Nobody is known to hold it: the store was silent all the time.
        if let Some(fault) = self.history.last_fault.take() {
            return self.failed(fault);
        }
        let (name, holder) = (self.claim.name.clone(), self.history.holder.clone());
        Error::TimedOut { name, waited: self.waited(), attempts: self.history.attempts, holder }
    }
}
