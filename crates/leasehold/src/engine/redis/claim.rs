//! Claims on one server or in a cluster, and the ends of attempts.

use super::{
    Redis,
    answer::{self, Claimed},
    script::Op,
    topology::outcome,
};
use crate::{
    clock::{BootInstant, Until},
    engine::{Acks, Answer, Claim, EngineError, Fault, Grant, Released},
    fence::Fence,
    name::Name,
    owner::Owner,
};

impl Redis {
    pub(super) async fn claim(&self, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        if let Some(why) = self.keys(&claim.name).clash() {
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        if claim.queue.is_none() {
            return self.claim_with(claim, None, until).await;
        }
        // In a cluster a subscription costs a call per slot, and most locks are free: a first claim asks once.
        if !self.attempts.knows(claim.owner.id())
            && !self.topology.is_subscribed(|| self.keys(&claim.name).slot())
        {
            let once = Claim { queue: None, ..claim.clone() };
            match self.claim_with(&once, None, until).await? {
                Answer::Busy { .. } => {}
                answer => return Ok(answer),
            }
        }
        let arrival = self.attempts.enter(claim, self.clock.now())?;
        let answer = self.claim_with(claim, arrival, until).await;
        // Nobody owes an end to a claim that had no effect.
        if matches!(&answer, Err(error) if error.fault != Fault::NoAnswer) {
            self.attempts.leave_unless_queued(claim.owner.id());
        }
        answer
    }

    /// Sends a claim until it is answered.
    async fn claim_with(
        &self,
        claim: &Claim,
        arrival: Option<String>,
        until: Until,
    ) -> Result<Answer, EngineError> {
        loop {
            let answer = match claim.acks {
                Acks::None => self.claim_once(claim, arrival.clone(), until).await?,
                _ => self.claim_with_acks(claim, arrival.clone(), until).await?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// Sends a claim; `None` if dead waiters were removed and those behind them come next.
    pub(super) async fn claim_once(
        &self,
        claim: &Claim,
        arrival: Option<String>,
        until: Until,
    ) -> Result<Option<Answer>, EngineError> {
        let asked_at = self.clock.now();
        let call = self.attempts.leaves(claim.owner.id(), asked_at)?;
        let op = || Op::claim(self.keys(&claim.name), claim, arrival.clone(), call.clone());
        let reply = self.topology.send(&claim.name, op, until).await;
        if !matches!(&reply, Err(error) if error.fault == Fault::NoAnswer) {
            self.attempts.answered(&call);
        }
        let (value, connection) = reply?;
        Ok(self.heard(claim, answer::claimed(value)?, asked_at, connection))
    }

    /// Notes what a claim was answered; `None` if it must be sent again.
    pub(super) fn heard(
        &self,
        claim: &Claim,
        claimed: Claimed,
        asked_at: BootInstant,
        connection: u64,
    ) -> Option<Answer> {
        let owner = claim.owner.id();
        Some(match claimed {
            Claimed::Granted(fence) => {
                if claim.queue.is_some() && claim.acks == Acks::None {
                    self.attempts.leave(owner);
                }
                Answer::Granted(Grant { fence, since: asked_at, ttl: claim.ttl, acks: 0 })
            }
            Claimed::Queued { ahead, last, arrival, holders } => {
                self.attempts.queued(owner, arrival, connection);
                Answer::Queued { ahead, holders, last: Fence::new(last), link: connection }
            }
            Claimed::Busy { holders } => Answer::Busy { holders },
            Claimed::MoreWait => return None,
        })
    }

    /// Ends an attempt; nothing of it is believed from here on.
    pub(super) async fn end(
        &self,
        name: &Name,
        owner: &Owner,
        claim: Option<&Claim>,
        until: Until,
    ) -> Result<Released, EngineError> {
        let may_come_late = self.attempts.end(owner.id());
        let outcome = self.send_end(name, owner, claim, may_come_late, until).await;
        if outcome.is_ok() {
            self.attempts.ended(owner.id());
        }
        outcome
    }

    async fn send_end(
        &self,
        name: &Name,
        owner: &Owner,
        claim: Option<&Claim>,
        may_come_late: bool,
        until: Until,
    ) -> Result<Released, EngineError> {
        let mut freed = false;
        loop {
            let op = || Op::release(self.keys(name), owner, claim, may_come_late);
            let value = match self.topology.send(name, op, until).await {
                Ok((value, _)) => value,
                Err(error) if outcome::is_try_again(&error) => {
                    return self.end_by_single_keys(name, owner, claim, may_come_late, until).await;
                }
                Err(error) => return Err(error),
            };
            match answer::released(value)? {
                // Dead waiters were removed and the lock is free; the next round serves those behind them.
                None => freed = true,
                Some(Released::Expired) if freed => return Ok(Released::Free),
                Some(Released::Taken { by }) if freed => return Ok(Released::handed_over(by)),
                Some(outcome) => return Ok(outcome),
            }
        }
    }
}
