//! One attempt to get a lock, from the first claim to a guard or an error.

use std::{sync::Arc, time::Duration};

use super::{
    exclusive::Wish,
    retry::{self, Place},
    waiting::{Bound, News, Ticket},
};
use crate::{
    clock::{BootInstant, Until},
    core::Core,
    engine::{Acks, Answer, Claim, EngineError, Fault, Grant, Holders, Mode, Queue},
    error::{Error, Refusal, Result},
    lease::{Guard, Lease, LeaseState, NewLease, validity},
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
    core: &'a Core,
    claim: Claim,
    /// Its place among those of this client that wait, if it may wait.
    ticket: Option<Ticket>,
    /// A claim may have had an effect.
    owed: bool,
    settled: bool,
}

impl Obligation<'_> {
    /// Sends the claim. The obligation exists before the first byte leaves.
    async fn claim(&mut self, until: Until) -> Result<Answer, EngineError> {
        let owed_before = self.owed;
        self.owed = true;
        let answer = self.core.engine.leases().claim(&self.claim, until).await;
        self.owed = owed_before
            || match &answer {
                Ok(Answer::Granted(_) | Answer::Queued { .. }) => true,
                Ok(Answer::Busy { .. } | Answer::Spent) => false,
                Err(error) => match error.fault {
                    Fault::NoAnswer => true,
                    // What was refused may be the wait for replicas, after the grant.
                    Fault::Refused(_) => self.claim.acks != Acks::None,
                    _ => false,
                },
            };
        answer
    }

    /// Takes a place before the first claim leaves, so that no wake-up can be missed.
    fn enter(&mut self) {
        self.ticket = Some(self.core.waiting.enter(&self.claim));
    }

    /// Whether the client was closed and has ended the attempt.
    fn leave(&mut self) -> bool {
        self.ticket.take().is_some_and(Ticket::leave)
    }
}

impl Drop for Obligation<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.core.telemetry.count(Count::cancelled);
        }
        // Ended by close(): a second end would come too late to be sent.
        if !self.leave() && self.owed {
            if self.claim.queue.is_some() {
                self.core.waiting.ended(self.claim.clone());
            }
            self.core.reaper.abandon(self.claim.clone());
        }
    }
}

fn obligation<'a>(core: &'a Core, wish: &Wish, wait: Option<Duration>) -> Obligation<'a> {
    core.telemetry.count(Count::attempts);
    let claim = Claim {
        name: wish.name.clone(),
        owner: core.new_owner(&wish.label),
        mode: Mode::Exclusive,
        ttl: wish.ttl,
        lock_delay: wish.lock_delay,
        queue: wait.map(|wait| Queue { wait, poll_every: retry::poll_every(wish.ttl) }),
        acks: wish.acks,
    };
    Obligation { core, claim, ticket: None, owed: false, settled: false }
}

/// The result of asking once.
pub(super) enum Tried {
    Held(Guard),
    Busy { holder: Option<Holder>, retry_after: Duration },
}

/// Asks once: one command, no queue entry, no subscription.
pub(super) async fn ask_once(core: &Arc<Core>, wish: &Wish) -> Result<Tried> {
    let began = core.clock.now();
    let mut obligation = obligation(core, wish, None);
    let answer = obligation.claim(core.command_until()).await;
    obligation.settled = true;
    match answer {
        Ok(Answer::Granted(grant)) if validity::is_worth_having(&grant, core.clock.now()) => {
            Ok(Tried::Held(guard(core, wish, obligation, grant, began, false)))
        }
        Ok(Answer::Granted(_)) => {
            core.telemetry.count(Count::failed);
            Err(core.failed(too_slow(), "acquiring", &wish.name))
        }
        Ok(answer @ (Answer::Queued { .. } | Answer::Busy { .. } | Answer::Spent)) => {
            core.telemetry.count(Count::refused);
            core.telemetry.count(Count::contended);
            let holders = match answer {
                Answer::Queued { holders, .. } | Answer::Busy { holders } => holders,
                _ => Holders::default(),
            };
            let pause = wish.retry.pause(0, core.chance.fraction());
            let free_in = holders.free_in;
            let retry_after = free_in.map_or(pause, |left| left.min(pause).max(Duration::from_millis(1)));
            let holder = holders.shown.into_iter().next().map(|tenure| tenure.holder);
            Ok(Tried::Busy { holder, retry_after })
        }
        Err(error) => {
            core.telemetry.count(Count::failed);
            Err(core.failed(error, "acquiring", &wish.name))
        }
    }
}

/// Waits for the lock.
pub(super) async fn wait_for(core: &Arc<Core>, wish: &Wish) -> Result<Guard> {
    let began = core.clock.now();
    let mut waiter = Waiter {
        core,
        wish,
        began,
        busy_until: began,
        until: began + wish.wait,
        obligation: obligation(core, wish, Some(wish.wait)),
        attempts: 0,
        spent: 0,
        outages: 0,
        contended: false,
        answered: false,
        last_fault: None,
        holder: None,
    };
    let result = waiter.wait().await.and_then(|got| waiter.not_ended().map(|()| got));
    waiter.obligation.settled = true;
    match result {
        Ok((grant, handed_over)) => {
            if handed_over {
                core.telemetry.count(Count::handed_over);
            }
            Ok(guard(core, wish, waiter.obligation, grant, began, handed_over))
        }
        Err(error) => {
            let timed_out = matches!(error, Error::TimedOut { .. });
            core.telemetry.count(if timed_out { Count::timed_out } else { Count::failed });
            Err(error)
        }
    }
}

struct Waiter<'a> {
    core: &'a Arc<Core>,
    wish: &'a Wish,
    began: BootInstant,
    /// Until when this client may have kept its claim back, so that the store had no time to answer.
    busy_until: BootInstant,
    until: Until,
    obligation: Obligation<'a>,
    attempts: u32,
    /// Owner values that were spent.
    spent: u32,
    /// Claims in a row that failed.
    outages: u32,
    contended: bool,
    /// The store answered this attempt at least once.
    answered: bool,
    /// Why no claim has had an answer so far.
    last_fault: Option<EngineError>,
    holder: Option<Holder>,
}

impl Waiter<'_> {
    async fn wait(&mut self) -> Result<(Grant, bool)> {
        let core = self.core;
        self.obligation.enter();
        loop {
            self.attempts += 1;
            self.ticket().forget_hints();
            let limit = core.command_until().min(self.until.max(self.began + ANSWER_GRACE));
            let (asked_at, mut spent) = (core.clock.now(), false);
            let pause = match self.obligation.claim(limit).await {
                Ok(Answer::Granted(grant)) if validity::is_worth_having(&grant, core.clock.now()) => {
                    return Ok((grant, false));
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
            if self.wish.max_attempts.is_some_and(|most| self.attempts >= most) {
                return Err(self.timed_out());
            }
            let pause = if spent {
                core.check_open()?;
                self.start_over();
                // Its place in the queue is open until it asks. A store that spends one after the other is not hurried.
                self.spent = (self.spent + 1).min(16);
                pause.min(START_OVER_PAUSE * (1 << (self.spent - 1)))
            } else {
                pause
            };
            let again = (core.clock.now() + pause).min(self.until);
            loop {
                tokio::select! {
                    biased;
                    news = self.ticket().news() => match news {
                        News::Granted(grant) if validity::handover_is_fresh(&grant, core.clock.now()) => {
                            return Ok((grant, true));
                        }
                        // A link that breaks is no reason to hurry: with many waiters that would be a storm.
                        News::LookAgain if self.outages > 0 && core.check_open().is_ok() => continue,
                        _ => {}
                    },
                    () = core.clock.sleep_until(again) => {}
                }
                break;
            }
            if core.clock.now() >= self.until {
                return Err(self.timed_out());
            }
            core.check_open()?;
        }
    }

    /// Goes on under a new owner value: the old one was given back, and nothing of it is believed any more.
    fn start_over(&mut self) {
        let obligation = &mut self.obligation;
        obligation.claim.owner = self.core.another_owner(&obligation.claim.owner);
        obligation.owed = false;
        obligation.enter();
    }

    fn ticket(&self) -> &Ticket {
        self.obligation.ticket.as_ref().expect("entered before the first claim")
    }

    /// Nothing is believed of an attempt that close() has ended: the lock is on its way to the next one.
    fn not_ended(&mut self) -> Result<()> {
        if self.obligation.leave() {
            self.obligation.owed = false;
            self.core.check_open()?;
        }
        Ok(())
    }

    fn queued(&mut self, ahead: u32, holders: Holders) -> Duration {
        self.answered = true;
        self.outages = 0;
        self.last_fault = None;
        self.holder = holders.shown.into_iter().next().map(|tenure| tenure.holder);
        if !self.contended {
            self.contended = true;
            self.core.telemetry.count(Count::contended);
            tracing::debug!(name = %self.wish.name, ahead, "waiting");
        }
        if let Some(progress) = &self.wish.progress {
            progress(&super::Waited {
                holder: self.holder.as_ref(),
                ahead,
                waited: self.core.clock.now().since(self.began),
            });
        }
        let poll_every = retry::poll_every(self.wish.ttl);
        let place = Place { ahead, expires_in: holders.free_in, poll_every };
        retry::pause_in_queue(&self.wish.retry, &place, self.attempts - 1, self.core.chance.fraction())
    }

    /// A store that never answered gets as much time as one command; a break in the middle is waited out.
    fn outage(&mut self, error: EngineError) -> Result<Duration> {
        let passing = match error.fault {
            Fault::Unreachable | Fault::NoAnswer | Fault::Busy => true,
            // A client too busy for a poll, or a store that cannot write for a while, is no reason to give up a place in
            // the queue.
            Fault::Overloaded
            | Fault::Refused(Refusal::ReadOnly | Refusal::OutOfMemory | Refusal::Abstention) => self.answered,
            _ => false,
        };
        let now = self.core.clock.now();
        // A client that is busy says nothing about the store.
        let is_busy = error.fault == Fault::Busy;
        let command_timeout = self.core.config.command_timeout;
        if is_busy {
            self.busy_until = now + command_timeout;
        }
        let patience = if is_busy { self.until } else { self.until.min(self.busy_until + command_timeout) };
        let longest = match error.fault {
            Fault::Unreachable | Fault::NoAnswer => OUTAGE_PAUSE_MAX,
            _ => Duration::MAX,
        };
        let longest = longest.min(retry::poll_every(self.wish.ttl));
        let pause = retry::pause_in_outage(OUTAGE_PAUSE, longest, self.outages, self.core.chance.fraction());
        self.outages += 1;
        // Once it was answered, somebody holds the lock: silence at the end of the wait is no outage.
        if passing && (self.answered || now + pause < patience) {
            self.last_fault = (!self.answered).then_some(error);
            return Ok(pause);
        }
        Err(self.core.failed(error, "acquiring", &self.wish.name))
    }

    fn timed_out(&mut self) -> Error {
        // Nobody is known to hold it: the store was silent all the time.
        if let Some(fault) = self.last_fault.take() {
            return self.core.failed(fault, "acquiring", &self.wish.name);
        }
        Error::TimedOut {
            name: self.wish.name.clone(),
            waited: self.core.clock.now().since(self.began),
            attempts: self.attempts,
            holder: self.holder.clone(),
        }
    }
}

fn too_slow() -> EngineError {
    EngineError::new(Fault::NoAnswer, "the answer took so long that too little of the lease was left")
}

fn guard(
    core: &Arc<Core>,
    wish: &Wish,
    mut obligation: Obligation<'_>,
    grant: Grant,
    began: BootInstant,
    handed_over: bool,
) -> Guard {
    obligation.owed = false;
    let hold = obligation.claim.hold(grant.fence);
    let new = NewLease { hold, grant, keep_alive: wish.keep_alive, max_lifetime: wish.max_lifetime };
    let state = Arc::new(LeaseState::new(new, core.clock.clone(), core.telemetry.clone()));
    let now = core.clock.now();
    let waited = now.since(began);
    // A hand-over's start is only known by a bound: one renewal makes it exact, off the caller's path.
    let renew_at = if handed_over {
        Some(now)
    } else {
        wish.keep_alive.then(|| grant.since + validity::renew_interval(grant.ttl))
    };
    let watch = core.keeper.watch(state.clone(), renew_at);
    core.telemetry.acquired_after(waited);
    tracing::debug!(name = %wish.name, fence = %grant.fence, ?waited, handed_over, "acquired");
    core.telemetry.tell(|| Event::Acquired { name: wish.name.clone(), fence: grant.fence, waited });
    Guard::new(Lease { state, core: core.clone() }, watch, wish.hold_at_least)
}
