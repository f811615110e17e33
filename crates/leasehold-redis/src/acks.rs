//! Claims that wait for replicas.
//!
//! WAIT answers for what its own connection wrote, and blocks all that comes behind it. So such a claim and the WAIT after it
//! have a connection to themselves, out of a small pool. WAIT is sent once the lock is granted: an attempt that is only
//! queued, or refused, is told at once and leaves its connection as it was.
//!
//! An attempt in the queue polls over its lane, without WAIT. When a poll says that the lock is its own, it claims again
//! here: that refreshes the ttl, which is a write, so replicas that acknowledge it have the grant too, whoever wrote that.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::{OptionFuture, join};
use redis::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    Redis,
    batch::Lane,
    connection::{ConnectionOptions, Link, closed},
    info::Info,
    reply,
    topology::{Stop, outcome::Resend},
    wake::NO_LINK,
};
use leasehold_core::{
    clock::Until,
    engine::{Acks, Answer, Claim, EngineError, Fault, Grant},
    error::Refusal,
};

/// Claims of one client that can wait for replicas of one server at the same time, and connections that they have for it.
const CONNECTIONS_MAX: usize = 16;
/// Most time that the reply to a WAIT is given to reach us.
const WAIT_REPLY_MAX: Duration = Duration::from_secs(1);

impl Redis {
    /// Sends a claim that counts only once replicas have it.
    pub(super) async fn claim_with_acks(&self, claim: &Claim, until: Until) -> Result<Answer, EngineError> {
        if self.attempts.arrival(claim.owner.id()).is_some() {
            match self.claim_over(None, claim, self.keys(&claim.name), until).await? {
                Answer::Granted(_) => {}
                other => return Ok(other),
            }
        }
        let slot = self.topology.slot(|| self.keys(&claim.name).slot());
        let call = |stop: Stop| async move {
            if stop.asking {
                let why = "the lock is on its way to another node of the cluster";
                return Err(EngineError::new(Fault::Unreachable, why));
            }
            // Before it may queue, although its wake-ups come over another connection.
            if claim.queue.is_some() {
                self.topology.subscribe(&stop, &claim.name, slot, until).await?;
            }
            let mut checkout = stop.shard.pool.take(until).await?;
            let link = checkout.lane.connection.link(until).await?;
            checkout.busy = true;
            let answer = self.claim_and_wait(&checkout, &link, claim, until).await;
            checkout.busy = matches!(&answer, Err(error) if error.fault == Fault::NoAnswer);
            answer
        };
        self.topology.follow(slot, Resend::AwaitMigration, until, call).await
    }

    async fn claim_and_wait(
        &self,
        Checkout { lane, pool, .. }: &Checkout,
        link: &Link,
        claim: &Claim,
        until: Until,
    ) -> Result<Answer, EngineError> {
        // Where nobody else keeps count, the server is asked how many replicas it has.
        let known = lane.connection.options.sentinels.as_ref().and_then(|sentinels| sentinels.replicas());
        let counts = claim.acks == Acks::Majority && known.is_none();
        let replicas = || known.unwrap_or_else(|| pool.seen.load(Ordering::Relaxed));
        if counts && replicas() == 0 {
            pool.count(link, until).await?;
        }
        if claim.acks == Acks::Majority && replicas() == 0 {
            let why = "no replica is known, and a majority of one copy protects nothing";
            return Err(EngineError::new(Fault::Refused(Refusal::TooFewAcks), why));
        }
        let count = OptionFuture::from(counts.then(|| pool.count(link, until)));
        let (_counted, answer) =
            join(count, self.claim_over(Some(lane), claim, self.keys(&claim.name), until)).await;
        let grant = match answer? {
            Answer::Granted(grant) => grant,
            other => return Ok(other),
        };
        // A grant that came over another link is not what WAIT would answer for.
        if lane.connection.link(until).await.map_or(NO_LINK, |present| present.number) != link.number {
            return Err(EngineError::new(Fault::NoAnswer, "the connection was replaced"));
        }
        let acks = pool.wait(link, needed(claim.acks, replicas()), claim.ttl, until).await?;
        self.attempts.leave(claim.owner.id());
        Ok(Answer::Granted(Grant { acks, ..grant }))
    }
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
    let wait = left.saturating_sub((left / 8).min(WAIT_REPLY_MAX)).min(ttl / 2);
    // Zero would mean for ever.
    (wait.as_millis() as u64).max(1)
}

/// Connections to one server for claims that wait for replicas, one each.
pub(super) struct Pool {
    connection: ConnectionOptions,
    by_slot: bool,
    idle: Mutex<Vec<Arc<Lane>>>,
    permits: Arc<Semaphore>,
    /// The most replicas that the server was seen with: one that is down is still a copy.
    seen: AtomicU32,
}

impl Pool {
    /// An empty pool; nobody is woken over its connections.
    pub(super) fn new(connection: ConnectionOptions, by_slot: bool) -> Arc<Self> {
        Arc::new(Self {
            connection: ConnectionOptions { listener: None, ..connection },
            by_slot,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            seen: AtomicU32::new(0),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that nobody else uses, not dialled yet: one whose dial nobody waits for any more goes on for the next
    /// claim.
    async fn take(self: &Arc<Self>, until: Until) -> Result<Checkout, EngineError> {
        let Some(permit) = self.connection.clock.bounded(until, self.permits.clone().acquire_owned()).await
        else {
            let why = format!("{CONNECTIONS_MAX} claims wait for replicas already");
            return Err(EngineError::new(Fault::Overloaded, why));
        };
        let permit = permit.map_err(|_| closed())?;
        let mut idle = self.idle();
        if self.permits.is_closed() {
            return Err(closed());
        }
        let lane = idle.pop().unwrap_or_else(|| Lane::new(self.connection.clone(), 1, self.by_slot));
        Ok(Checkout { lane, pool: self.clone(), busy: false, _permit: permit })
    }

    /// Counts the replicas that are connected.
    async fn count(&self, link: &Link, until: Until) -> Result<(), EngineError> {
        let info = link.send(redis::cmd("INFO").arg("replication"), until).await?;
        let connected = Info::parse(&info).number("connected_slaves").unwrap_or(0);
        self.seen.fetch_max(u32::try_from(connected).unwrap_or(u32::MAX), Ordering::Relaxed);
        Ok(())
    }

    /// Waits until so many replicas have what was written over this link; answers how many have it.
    async fn wait(&self, link: &Link, needed: u8, ttl: Duration, until: Until) -> Result<u8, EngineError> {
        let left = until.since(self.connection.clock.now());
        let answer = link.send(redis::cmd("WAIT").arg(needed).arg(patience(left, ttl)), until).await;
        let reached = match answer {
            Ok(Value::Int(reached)) => u8::try_from(reached).unwrap_or(u8::MAX),
            Ok(other) => return Err(reply::unexpected(&other)),
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

    pub(super) fn close(&self) {
        let mut idle = self.idle();
        self.permits.close();
        idle.drain(..).for_each(|lane| lane.connection.close());
    }
}

/// A connection that one claim has to itself. Dropped while something is unanswered, it is closed: whoever came next would
/// wait behind that.
struct Checkout {
    lane: Arc<Lane>,
    pool: Arc<Pool>,
    busy: bool,
    /// Dropped last, so that a connection is closed before the next claim gets the permit.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let mut idle = self.pool.idle();
        if self.busy || self.pool.permits.is_closed() {
            self.lane.connection.close();
        } else {
            idle.push(self.lane.clone());
        }
    }
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
