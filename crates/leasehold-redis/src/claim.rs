//! Claims on one server or in a cluster, and the ends of attempts.

use std::sync::Arc;

use redis::Value;

use super::{
    Redis,
    batch::Lane,
    reply,
    script::{self, Op, Step},
    topology::outcome,
    wake::NO_LINK,
};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{Acks, Answer, Claim, EngineError, Fault, Grant, Released},
    name::Name,
    owner::Owner,
};

impl Redis {
    pub(super) async fn claim(&self, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        let keys = self.keys(&claim.name);
        if let Some(why) = keys.clash() {
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        let arrival = self.attempts.arrival(claim.owner.id());
        // In a cluster a subscription costs a call per slot, and most locks are free: a first claim asks once.
        if claim.queue.is_some() && arrival.is_none() && !self.topology.is_subscribed(|| keys.slot()) {
            let once = Claim { queue: None, ..claim.clone() };
            match self.claim_until_answered(&once, until).await? {
                Answer::Busy { .. } => {}
                answer => return Ok(answer),
            }
        }
        let answer = self.claim_until_answered(claim, until).await;
        // Nobody owes an end to a claim that had no effect.
        if matches!(&answer, Err(error) if error.fault != Fault::NoAnswer) {
            self.attempts.leave_unless_queued(claim.owner.id());
        }
        answer
    }

    async fn claim_until_answered(&self, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        match claim.acks {
            Acks::None => self.claim_over(None, claim, until).await,
            _ => self.claim_with_acks(claim, until).await,
        }
    }

    /// Sends a claim until it is answered, over a connection of its own if it has one.
    pub(super) async fn claim_over(
        &self,
        dedicated: Option<&Arc<Lane>>,
        claim: &Claim,
        until: Until,
    ) -> Result<Answer, EngineError> {
        let keys = self.keys(&claim.name);
        let channel = self.topology.channel(&claim.name, || keys.slot());
        loop {
            let asked_at = self.clock.now();
            let copy = self.attempts.leaves(claim.owner.id(), asked_at)?;
            if claim.queue.is_some() {
                self.attempts.may_queue(claim);
            }
            let op = || {
                let (channel, arrival) = (channel.clone(), self.attempts.arrival(claim.owner.id()));
                let step = Step::Claim { claim: claim.clone(), channel, arrival, copy: copy.clone() };
                Op::new(keys.clone(), step)
            };
            let reply = match dedicated {
                // Wake-ups come over another connection.
                Some(lane) => lane.run(op(), until).await.map(|(value, _)| (value, NO_LINK)),
                None => self.topology.send(&claim.name, op, until).await,
            };
            if !matches!(&reply, Err(error) if error.fault == Fault::NoAnswer) {
                copy.answered();
            }
            let (value, link) = reply?;
            if let Some(answer) = self.claimed(claim, value, asked_at, link)? {
                return Ok(answer);
            }
        }
    }

    /// Notes what a claim was answered; `None` if dead waiters were removed and those behind them come next: it must be
    /// sent again.
    fn claimed(
        &self,
        claim: &Claim,
        value: Value,
        asked_at: BootInstant,
        link: u64,
    ) -> Result<Option<Answer>, EngineError> {
        let owner = claim.owner.id();
        match reply::items(&value) {
            [fence @ Value::BulkString(_)] => {
                if claim.acks == Acks::None {
                    self.attempts.leave(owner);
                }
                let fence = reply::fence(fence)?;
                Ok(Some(Answer::Granted(Grant { fence, since: asked_at, ttl: claim.ttl, acks: 0 })))
            }
            [Value::Int(2), Value::Int(ahead), Value::Int(pttl), last, arrival, holder] => {
                let arrival = reply::text(arrival).unwrap_or("0").to_owned();
                self.attempts.queued(owner, arrival, link);
                let ahead = u32::try_from(*ahead).unwrap_or(u32::MAX);
                let (last, holders) = (reply::fence(last)?, reply::holders(holder, *pttl));
                Ok(Some(Answer::Queued { ahead, holders, last, link }))
            }
            [Value::Int(3), Value::Int(pttl), rest @ ..] => {
                let holder = rest.first().unwrap_or(&Value::Nil);
                Ok(Some(Answer::Busy { holders: reply::holders(holder, *pttl) }))
            }
            [Value::Int(7)] => Ok(None),
            _ => Err(reply::failed_or_unexpected(value)),
        }
    }

    /// Ends an attempt; nothing of it is believed from here on. `claim` is how it queued, if it may have.
    pub(super) async fn end(
        &self,
        name: &Name,
        owner: &Owner,
        claim: Option<&Claim>,
        until: Until,
    ) -> Result<Released, EngineError> {
        self.attempts.end(owner.id());
        let keys = self.keys(name);
        let entry = claim.map(|claim| script::entry(claim, &self.topology.channel(name, || keys.slot())));
        let entry = entry.unwrap_or_default();
        let mut freed = false;
        let outcome = loop {
            let op = || {
                let (owner, entry, attempts) = (owner.clone(), entry.clone(), self.attempts.clone());
                Op::new(keys.clone(), Step::End { owner, entry, attempts })
            };
            let value = match self.topology.send(name, op, until).await {
                Err(error) if outcome::is_try_again(&error) => {
                    break self.end_by_single_keys(name, owner, &entry, until).await?;
                }
                reply => reply?.0,
            };
            match reply::released(value)? {
                // Dead waiters were removed and the lock is free; the next round serves those behind them.
                None => freed = true,
                Some(Released::Expired) if freed => break Released::Free,
                Some(Released::Taken { by }) if freed => break Released::handed_over(by),
                Some(outcome) => break outcome,
            }
        };
        self.attempts.ended(owner.id());
        Ok(outcome)
    }
}
