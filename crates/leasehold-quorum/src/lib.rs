//! A majority of independent nodes holds the lock.
//!
//! Nodes know nothing of each other: each votes for itself ([`Voter`]), and the client counts (`count`). All nodes are
//! asked at once, a majority decides, and dead or slow nodes are not waited for. Fences come from the votes.
//! A node that lost its data abstains until every lease it might have granted has expired (`readmission`).

mod admission;
mod count;
mod health;
mod inspect;
mod lane;
mod membership;
mod no_quorum;
mod readmission;
mod release;
mod renewal;
mod round;
mod votes;
mod watch;

use std::future::ready;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use count::{Count, Verdict, majority};
pub use health::WARNING_CODES;
use leasehold_core::clock::{Clock, Until};
use leasehold_core::engine::{
    Answer, Capabilities, Claim, Converted, Engine, EngineError, EngineOptions, Fault, Fut, Handover, Health,
    Hold, Inspect, Leases, Member, Members, Mode, Reach, Released, Renewed, Rounds, WakeSink,
    deadlines::Deadlines,
    latches::Latches,
    records::Records,
    registry::{Call, Registry},
    voter::{OPS_PER_CALL, Voter},
};
use leasehold_core::{Fence, Name, name::NAME_MAX_BYTES};
use membership::VotingStatus;
pub use membership::list_of;

type Result<T, E = EngineError> = std::result::Result<T, E>;
/// An attempt that is under way; it knows of its end.
type Attempt = Call<()>;

/// Rounds under way at once; the others wait for their turn. What a client sends at once then reaches the nodes soon, and
/// the time of a lease and the patience with a node begin when it is sent, not when it was asked for. Few enough that a
/// round on a busy machine does not wait longer for the others of its client than a node may take: a few calls.
const TURNS: usize = lane::CALLS_AT_ONCE * OPS_PER_CALL / 2;

const NO_PERMITS: &str = "nodes that know nothing of each other cannot count permits: two majorities of three nodes share one, \
     so a limit of 2 lets 3 in; keep semaphores on one Redis, behind sentinels or in a cluster";
const NO_CONVERT: &str = "nodes that know nothing of each other do not change in one step: a mode that only some of them have \
     changed belongs to neither; release the lock and acquire it in the other mode";

/// The engine behind `redlock://`.
pub struct Quorum {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

/// What the engine and its background work share.
struct Shared {
    voters: Vec<Arc<dyn Voter>>,
    /// What stands for their addresses: see [`list_of`].
    list: String,
    options: EngineOptions,
    members: Mutex<Vec<VotingStatus>>,
    /// Why the last attempt to readmit each node failed.
    refusals: Mutex<Vec<Option<String>>>,
    watches: tokio::sync::Mutex<readmission::Watches>,
    /// Attempts under way: nothing of them is sent once their end has begun, although its withdrawals may not have left.
    attempts: Arc<Registry<()>>,
    /// The highest fence seen in any vote, so that a client whose clock is behind still asks for one that all can give.
    highest: AtomicU64,
    /// Grants so far, and how many of their votes had to be confirmed.
    granted: AtomicU64,
    confirmed: AtomicU64,
    /// Turns of votes and of withdrawals: a release must not wait for claims that no node answers.
    votes: Semaphore,
    ends: Semaphore,
    /// Rounds since the last one that a majority decided.
    in_vain: AtomicUsize,
    /// An operator allowed nodes to be readmitted although too few others vote to learn from.
    by_the_clock: AtomicBool,
    /// What goes on after the caller has its answer: votes that come late, repairs.
    late: TaskTracker,
    /// What is asked of each node, and the withdrawals that each must still hear of: those of one that hangs must not use
    /// up what the others need.
    lanes: Vec<lane::Lane>,
    owed: Vec<Mutex<release::Owed>>,
    closed: CancellationToken,
    readmission: Mutex<Option<JoinHandle<()>>>,
    /// Makes the readmission task inspect the nodes at once.
    wake: Arc<Notify>,
}

impl Quorum {
    /// A quorum over these nodes. Nothing is dialled.
    pub fn over(voters: Vec<Arc<dyn Voter>>, options: EngineOptions) -> Self {
        let name_max_bytes = NAME_MAX_BYTES - options.prefix.len();
        let capabilities = Capabilities::new("redlock", Reach::Network, Handover::Pull, true, name_max_bytes)
            .without_order()
            .without_acks("a quorum's grant is on a majority of nodes by itself; its nodes have no replicas")
            .with_shared()
            .without_permits(NO_PERMITS)
            .without_convert(NO_CONVERT);
        let wake = Arc::new(Notify::new());
        voters.iter().for_each(|voter| voter.on_disconnect(wake.clone()));
        let shared = Shared {
            list: list_of(voters.iter().map(|voter| voter.label())),
            members: Mutex::new(vec![VotingStatus::Unknown; voters.len()]),
            refusals: Mutex::new(vec![None; voters.len()]),
            watches: Default::default(),
            lanes: voters.iter().map(|_| lane::Lane::default()).collect(),
            owed: voters.iter().map(|_| Mutex::default()).collect(),
            voters,
            options,
            attempts: Arc::default(),
            highest: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            votes: Semaphore::new(TURNS),
            ends: Semaphore::new(TURNS),
            in_vain: AtomicUsize::new(0),
            by_the_clock: AtomicBool::new(false),
            late: TaskTracker::new(),
            closed: CancellationToken::new(),
            readmission: Mutex::default(),
            wake,
        };
        Self { shared: Arc::new(shared), capabilities }
    }
}

impl Shared {
    fn n(&self) -> usize {
        self.voters.len()
    }

    fn majority(&self) -> usize {
        majority(self.n())
    }

    fn clock(&self) -> &Clock {
        &self.options.clock
    }

    /// How long one node may take, well below the ttl: a slow node must not eat up what a majority gave.
    fn node_until(&self, ttl: Duration, until: Until) -> Until {
        let patience = (ttl / 4).max(Duration::from_millis(100)).min(self.options.command_timeout);
        until.min(self.clock().now() + patience)
    }

    /// Waits for a turn, for at most half of the time: the rest is for what follows. A client that is busy does not report
    /// its nodes as unreachable.
    async fn turn<'a>(&self, turns: &'a Semaphore, until: Until) -> Result<SemaphorePermit<'a>> {
        if let Ok(turn) = turns.try_acquire() {
            return Ok(turn);
        }
        let now = self.clock().now();
        match self.clock().bounded(now + until.since(now) / 2, turns.acquire()).await {
            Some(Ok(turn)) => Ok(turn),
            _ if self.in_vain.load(Ordering::Relaxed) >= TURNS => Err(EngineError::no_answer()),
            _ => Err(EngineError::new(Fault::Busy, format!("{TURNS} operations are under way already"))),
        }
    }

    /// The last node that failed, as errors name it.
    fn blame(&self, failed: Option<&(usize, EngineError)>) -> String {
        failed.map_or_else(String::new, |(node, error)| format!("; {}: {error}", self.voters[*node].label()))
    }

    /// A round is over, decided by a majority or not.
    fn ended_round(&self, is_decided: bool) {
        if is_decided {
            self.in_vain.store(0, Ordering::Relaxed);
        } else {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The fence to ask for: one that no node has given yet, as far as this client knows. A node refuses one that is far
    /// from its own time, so what others saw counts only when it is near ours.
    fn hint(&self) -> Fence {
        const NEAR_US: u64 = 30_000_000;
        let now = self.clock().wall_us();
        let next = self.highest.load(Ordering::Relaxed) + 1;
        Fence::new(if next.saturating_sub(now) <= NEAR_US { now.max(next) } else { now })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for Quorum {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn inspector(&self) -> &dyn Inspect {
        self
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        self.shared.voters.iter().for_each(|voter| voter.set_wake_sink(sink.clone()));
    }

    fn records(&self) -> Result<&dyn Records, &'static str> {
        Err(
            "a result stored on a majority of nodes can be missing from the next majority: keep records on one Redis, \
             behind sentinels or in a cluster",
        )
    }

    fn latches(&self) -> Result<&dyn Latches, &'static str> {
        Err(
            "nodes that know nothing of each other cannot agree on who was counted: keep latches on one Redis, behind \
             sentinels or in a cluster",
        )
    }

    fn deadlines(&self) -> Result<&dyn Deadlines, &'static str> {
        Err(
            "nodes that know nothing of each other cannot agree on what was claimed: keep deadlines on one Redis, \
             behind sentinels or in a cluster",
        )
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(self.shared.refresh(until))
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        Box::pin(self.shared.inspect_health(until))
    }

    fn members(&self) -> Option<&dyn Members> {
        Some(self)
    }

    fn close(&self, until: Until) -> Fut<'_, ()> {
        let shared = self.shared.clone();
        Box::pin(async move {
            shared.closed.cancel();
            shared.late.close();
            // What a minority did not answer ends with its ttl.
            let settled = shared.late.wait();
            // Clients that live for a moment count, too.
            let counted = async {
                let is_watching = !shared.watches.lock().await.is_empty();
                if is_watching {
                    shared.inspect_nodes().await;
                }
            };
            let _over = shared.clock().bounded(until, join(settled, counted)).await;
            shared.voters.iter().for_each(|voter| voter.close());
            Ok(())
        })
    }
}

impl Leases for Quorum {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move {
            self.capabilities.check(claim)?;
            self.shared.claim(claim, until).await
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed>>> {
        Box::pin(async move { Ok(self.shared.renew(holds, until).await) })
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        let held = (&hold.name, &hold.owner, hold.mode);
        Box::pin(self.shared.end(held, hold.ttl + hold.lock_delay, until))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        let lapses_in = claim.ttl + claim.lock_delay;
        let held = (&claim.name, &claim.owner, claim.mode);
        Box::pin(async move { self.shared.end(held, lapses_in, until).await.map(drop) })
    }

    fn convert<'a>(&'a self, _: &'a Hold, _: Mode, _: Until) -> Fut<'a, Converted> {
        Box::pin(ready(Err(EngineError::new(Fault::Unsupported, NO_CONVERT))))
    }

    fn set_limit<'a>(&'a self, _: &'a Name, _: NonZeroU32, _: Until) -> Fut<'a, ()> {
        Box::pin(ready(Err(EngineError::new(Fault::Unsupported, NO_PERMITS))))
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        Box::pin(self.shared.force_release(name, seen, until))
    }
}

impl Members for Quorum {
    fn list(&self, until: Until) -> BoxFuture<'_, Vec<Member>> {
        Box::pin(self.shared.list_members(until))
    }

    fn admit_new(&self, over: bool, until: Until) -> Fut<'_, ()> {
        Box::pin(self.shared.admit_new(over, until))
    }

    fn admit(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(self.shared.admit(until))
    }

    fn rounds(&self) -> Rounds {
        let Shared { granted, confirmed, .. } = &*self.shared;
        Rounds { granted: granted.load(Ordering::Relaxed), confirmed: confirmed.load(Ordering::Relaxed) }
    }
}
