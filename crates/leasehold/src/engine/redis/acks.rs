//! Claims that wait for replicas.
//!
//! WAIT answers for what its own connection wrote, and blocks all that comes behind it. So such a claim has a connection
//! to itself, out of a small pool, and the WAIT leaves right behind it. The claim's own answer comes before the WAIT's:
//! an attempt that is only queued, or refused, is told at once.
//!
//! An attempt in the queue polls over its lane, without WAIT. When a poll or a hand-over says that the lock is its own, it
//! claims again here: that refreshes the ttl, which is a write, so replicas that acknowledge it have the grant too,
//! whoever wrote that.

mod pool;

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::{self, MaybeDone, OptionFuture};
use redis::{Cmd, Value};

pub(super) use self::pool::Pool;
use self::pool::{Asked, DedicatedConnection};
use super::{
    Redis,
    answer::{self, Claimed},
    info::Info,
    script::{self, Call, Op},
    topology::{Stop, outcome, outcome::Resend},
    wake::NO_MESSAGES,
};
use crate::{
    clock::Until,
    engine::{Acks, Answer, Claim, EngineError, Fault, Grant},
    error::Refusal,
};

/// Most time that the answer to a WAIT is given to come back to us.
const WAY_BACK: Duration = Duration::from_millis(250);

impl Redis {
    /// Sends a claim that counts only once replicas have it; `None` if dead waiters were removed and those behind them
    /// come next.
    pub(super) async fn claim_with_acks(
        &self,
        claim: &Claim,
        arrival: Option<String>,
        until: Until,
    ) -> Result<Option<Answer>, EngineError> {
        let owner = &claim.owner;
        if arrival.is_some() && !self.attempts.was_called(owner.id()) {
            match self.claim_once(claim, arrival.clone(), until).await? {
                Some(Answer::Granted(_)) => self.attempts.call(owner.id()),
                other => return Ok(other),
            }
        }
        let slot = self.topology.slot(|| self.keys(&claim.name).slot());
        let arrival = &arrival;
        let call = |stop: Stop| async move {
            if stop.asking {
                let why = "the lock is on its way to another node of the cluster";
                return Err(EngineError::new(Fault::Unreachable, why));
            }
            // Before it may queue, although its wake-ups come over another connection.
            let lane = match claim.queue {
                Some(_) => self.topology.subscribe(&stop, &claim.name, slot, until).await?,
                None => stop.shard.lane(&claim.name),
            };
            let channel = self.topology.channel(slot);
            let channel = channel.as_deref().unwrap_or(lane.connection.channel());
            let route = Route { pool: &stop.shard.pool, channel };
            self.claim_and_wait(route, claim, arrival.clone(), until).await
        };
        self.topology.follow(slot, Resend::AwaitMigration, until, call).await
    }

    async fn claim_and_wait(
        &self,
        route: Route<'_>,
        claim: &Claim,
        arrival: Option<String>,
        until: Until,
    ) -> Result<Option<Answer>, EngineError> {
        let Route { pool, channel } = route;
        let mut own = pool.take(until).await?;
        let mut by_hash = true;
        loop {
            own.look_for_replicas(claim.acks, until).await?;
            let asked_at = self.clock.now();
            // As for every claim: either its end sees this one, or this one sees its end.
            let call = self.attempts.leaves(claim.owner.id(), asked_at)?;
            let op = Op::claim(self.keys(&claim.name), claim, arrival.clone(), call.clone());
            let era = own.link.identity.as_deref().zip(pool.grace);
            let cmd = pool.scripts.build(Call::Locks, by_hash, [&op].into_iter(), channel, era);
            let sent = own.claim(cmd, claim, until).await;
            if !matches!(&sent.claimed, Err(error) if error.fault == Fault::NoAnswer) {
                self.attempts.answered(&call);
            }
            match sent.claimed {
                Ok(Claimed::Granted(fence)) => {
                    let acks = own.acknowledged(claim, sent.needed, sent.waited, until).await?;
                    if claim.queue.is_some() {
                        self.attempts.leave(claim.owner.id());
                    }
                    let grant = Grant { fence, since: asked_at, ttl: claim.ttl, acks };
                    return Ok(Some(Answer::Granted(grant)));
                }
                Err(error) if by_hash && outcome::is_unknown_script(&error) => by_hash = false,
                Ok(Claimed::MoreWait) => {}
                claimed => {
                    own.ignore(sent.waited);
                    return Ok(self.heard(claim, claimed?, asked_at, NO_MESSAGES));
                }
            }
            own = own.again(sent.waited, until).await?;
        }
    }
}

/// How a claim that waits for replicas goes.
#[derive(Clone, Copy)]
struct Route<'a> {
    pool: &'a Arc<Pool>,
    /// Where its waiters are woken.
    channel: &'a str,
}

fn only(value: Value) -> Result<Value, EngineError> {
    script::replies(value, 1).map(|mut replies| replies.remove(0))
}

/// How many acknowledgements a claim needs where there are so many replicas.
fn needed(acks: Acks, replicas: u32) -> u8 {
    match acks {
        Acks::None => 0,
        Acks::AtLeast(least) => least,
        // Of all copies more than half, and the primary's own is one of them.
        Acks::Majority => u8::try_from(replicas.div_ceil(2)).unwrap_or(u8::MAX),
    }
}

/// How long the server shall wait: its answer must still reach us in time, and leave something of the lease.
fn patience(left: Duration, ttl: Duration) -> u64 {
    let wait = left.saturating_sub((left / 8).min(WAY_BACK)).min(ttl / 2);
    // Zero would mean for ever.
    (wait.as_millis() as u64).max(1)
}

/// A claim that was answered, and the WAIT behind it.
struct Sent {
    claimed: Result<Claimed, EngineError>,
    /// The acknowledgements that WAIT waits for.
    needed: u8,
    waited: MaybeDone<Asked>,
}

impl DedicatedConnection {
    /// Makes sure that a majority is more than the primary alone.
    async fn look_for_replicas(&mut self, acks: Acks, until: Until) -> Result<(), EngineError> {
        if acks != Acks::Majority {
            return Ok(());
        }
        self.known = self.checkout.connection.target().sentinels().and_then(|sentinels| sentinels.replicas());
        if self.counts_replicas(acks) && self.replicas() == 0 {
            self.checkout.busy = true;
            let answer = self.ask(replication(), until).await;
            self.answered(&answer);
            self.count(&answer?);
        }
        if self.replicas() > 0 {
            return Ok(());
        }
        let why = "no replica is known, and a majority of one copy protects nothing";
        Err(EngineError::new(Fault::Refused(Refusal::TooFewAcks), why))
    }

    /// Whether the server itself has to say how many replicas there are.
    fn counts_replicas(&self, acks: Acks) -> bool {
        acks == Acks::Majority && self.known.is_none()
    }

    fn replicas(&self) -> u32 {
        self.known.unwrap_or_else(|| self.checkout.pool.seen.load(Ordering::Relaxed))
    }

    fn count(&self, info: &Value) {
        let connected = Info::parse(info).number("connected_slaves").unwrap_or(0);
        self.checkout.pool.seen.fetch_max(u32::try_from(connected).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    fn wait(&self, claim: &Claim, needed: u8, until: Until) -> Asked {
        let left = until.since(self.checkout.pool.clock.now());
        let mut wait = redis::cmd("WAIT");
        wait.arg(needed).arg(patience(left, claim.ttl));
        self.ask(wait, until)
    }

    /// Sends a claim and a WAIT right behind it, and waits for the claim's answer.
    async fn claim(&mut self, cmd: Cmd, claim: &Claim, until: Until) -> Sent {
        self.checkout.busy = true;
        let count = self.counts_replicas(claim.acks).then(|| self.ask(replication(), until));
        let needed = needed(claim.acks, self.replicas());
        let mut waited = future::maybe_done(self.wait(claim, needed, until));
        let mut asked = future::join(OptionFuture::from(count), self.ask(cmd, until));
        let (counted, claimed) = poll_fn(|cx| {
            let answers = Pin::new(&mut asked).poll(cx);
            // Polled after the claim, and so sent after it.
            let _later = Pin::new(&mut waited).poll(cx);
            answers
        })
        .await;
        if let Some(Ok(info)) = &counted {
            self.count(info);
        }
        let claimed = claimed.and_then(|value| only(value).and_then(answer::claimed));
        let claimed = claimed.map_err(|error| self.link.refused(error));
        Sent { claimed, needed, waited }
    }

    /// How many replicas acknowledged a grant.
    async fn acknowledged(
        &mut self,
        claim: &Claim,
        asked_for: u8,
        mut waited: MaybeDone<Asked>,
        until: Until,
    ) -> Result<u8, EngineError> {
        Pin::new(&mut waited).await;
        let mut answer = Pin::new(&mut waited).take_output().unwrap_or_else(|| Err(EngineError::no_answer()));
        // More replicas than were known when it was sent.
        let needed = needed(claim.acks, self.replicas());
        if needed > asked_for && answer.is_ok() {
            answer = self.wait(claim, needed, until).await;
        }
        self.answered(&answer);
        let reached = match answer {
            Ok(Value::Int(reached)) => u8::try_from(reached).unwrap_or(u8::MAX),
            Ok(other) => return Err(answer::unexpected(&other)),
            Err(error) if error.fault == Fault::Refused(Refusal::Acl) => return Err(error),
            // It was granted, whatever became of the WAIT.
            Err(error) => return Err(EngineError { fault: Fault::NoAnswer, ..error }),
        };
        if reached >= needed {
            return Ok(reached);
        }
        let why = format!("{reached} of {needed} replicas acknowledged");
        Err(EngineError::new(Fault::Refused(Refusal::TooFewAcks), why))
    }
}

/// Asks the server how many replicas it has.
fn replication() -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_majority_is_more_than_half_of_all_copies() {
        for (replicas, acks) in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (1000, 255)] {
            assert_eq!(needed(Acks::Majority, replicas), acks, "{replicas} replicas");
        }
        assert_eq!(needed(Acks::AtLeast(3), 1), 3);
    }

    #[test]
    fn the_server_never_waits_for_ever_nor_longer_than_the_caller_or_half_the_lease() {
        assert_eq!(patience(2000 * MS, 60_000 * MS), 1750);
        assert_eq!(patience(80 * MS, 60_000 * MS), 70);
        assert_eq!(patience(2000 * MS, 1000 * MS), 500);
        for left in [Duration::ZERO, MS / 2, MS] {
            assert_eq!(patience(left, 60_000 * MS), 1);
        }
    }
}
