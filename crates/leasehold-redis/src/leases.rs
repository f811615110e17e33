//! Claims, renewals and the ends of attempts, on one server or in a cluster.
//!
//! While a slot moves to another node, its keys are on both. A script that names several of them is refused there until the
//! whole slot has arrived, which may take longer than a lease. What takes one key works all the time: a renewal does, and
//! an end goes key by key. Everything else waits.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Cmd, Value, cmd};

use super::{
    Redis,
    batch::{Lane, Reply},
    keys::Keys,
    reply,
    script::{self, LatchStep, Op, Step, TOMBSTONE, parts, px},
    topology::{
        Shard, Stop,
        outcome::{self, Resend},
    },
    wake::NO_LINK,
};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{
        Acks, Answer, AnswerAll, Claim, Converted, EngineError, Fault, Format, Fut, Grant, HandedTo, Held,
        Hold, Leases, Mode, Released, Renewed, voter::RENEWALS_PER_CALL,
    },
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

impl Leases for Redis {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move {
            self.capabilities.check(claim)?;
            let keys = self.keys(&claim.name).checked()?;
            let answer = match claim.acks {
                _ if claim.format == Format::Redisson => {
                    Box::pin(self.claim_as_redisson(claim, keys, until)).await
                }
                Acks::None if !self.topology.in_cluster => self.claim_over(None, claim, keys, until).await,
                _ => Box::pin(self.claim_anywhere(claim, keys, until)).await,
            };
            // Nobody owes an end to a claim that had no effect.
            if matches!(&answer, Err(error) if error.fault != Fault::NoAnswer) {
                self.attempts.leave_unless_queued(claim.owner.id());
            }
            answer
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], until: Until) -> Fut<'a, AnswerAll> {
        Box::pin(async move {
            if self.topology.in_cluster {
                return Err(EngineError::new(Fault::Unsupported, "locks of a cluster are on many servers"));
            }
            let mut with_keys = Vec::with_capacity(claims.len());
            for claim in claims {
                self.capabilities.check(claim)?;
                if claim.format == Format::Redisson || claim.acks != Acks::None {
                    let why =
                        "locks in Redisson's format, or that wait for replicas, are granted one at a time";
                    return Err(EngineError::new(Fault::Unsupported, why));
                }
                with_keys.push((self.keys(&claim.name).checked()?, claim));
            }
            let asked_at = self.clock.now();
            let copies = claims.iter().map(|claim| self.attempts.leaves(claim.owner.id(), asked_at));
            let copies = copies.collect::<Result<Vec<_>, _>>()?;
            // An end that comes later may overtake them on any link.
            copies.iter().for_each(|copy| copy.left(u64::MAX));
            let send = |Stop { shard, .. }: Stop| {
                let with_keys = &with_keys;
                async move { shard.lane(&with_keys[0].1.name).claim_all(with_keys, until).await }
            };
            let reply = self.topology.follow(0, Resend::AwaitMigration, until, send).await;
            if !matches!(&reply, Err(error) if error.fault == Fault::NoAnswer) {
                copies.iter().for_each(|copy| copy.answered());
            }
            reply::claimed_all(&reply?, claims, asked_at)
        })
    }

    fn hand_to<'a>(&'a self, hold: &'a Hold, next: &'a Holder, until: Until) -> Fut<'a, HandedTo> {
        Box::pin(async move {
            // Its end would have to leave a tombstone.
            if self.attempts.may_come_late(hold.owner.id(), NO_LINK) {
                return Ok(HandedTo::NotWaiting);
            }
            let op = || Op::new(self.keys(&hold.name), Step::HandTo(hold.clone(), Owner::new(0, next)));
            let handed = reply::handed_to(self.topology.send(&hold.name, op, until).await?.0)?;
            if let HandedTo::Done { .. } = handed {
                self.attempts.end(hold.owner.id());
                self.attempts.registry.ended(hold.owner.id());
            }
            Ok(handed)
        })
    }

    fn shard_of(&self, hold: &Hold) -> u64 {
        self.topology.shard_of(|| self.keys_of(hold).slot())
    }

    /// Servers are asked at the same time: a silent one fails its own leases only.
    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        Box::pin(async move {
            let slots = holds.iter().map(|hold| self.keys_of(hold).slot());
            let together = |shard, places| self.renew_at(shard, holds, places, until);
            Ok(self.topology.send_each(slots, until, together, |at| self.renew_one(&holds[at], until)).await)
        })
    }

    /// Of what several hold, K changes with each that comes or goes: its changes say nothing about a lease. What lies in
    /// Redisson's format is not read as a string.
    fn reports_loss(&self, hold: &Hold) -> bool {
        let is_alone = hold.mode == Mode::Exclusive && hold.format == Format::Plain && hold.of != Held::Latch;
        is_alone && self.topology.connection.tracking.is_on()
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(self.end(Ending::from(hold), until))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        Box::pin(async move { self.end(Ending::from(claim), until).await.map(drop) })
    }

    fn convert<'a>(&'a self, hold: &'a Hold, to: Mode, until: Until) -> Fut<'a, Converted> {
        Box::pin(async move {
            let since = self.clock.now();
            let op = || Op::new(self.keys(&hold.name), Step::Convert(hold.clone(), to));
            reply::converted(self.topology.send(&hold.name, op, until).await?.0, to, since)
        })
    }

    fn set_limit<'a>(&'a self, name: &'a Name, limit: NonZeroU32, until: Until) -> Fut<'a, ()> {
        Box::pin(async move {
            let op = || Op::new(self.keys(name), Step::SetLimit(limit));
            let (value, _) = self.topology.send(name, op, until).await?;
            let asked = Mode::Permits { take: limit, of: limit };
            if value == Value::Int(1) { Ok(()) } else { Err(reply::not_claimed(value, asked)) }
        })
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            let take = async |format| {
                let op = || Op::new(self.keys(name), Step::ForceRelease(seen, format));
                let (value, _) = self.topology.send(name, op, until).await?;
                // Those behind a hundred dead waiters find the lock free at their next poll.
                Ok(reply::released(value, Mode::Exclusive)?.unwrap_or(Released::Free))
            };
            match take(Format::Plain).await {
                Err(EngineError { fault: Fault::WrongType, .. })
                    if self.capabilities.no_redisson.is_none() =>
                {
                    take(Format::Redisson).await
                }
                released => released,
            }
        })
    }
}

/// An attempt that ends.
struct Ending<'a> {
    name: &'a Name,
    owner: &'a Owner,
    mode: Mode,
    format: Format,
    /// That of its grant.
    fence: Option<Fence>,
    /// How it queued, if it may have.
    claim: Option<&'a Claim>,
}

impl<'a> From<&'a Hold> for Ending<'a> {
    fn from(hold: &'a Hold) -> Self {
        let Hold { name, owner, mode, format, fence, .. } = hold;
        Self { name, owner, mode: *mode, format: *format, fence: Some(*fence), claim: None }
    }
}

impl<'a> From<&'a Claim> for Ending<'a> {
    fn from(claim: &'a Claim) -> Self {
        let Claim { name, owner, mode, format, .. } = claim;
        // Nobody queues for what lies in Redisson's format.
        let queued = (*format == Format::Plain).then_some(claim);
        Self { name, owner, mode: *mode, format: *format, fence: None, claim: queued }
    }
}

impl Redis {
    /// A claim in a cluster, or one that waits for replicas.
    async fn claim_anywhere(&self, claim: &Claim, keys: Keys, until: Until) -> Result<Answer, EngineError> {
        let ask = async |claim: &Claim| match claim.acks {
            Acks::None => self.claim_over(None, claim, keys.clone(), until).await,
            _ => self.claim_with_acks(claim, until).await,
        };
        // In a cluster a subscription costs a call per slot, and most locks are free: a first claim asks once.
        let is_first = claim.queue.is_some() && self.attempts.arrival(claim.owner.id()).is_none();
        if is_first && !self.topology.is_subscribed(|| keys.slot()) {
            match ask(&Claim { queue: None, ..claim.clone() }).await? {
                Answer::Busy { .. } => {}
                answer => return Ok(answer),
            }
        }
        ask(claim).await
    }

    /// Sends a claim until it is answered, over a connection of its own if it has one.
    pub(super) async fn claim_over(
        &self,
        dedicated: Option<&Arc<Lane>>,
        claim: &Claim,
        keys: Keys,
        until: Until,
    ) -> Result<Answer, EngineError> {
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
                Some(lane) => Box::pin(lane.run(op(), until)).await.map(|(value, _)| (value, NO_LINK)),
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
        let holders = |told, pttl| reply::holders(told, pttl, claim.mode);
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
                let (last, holders) = (reply::fence(last)?, holders(holder, *pttl)?);
                Ok(Some(Answer::Queued { ahead, holders, last, link }))
            }
            [Value::Int(3), Value::Int(pttl), rest @ ..] => {
                let holders = holders(rest.first().unwrap_or(&Value::Nil), *pttl)?;
                Ok(Some(Answer::Busy { holders }))
            }
            [Value::Int(7)] => Ok(None),
            _ => Err(reply::not_claimed(value, claim.mode)),
        }
    }

    /// Ends an attempt; nothing of it is believed from here on.
    async fn end(&self, ending: Ending<'_>, until: Until) -> Result<Released, EngineError> {
        let Ending { name, owner, mode, format, fence, claim } = ending;
        self.attempts.end(owner.id());
        let keys = self.keys(name);
        let entry = claim.map(|claim| script::entry(claim, &self.topology.channel(name, || keys.slot())));
        let entry = entry.unwrap_or_default();
        let op = || {
            let (owner, entry, attempts) = (owner.clone(), entry.clone(), self.attempts.clone());
            Op::new(keys.clone(), Step::End { owner, mode, format, fence, entry, attempts })
        };
        let mut freed = false;
        let outcome = loop {
            let reply = match self.topology.send(name, op, until).await {
                Err(error) if outcome::is_try_again(&error) => {
                    let by_single_keys = async {
                        self.leave_by_single_keys(owner, &keys, &entry, until).await?;
                        // Nobody is handed the lock: who waits finds it free at its next poll.
                        let by_one = || match mode {
                            Mode::Exclusive => op().alone(),
                            mode => {
                                let step =
                                    Step::MoveEnd { owner: owner.clone(), mode, lasts: Duration::ZERO };
                                Op::new(keys.clone(), step)
                            }
                        };
                        self.topology.send(name, by_one, until).await
                    };
                    Box::pin(by_single_keys).await
                }
                reply => reply,
            };
            match reply::released(reply?.0, mode)? {
                // Dead waiters were removed and the lock is free; the next round serves those behind them.
                None => freed = true,
                Some(Released::Expired) if freed => break Released::Free,
                Some(Released::Taken { by }) if freed => break Released::handed_over(by),
                Some(outcome) => break outcome,
            }
        };
        self.attempts.registry.ended(owner.id());
        Ok(outcome)
    }

    /// Removes all of an attempt but the lock, key by key.
    async fn leave_by_single_keys(
        &self,
        owner: &Owner,
        keys: &Keys,
        entry: &str,
        until: Until,
    ) -> Result<(), EngineError> {
        let mut commands = Vec::new();
        if self.attempts.may_come_late(owner.id(), NO_LINK) {
            let gone = keys.gone(owner.id_text());
            commands.push(cmd("SET").arg(gone).arg(1).arg("PX").arg(px(TOMBSTONE)).clone());
        }
        if !entry.is_empty() {
            commands.push(cmd("ZREM").arg(keys.waiters()).arg(entry).clone());
            commands.push(cmd("HDEL").arg(keys.seen()).arg(parts(owner).0).clone());
        }
        for command in &commands {
            self.send_to_slot(keys.slot(), command, until).await?;
        }
        Ok(())
    }

    /// A command on one key, wherever that is while its slot moves.
    async fn send_to_slot(&self, slot: u16, command: &Cmd, until: Until) -> Result<Value, EngineError> {
        let send = |Stop { shard, asking }: Stop| async move {
            shard.connection().link(until).await?.send_to(asking, command, until).await
        };
        self.topology.follow(slot, Resend::AwaitMigration, until, send).await
    }

    /// All that one server has, over the connections of their names.
    async fn renew_at(
        &self,
        shard: Arc<Shard>,
        holds: &[Hold],
        places: Vec<usize>,
        until: Until,
    ) -> Vec<Result<Renewed, EngineError>> {
        let hold = |nth: usize| &holds[places[nth]];
        let lane = |nth: usize| shard.lane(&hold(nth).name);
        let mut order: Vec<_> = (0..places.len()).map(|nth| (Arc::as_ptr(lane(nth)).addr(), nth)).collect();
        order.sort_unstable();
        let of_lanes = order.chunk_by(|(one, _), (other, _)| one == other);
        let calls = of_lanes.flat_map(|some| some.chunks(RENEWALS_PER_CALL)).map(async |some| {
            let renew = |hold: &Hold| Op::new(self.keys_of(hold), Step::Renew(hold.clone()));
            let ops: Vec<_> = some.iter().map(|(_, nth)| renew(hold(*nth))).collect();
            let since = self.clock.now();
            let (values, link) = lane(some[0].1).call(&ops, until).await;
            let renewed = values.into_iter().map(|value| reply::renewed(value?, since, link));
            some.iter().map(|(_, nth)| *nth).zip(renewed).collect::<Vec<_>>()
        });
        let mut results: Vec<_> = places.iter().map(|_| Err(EngineError::no_answer())).collect();
        for (nth, result) in join_all(calls).await.into_iter().flatten() {
            results[nth] = result;
        }
        results
    }

    /// Follows a lease to where it is.
    async fn renew_one(&self, hold: &Hold, until: Until) -> Result<Renewed, EngineError> {
        let since = self.clock.now();
        // In a call of its own it takes one key, which can be found while the slot is moving.
        let op = || Op::new(self.keys_of(hold), Step::Renew(hold.clone())).alone();
        let (value, link) = match self.topology.send(&hold.name, op, until).await {
            Err(error) if outcome::is_try_again(&error) => {
                Box::pin(self.renew_by_single_keys(hold, until)).await?
            }
            reply => reply?,
        };
        reply::renewed(value, since, link)
    }

    /// Renews a reader or permits key by key: first its own end, then what is known of it, then the lock itself. The first
    /// and the last must know of it. Of a participant of a latch its own end is enough.
    async fn renew_by_single_keys(&self, hold: &Hold, until: Until) -> Reply {
        let op = |step| Op::new(self.keys_of(hold), step);
        if hold.of == Held::Latch {
            let own_end = || op(Step::Latch(LatchStep::MoveEnd(hold.clone())));
            return self.topology.send(&hold.name, own_end, until).await;
        }
        let (owner, mode, lasts) = (&hold.owner, hold.mode, hold.ttl + hold.lock_delay);
        let own_end = || op(Step::MoveEnd { owner: owner.clone(), mode, lasts });
        let reply = self.topology.send(&hold.name, own_end, until).await?;
        if reply.0 != Value::Int(1) {
            return Ok(reply);
        }
        let keys = self.keys_of(hold);
        let known = &cmd("PEXPIRE").arg(keys.members()).arg(px(lasts)).arg("GT").clone();
        self.send_to_slot(keys.slot(), known, until).await?;
        self.topology.send(&hold.name, || op(Step::MoveLastEnd(lasts)), until).await
    }
}
