//! The contract every store keeps.
//!
//! An engine does the I/O of one kind of store and decides nothing that is not atomic in that store.
//! Validity, waiting, keep-alive, retries and metrics are layers above it, the same for all engines.
//! The contract is public so that wrappers and other stores can be checked with the conformance suite of
//! `leasehold-testkit`; applications use `Leasehold`.

use std::{future::Future, num::NonZeroU32, pin::Pin, sync::Weak, time::Duration};

use serde::Serialize;

use crate::{
    clock::{Clock, Until},
    error::Refusal,
    fence::Fence,
    name::Name,
    owner::Holder,
};

mod capabilities;
pub mod crc16;
mod cursor;
pub mod deadlines;
mod inspect;
pub mod latches;
mod lease;
mod members;
#[cfg(feature = "memory")]
pub mod memory;
pub mod nodes;
pub mod records;
pub mod registry;
mod schema;
pub mod voter;
mod watch;

pub use capabilities::{Atomic, Capabilities, Handover, Reach};
pub use cursor::{Cursor, Page};
pub(crate) use cursor::{Listing, all_items};
pub use inspect::{HOLDERS_SHOWN, Inspect, Inspection, Tenure, WAITERS_SHOWN, Waiter};
pub use lease::{
    Acks, Answer, AnswerAll, Claim, Converted, Format, Grant, HandedTo, Held, Hold, Holders, LossHint, Mode,
    Queue, Released, Renewed, Wake,
};
pub use members::{Member, MemberState, Members, Rounds};
pub use nodes::ClockOffset;
pub use schema::{Installed, Schema};
pub use watch::{Change, ChangeKind, Changes, WATCHED_MAX, Watch, Watched};

/// The future of an engine call.
///
/// Every call ends by its `until`. Dropping the future may leave its effect behind: whoever dropped it owes
/// an [`abandon`](Leases::abandon) or [`release`](Leases::release) with the same owner.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>;

/// What an engine needs besides its URL.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Where the time comes from.
    pub clock: Clock,
    /// Longest wait for one command's answer.
    pub command_timeout: Duration,
    /// What precedes a name in a shared store.
    pub prefix: String,
    /// Connections to one server.
    pub connections: usize,
    /// Most operations under way at once.
    pub max_in_flight: usize,
    /// How this client calls itself to the server.
    pub client_name: String,
    /// Longest ttl, and longest lock-delay.
    pub max_ttl: Duration,
}

/// A store.
pub trait Engine: Send + Sync + 'static {
    /// What it can do, as plain data.
    fn capabilities(&self) -> &Capabilities;
    /// Its leases.
    fn leases(&self) -> &dyn Leases;
    /// What people may see of them.
    fn inspector(&self) -> &dyn Inspect;
    /// Its records, or why it keeps none.
    fn records(&self) -> Result<&dyn records::Records, &'static str> {
        Err("this store keeps no records")
    }
    /// Its deadlines, or why it keeps none.
    fn deadlines(&self) -> Result<&dyn deadlines::Deadlines, &'static str> {
        Err("this store keeps no deadlines")
    }
    /// Its latches and barriers, or why it has none.
    fn latches(&self) -> Result<&dyn latches::Latches, &'static str> {
        Err("this store has no latches")
    }
    /// How often the store was asked and its answer waited for, if that is counted. What is asked of several servers at
    /// the same time counts for each.
    fn round_trips(&self) -> Option<u64> {
        None
    }
    /// Reaches the store once, so that a wrong address or password shows before the first lock.
    fn connect(&self, until: Until) -> Fut<'_, ()>;
    /// What an operator should know about the store.
    fn health(&self, until: Until) -> Fut<'_, Health>;
    /// The members, where a majority of them decides.
    fn members(&self) -> Option<&dyn Members> {
        None
    }
    /// What must be installed before it is used, if anything must.
    fn schema(&self) -> Option<&dyn Schema> {
        None
    }
    /// Where wake-ups go. Called once, before the first claim. Hints may be lost; a waiter always polls too. The sink is
    /// gone when its client is.
    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>);
    /// Gives back connections and files.
    fn close(&self, until: Until) -> Fut<'_, ()>;
}

/// Leases of locks, of running records and of participants of latches. Every operation is atomic in the store.
pub trait Leases: Send + Sync {
    /// Asks for the lease, or asks again. The same owner gets the same answer, never a second count; a claim
    /// that finds itself the holder refreshes the ttl. A free lock with waiters is never given to a newcomer. After its
    /// [`abandon`](Leases::abandon) was called a claim is refused as [`Fault::Ended`].
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer>;

    /// Claims several names, each of them once, and is granted all or none. It does not queue: the claims have no
    /// [`Queue`], and neither [`AnswerAll::Busy`] nor [`AnswerAll::Refused`] leaves a trace. Repeated with the same owners it is the same answer, as a
    /// [`claim`](Leases::claim) is. After an error every attempt is owed an [`abandon`](Leases::abandon). Refused by engines
    /// that cannot: see [`Capabilities::claim_all`].
    fn claim_all<'a>(&'a self, _claims: &'a [Claim], _until: Until) -> Fut<'a, AnswerAll> {
        let why = "this store grants one lock at a time";
        Box::pin(std::future::ready(Err(EngineError::new(Fault::Unsupported, why))))
    }

    /// The shard of the store that has what is held. Leases of different shards are renewed by calls of their own, so that
    /// a silent shard delays no other.
    fn shard_of(&self, _hold: &Hold) -> u64 {
        0
    }

    /// Extends leases that are still held, of whatever kind. Never brings back one that is gone. One
    /// result per item, so that one dead shard fails only its own.
    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>>;

    /// Whether a renewal makes the store report the loss of this lease, as far as is known: see [`LossHint`].
    fn reports_loss(&self, _hold: &Hold) -> bool {
        false
    }

    /// The key that is there, in the creation that the fence names, exactly as long as this lease is. Nothing where the
    /// store has no such key.
    fn held_key(&self, _hold: &Hold) -> Option<String> {
        None
    }

    /// Gives the lease of a lock back, to the next waiter if there is one. An `Err` means that the outcome is unknown.
    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released>;

    /// Gives an exclusive lease to the first waiter that people see like this, ahead of the queue, so that at no time nobody
    /// holds the lock. The lease of the next holder begins with its own ttl or, where the store does not know that yet, with
    /// the one of this holder; its next claim refreshes it. Refused by engines that cannot: see
    /// [`Capabilities::no_hand_to`].
    fn hand_to<'a>(&'a self, _hold: &'a Hold, _next: &'a Holder, _until: Until) -> Fut<'a, HandedTo> {
        Box::pin(std::future::ready(Err(EngineError::new(Fault::Unsupported, FIRST_ONLY))))
    }

    /// Ends an attempt: leaves the queue, or gives back what was granted meanwhile. Nothing of the owner value counts from
    /// here on, whatever arrives late.
    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()>;

    /// Makes a writer a reader, or the only reader a writer, without letting anybody in between, and renews its lease. Refused
    /// by engines that cannot: see [`Capabilities::no_convert`].
    fn convert<'a>(&'a self, _hold: &'a Hold, _to: Mode, _until: Until) -> Fut<'a, Converted> {
        Box::pin(std::future::ready(Err(EngineError::new(Fault::Unsupported, EXCLUSIVE_ONLY))))
    }

    /// Changes the number of permits of a semaphore, whether in use or not. Nobody loses permits by it. Refused by engines
    /// without permits.
    fn set_limit<'a>(&'a self, _name: &'a Name, _limit: NonZeroU32, _until: Until) -> Fut<'a, ()> {
        Box::pin(std::future::ready(Err(EngineError::new(Fault::Unsupported, EXCLUSIVE_ONLY))))
    }

    /// Takes the lease away from its holder if it is still the one with the fence that was seen.
    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released>;
}

impl dyn Leases + '_ {
    /// [`renew`](Leases::renew) of one.
    pub(crate) async fn renew_one(&self, hold: &Hold, until: Until) -> Result<Renewed, EngineError> {
        let mut answers = self.renew(std::slice::from_ref(hold), until).await?;
        answers.pop().unwrap_or_else(|| Err(EngineError::no_answer()))
    }

    /// [`release`](Leases::release), at once or, of what is [`Held::Closed`], when its ttl is over.
    pub(crate) async fn give_back(&self, hold: &Hold, until: Until) -> Result<Released, EngineError> {
        if hold.of != Held::Closed {
            return self.release(hold, until).await;
        }
        Ok(match self.renew_one(hold, until).await? {
            Renewed::Kept { .. } => Released::Closed { remaining: hold.ttl },
            Renewed::Gone => Released::Expired,
        })
    }
}

/// Receives wake-ups; implemented by the client. It must not block.
pub trait WakeSink: Send + Sync {
    /// Takes one wake-up.
    fn wake(&self, wake: Wake);
    /// Leases may be lost: the client renews them at once and learns whether they are.
    fn may_be_lost(&self, _hint: LossHint) {}
    /// The connection to the store came up or broke, or an error happened outside of any call.
    fn link(&self, change: LinkChange);
}

/// A change of the connection to the store.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LinkChange {
    /// Connected, or connected again.
    Connected,
    /// The connection broke.
    Disconnected {
        /// What is known about it.
        why: String,
    },
}

/// What an operator should know about a store.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Facts, in the order to show them.
    pub facts: Vec<(String, String)>,
    /// Things that should be changed.
    pub warnings: Vec<Warning>,
}

/// A thing that should be changed about a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// A stable word for it.
    pub code: &'static str,
    /// What was found and why it matters.
    pub found: String,
    /// How to change it.
    pub cure: String,
}

/// Why an engine call failed; the client adds the name and the operation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct EngineError {
    /// The kind of failure.
    pub fault: Fault,
    /// The store's or the driver's words, without credentials.
    pub why: String,
}

/// The kind of an [`EngineError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call could not be sent; nothing happened.
    Unreachable,
    /// The call was sent and not answered: whether it took effect is unknown.
    NoAnswer,
    /// The store refused; nothing happened, unless the claim waits for replicas: then it may have been granted.
    Refused(Refusal),
    /// The name is another kind of key.
    WrongType,
    /// What is stored under the key cannot be read; it was left as it is.
    Corrupt,
    /// A bound on load.
    Overloaded,
    /// This client has too much under way: nothing was sent, and its turn comes.
    Busy,
    /// The engine does not do this.
    Unsupported,
    /// This attempt has ended already: going on needs a new owner value.
    Ended,
    /// The name is in use as another kind of lock: a read-write lock, or a semaphore.
    OtherMode,
    /// The semaphore has another number of permits than the claim says.
    OtherLimit {
        /// How many it has.
        stored: NonZeroU32,
        /// How many the claim says.
        asked: NonZeroU32,
    },
    /// The latch is armed for another number of parties than the request says.
    OtherCount {
        /// How many it is armed for.
        stored: NonZeroU32,
        /// How many the request says.
        asked: NonZeroU32,
    },
    /// The claim asks for more permits than there are.
    AboveLimit {
        /// How many there are.
        limit: NonZeroU32,
        /// How many it asks for.
        asked: NonZeroU32,
    },
}

impl EngineError {
    /// A failure of the given kind.
    pub fn new(fault: Fault, why: impl Into<String>) -> Self {
        Self { fault, why: why.into() }
    }

    /// The caller's time ran out before the store answered.
    pub fn no_answer() -> Self {
        Self::new(Fault::NoAnswer, "no answer in time")
    }

    /// The name is in use in a mode of another kind.
    pub fn other_mode(held: Mode, asked: Mode) -> Self {
        Self::new(Fault::OtherMode, format!("it is in use as {}, not as {}", held.kind(), asked.kind()))
    }

    /// The semaphore has another limit than the claim says.
    pub fn other_limit(stored: NonZeroU32, asked: NonZeroU32) -> Self {
        Self::new(Fault::OtherLimit { stored, asked }, format!("it has {stored} permits, not {asked}"))
    }

    /// The claim asks for more permits than there are.
    pub fn above_limit(limit: NonZeroU32, asked: NonZeroU32) -> Self {
        let why = format!("{asked} permits were asked for, and there are {limit}");
        Self::new(Fault::AboveLimit { limit, asked }, why)
    }

    pub(crate) fn too_slow() -> Self {
        Self::new(Fault::NoAnswer, "the answer took so long that too little of the lease was left")
    }
}

/// Why an engine refuses every mode but [`Mode::Exclusive`].
pub const EXCLUSIVE_ONLY: &str = "this store has exclusive locks only";

/// Why an engine hands a lock to nobody but the first in the queue.
pub const FIRST_ONLY: &str = "this store hands a lock to the first in the queue only";

/// Why an engine refuses [`Format::Redisson`].
pub const NO_REDISSON: &str =
    "it takes a redis://, redis-sentinel:// or redis-cluster:// store, which Redisson's clients use too";

/// Most waiters of one name.
pub const WAITERS_MAX: u32 = 10_000;

/// How long a waiter may be silent before it is passed over: a powered-off host looks connected for minutes.
pub fn liveness(poll_every: Duration) -> Duration {
    (poll_every * 3).clamp(Duration::from_millis(500), Duration::from_secs(15))
}
