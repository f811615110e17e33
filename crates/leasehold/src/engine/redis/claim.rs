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
    name::Name,
    owner::Owner,
};

impl Redis {
    pub(super) async fn claim(&self, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        if claim.owner.has_ended() {
            return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
        }
        if let Some(why) = self.keys(&claim.name).clash() {
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        if claim.queue_for.is_none() {
            return self.claim_with(claim, None, until).await;
        }
        // In a cluster a subscription costs a call per slot, and most locks are free: a first claim asks once.
        if !self.attempts.knows(claim.owner.id())
            && !self.topology.is_subscribed(|| self.keys(&claim.name).slot())
        {
            let once = Claim { queue_for: None, ..claim.clone() };
            match self.claim_with(&once, None, until).await? {
                Answer::Busy { .. } => {}
                answer => return Ok(answer),
            }
        }
        let arrival = self.attempts.enter(claim);
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
        let owner = &claim.owner;
        let op = || Op::claim(self.keys(&claim.name), claim, arrival.clone());
        let asked_at = self.clock.now();
        owner.claim_sent();
        // Counted first: an end that comes later knows of this claim, one that came before is seen here.
        if owner.has_ended() {
            owner.claim_answered();
            return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
        }
        let reply = self.topology.send(&claim.name, op, until).await;
        if !matches!(&reply, Err(error) if error.fault == Fault::NoAnswer) {
            owner.claim_answered();
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
                if claim.queue_for.is_some() && claim.acks == Acks::None {
                    self.attempts.leave(owner);
                }
                Answer::Granted(Grant { fence, since: asked_at, ttl: claim.ttl, acks: 0 })
            }
            Claimed::Queued { ahead, expires_in, last, arrival, holder } => {
                self.attempts.queued(owner, arrival, last, asked_at, connection);
                Answer::Queued { ahead, holder, expires_in }
            }
            Claimed::Busy { expires_in, holder } => Answer::Busy { holder, expires_in },
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
        owner.end();
        self.attempts.leave(owner.id());
        let mut freed = false;
        loop {
            let op = || Op::release(self.keys(name), owner, claim);
            let value = match self.topology.send(name, op, until).await {
                Ok((value, _)) => value,
                Err(error) if outcome::is_try_again(&error) => {
                    return self.end_torn(name, owner, claim, until).await;
                }
                Err(error) => return Err(error),
            };
            match answer::released(value)? {
                // Dead waiters were removed and the lock is free; the next round serves those behind them.
                None => freed = true,
                Some(Released::Expired) if freed => return Ok(Released::Free),
                Some(Released::Taken { by }) if freed => return Ok(Released::HandedOver { next: by }),
                Some(outcome) => return Ok(outcome),
            }
        }
    }
}
