//! The contract every store keeps.
//!
//! An engine does the I/O of one kind of store and decides nothing that is not atomic in that store.
//! Validity, waiting, keep-alive, retries and metrics are layers above it, the same for all engines.
//! The contract is public so that wrappers and other stores can be checked with the conformance suite of
//! `leasehold-testkit`; applications use [`Leasehold`](crate::Leasehold).

use std::{fmt, future::Future, pin::Pin, sync::Weak, time::Duration};

use serde::Serialize;

use crate::{
    clock::{BootInstant, Until},
    error::Refusal,
    fence::Fence,
    name::Name,
    owner::{Holder, Owner, OwnerId},
};

mod capabilities;
pub(crate) mod connect;
mod crc16;
mod cursor;
pub mod deadlines;
#[cfg(feature = "memory")]
pub mod memory;
mod nodes;
pub mod quorum;
pub mod records;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod voter;

pub use capabilities::{Capabilities, Handover, Reach};
pub(crate) use cursor::Told;
pub use cursor::{Cursor, Page};
pub use nodes::ClockOffset;

/// The future of an engine call.
///
/// Every call ends by its `until`. Dropping the future may leave its effect behind: whoever dropped it owes
/// an [`abandon`](Leases::abandon) or [`release`](Leases::release) with the same owner.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>;

/// A store.
pub trait Engine: Send + Sync + 'static {
    /// What it can do, as plain data.
    fn capabilities(&self) -> &Capabilities;
    /// Its leases.
    fn leases(&self) -> &dyn Leases;
    /// Its records, or why it keeps none.
    fn records(&self) -> Result<&dyn records::Records, &'static str> {
        Err("this store keeps no records")
    }
    /// Its deadlines, or why it keeps none.
    fn deadlines(&self) -> Result<&dyn deadlines::Deadlines, &'static str> {
        Err("this store keeps no deadlines")
    }
    /// How often the store was asked and its answer waited for, if that is counted. What is asked of several servers at
    /// the same time counts for each.
    fn round_trips(&self) -> Option<u64> {
        None
    }
    /// Reaches the store once, so that a wrong address or password shows before the first lock.
    fn dial(&self, until: Until) -> Fut<'_, ()>;
    /// What an operator should know about the store.
    fn health(&self, until: Until) -> Fut<'_, Health>;
    /// The nodes, where a majority of them decides.
    fn quorum(&self) -> Option<&quorum::Quorum> {
        None
    }
    /// Gives back connections and files.
    fn close(&self, until: Until) -> Fut<'_, ()>;
}

/// Exclusive leases. Every operation is atomic in the store.
pub trait Leases: Send + Sync {
    /// Asks for the lease, or asks again. The same owner gets the same answer, never a second count; a claim
    /// that finds itself the holder refreshes the ttl. A free lock with waiters is never given to a newcomer. An
    /// engine that gave back what a claim got has ended its owner: going on takes a new one.
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer>;

    /// Where wake-ups go. Called once, before the first claim. Hints may be lost; a waiter always polls too. The sink is
    /// gone when its client is.
    fn wake_into(&self, sink: Weak<dyn WakeSink>);

    /// The part of the store that has a name. Leases of different parts are renewed by calls of their own, so that a
    /// silent part delays no other.
    fn part_of(&self, _name: &Name) -> u64 {
        0
    }

    /// Extends leases that are still held. Never brings back one that is gone. One result per item, so that one
    /// dead shard fails only its own.
    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>>;

    /// Gives the lease back, to the next waiter if there is one. An `Err` means that the outcome is unknown.
    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released>;

    /// Leaves the queue, or gives back what was granted meanwhile.
    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()>;

    /// Who holds it and who waits, in order.
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection>;

    /// Names that are held or waited for and begin with `prefix`, a page at a time. A page may be empty although
    /// more follow.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>>;

    /// Takes the lease away from its holder if it is still the one with the fence that was seen.
    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released>;
}

/// Receives wake-ups; implemented by the client. It must not block.
pub trait WakeSink: Send + Sync {
    /// Takes one wake-up.
    fn wake(&self, wake: Wake);
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

/// One attempt to get a lease.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is asked for.
    pub name: Name,
    /// The attempt.
    pub owner: Owner,
    /// How long the lease shall last.
    pub ttl: Duration,
    /// How long the lock stays closed after the lease *expired*.
    pub lock_delay: Duration,
    /// How long it may stay in the queue; `None` asks once and leaves no trace when refused.
    pub queue_for: Option<Duration>,
    /// Longest time between two claims of a waiting attempt; one silent for much longer is passed over.
    pub poll_every: Duration,
    /// How many replicas must have the grant before it counts.
    pub acks: Acks,
}

impl Claim {
    /// The lease that this claim's grant leads to.
    pub fn hold(&self, fence: Fence) -> Hold {
        Hold {
            name: self.name.clone(),
            owner: self.owner.clone(),
            fence,
            ttl: self.ttl,
            lock_delay: self.lock_delay,
            kind: Kind::Lock,
        }
    }
}

/// How many replicas must have a grant before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acks {
    /// None: a fail-over may forget the grant.
    #[default]
    None,
    /// At least this many.
    AtLeast(u8),
    /// So many that, with the primary, more than half of all copies have it. A copy that is down counts if it is known:
    /// a server that keeps no list of them has those that this client saw connected.
    Majority,
}

impl From<u8> for Acks {
    fn from(least: u8) -> Self {
        if least == 0 { Self::None } else { Self::AtLeast(least) }
    }
}

/// A lease that was granted.
#[derive(Clone, Debug)]
pub struct Hold {
    /// What is held.
    pub name: Name,
    /// By which attempt.
    pub owner: Owner,
    /// Under which fence.
    pub fence: Fence,
    /// How long a renewal shall last.
    pub ttl: Duration,
    /// How long the lock stays closed after the lease *expired*.
    pub lock_delay: Duration,
    /// What it is a lease of.
    pub kind: Kind,
}

impl Hold {
    /// The same, given back and closed for a while.
    pub(crate) fn closed_for(&self, remaining: Duration) -> Self {
        Self { ttl: remaining, lock_delay: Duration::ZERO, kind: Kind::Closed, ..self.clone() }
    }
}

/// What a lease is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A lock: see [`Leases`].
    Lock,
    /// A lock that was given back and stays closed for the ttl: a renewal that comes later changes nothing.
    Closed,
    /// A record that is running: see [`Records`](records::Records).
    Record,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its fencing token.
    pub fence: Fence,
    /// A lower bound of the lease's start: read before the first byte was sent, or the causal bound of a
    /// hand-over. Only `lease::validity` turns it into an end.
    pub since: BootInstant,
    /// How long it lasts from its start.
    pub ttl: Duration,
    /// How many replicas are known to have it; zero unless the claim asked for some.
    pub acks: u8,
}

/// The answer to a claim.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is ours.
    Granted(Grant),
    /// We are in the queue.
    Queued {
        /// How many are before us.
        ahead: u32,
        /// Who holds it.
        holder: Option<Holder>,
        /// When the present lease runs out, unless it is renewed.
        expires_in: Option<Duration>,
    },
    /// Somebody else holds it, and we did not queue.
    Busy {
        /// Who holds it.
        holder: Option<Holder>,
        /// When the present lease runs out, unless it is renewed.
        expires_in: Option<Duration>,
    },
}

/// A wake-up for a waiting attempt.
#[derive(Clone, Debug)]
pub enum Wake {
    /// The lease was handed to it. Never told to an attempt that waits for replicas: it has to claim again.
    Granted {
        /// The attempt.
        owner: OwnerId,
        /// What it got. A `since` at the clock's origin means that its start is not known.
        grant: Grant,
    },
    /// Something changed for it: claim again.
    LookAgain {
        /// The attempt.
        owner: OwnerId,
    },
    /// Wake-ups may have been missed: everybody claims again.
    LookAgainAll,
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// Extended.
    Kept {
        /// Lower bound of the extended lease's start.
        since: BootInstant,
    },
    /// No longer ours.
    Gone,
}

/// How a release ended. An unknown end is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Released {
    /// Nobody waits; the lock is free.
    Free,
    /// The next waiter has it.
    HandedOver {
        /// The next holder's fence; `None` where the store only wakes the next waiter.
        next: Option<Fence>,
    },
    /// It had run out before, and nobody has taken it since.
    Expired,
    /// Somebody else holds it by now.
    Taken {
        /// The present holder's fence; `None` for a holder of another library.
        by: Option<Fence>,
    },
    /// Kept closed until its minimum hold time is over.
    Kept {
        /// How long it stays closed.
        #[serde(rename = "for_ms", serialize_with = "millis")]
        still: Duration,
    },
}

fn millis<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(duration.as_millis() as u64)
}

/// What is known about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The name.
    pub name: Name,
    /// Who holds it.
    pub held: Option<Tenure>,
    /// Who waits, next first; at most [`WAITERS_SHOWN`].
    pub waiters: Vec<Waiter>,
    /// How many wait in all.
    pub waiting: u32,
}

/// Most waiters an [`Inspection`] lists.
pub const WAITERS_SHOWN: u32 = 100;

/// Somebody holding a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Who.
    pub holder: Holder,
    /// Under which fence; zero for a holder of another library, which has none.
    pub fence: Fence,
    /// Time until it runs out unless renewed; `None` if it never does (another library's doing).
    pub expires_in: Option<Duration>,
}

/// Somebody waiting for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who.
    pub holder: Holder,
    /// For how long.
    pub waiting_for: Duration,
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
#[derive(Clone, Debug)]
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
    WrongKind,
    /// What is stored under the key cannot be read; it was left as it is.
    Corrupt,
    /// A bound on load.
    Overloaded,
    /// The engine does not do this.
    Unsupported,
    /// This attempt has ended already: going on needs a new owner value.
    Ended,
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
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for EngineError {}

/// Most waiters of one name.
pub const WAITERS_MAX: u32 = 10_000;

/// How long a waiter may be silent before it is passed over: a powered-off host looks connected for minutes.
pub fn liveness(poll_every: Duration) -> Duration {
    (poll_every * 3).clamp(Duration::from_millis(500), Duration::from_secs(15))
}
