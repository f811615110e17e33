//! Claims, holds, and what a store answers to them.

use std::{fmt, num::NonZeroU32, str::FromStr, time::Duration};

use serde::Serialize;

use super::{EngineError, Tenure};
use crate::{
    clock::BootInstant,
    fence::Fence,
    name::Name,
    owner::{Holder, Owner, OwnerId},
};

/// How a lock is shared by those who hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    #[default]
    Exclusive,
    /// Many holders, and no exclusive one beside them.
    Shared,
    /// Holders that take some of a limited number of permits.
    Permits {
        /// How many this holder takes.
        take: NonZeroU32,
        /// How many there are.
        of: NonZeroU32,
    },
}

impl Mode {
    /// Whether one name can be held in both modes, one after the other: exclusive and shared are those of a read-write lock,
    /// permits those of a semaphore.
    pub fn is_kind_of(self, other: Self) -> bool {
        self.kind() == other.kind()
    }

    /// The word for it without numbers, as a label of metrics: `exclusive`, `shared` or `permits`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
            Self::Permits { .. } => "permits",
        }
    }

    /// How many permits a holder has; none unless it is one of a semaphore.
    pub const fn permits(self) -> u32 {
        match self {
            Self::Exclusive | Self::Shared => 0,
            Self::Permits { take, .. } => take.get(),
        }
    }

    /// What a name is that can be held like this.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Exclusive | Self::Shared => "a read-write lock",
            Self::Permits { .. } => "a semaphore",
        }
    }
}

/// As people read it: `exclusive`, `shared`, `2 of 5 permits`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Permits { take, of } => write!(f, "{take} of {of} permits"),
        }
    }
}

/// Reads what is displayed.
impl FromStr for Mode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "exclusive" => return Ok(Self::Exclusive),
            "shared" => return Ok(Self::Shared),
            _ => {}
        }
        let (take, of) = text.strip_suffix(" permits").and_then(|text| text.split_once(" of ")).ok_or(())?;
        let number = |text: &str| text.parse().map_err(drop);
        Ok(Self::Permits { take: number(take)?, of: number(of)? })
    }
}

/// How an exclusive lock lies in the store, and thus with which other libraries it is shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// As a plain string with an expiry, as many libraries have it.
    #[default]
    Plain,
    /// As `RLock` and `RFencedLock` of Redisson have it, on one Redis server, behind sentinels or in a cluster. Fences are
    /// Redisson's fencing tokens: a plain counter of the lock.
    ///
    /// Waiters of ours and of Redisson compete when the lock is released: nobody is served in order. Who waits is not
    /// known to the store. A loss is noticed by the next renewal.
    Redisson,
}

/// The word for it in policies and handles.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Redisson => "redisson",
        })
    }
}

/// One attempt to get a lease. Plain data: what of it is under way is the engine's to know.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is asked for.
    pub name: Name,
    /// The attempt.
    pub owner: Owner,
    /// How it is to be held.
    pub mode: Mode,
    /// How it lies in the store.
    pub format: Format,
    /// How long the lease shall last.
    pub ttl: Duration,
    /// How long the lock stays closed after the lease *expired*.
    pub lock_delay: Duration,
    /// How it waits; `None` asks once and leaves no trace when refused.
    pub queue: Option<Queue>,
    /// How many replicas must have the grant before it counts.
    pub acks: Acks,
}

/// How a claim waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// How long it may stay in the queue.
    pub wait: Duration,
    /// Longest time between two claims of the attempt; one silent for much longer is passed over.
    pub poll_every: Duration,
}

impl Claim {
    /// The lease that this claim's grant leads to.
    pub fn hold(&self, fence: Fence) -> Hold {
        let Self { name, owner, mode, format, ttl, lock_delay, .. } = self.clone();
        Hold { name, owner, fence, mode, format, ttl, lock_delay, of: Held::Lock, watch: false }
    }
}

/// How many replicas must have a grant before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// How it is held.
    pub mode: Mode,
    /// How it lies in the store.
    pub format: Format,
    /// How long a renewal shall last.
    pub ttl: Duration,
    /// How long the lock stays closed after the lease *expired*.
    pub lock_delay: Duration,
    /// What it is a lease of. Only engines distinguish these.
    pub of: Held,
    /// Whether its renewal shall make the store report when it may be lost: see [`LossHint`].
    pub watch: bool,
}

impl Hold {
    /// The same, given back and closed for a while.
    pub fn closed_for(&self, remaining: Duration) -> Self {
        Self { ttl: remaining, lock_delay: Duration::ZERO, of: Held::Closed, watch: false, ..self.clone() }
    }
}

/// What a lease is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A lock.
    Lock,
    /// A lock that was given back and stays closed for the ttl: a renewal of it that comes later changes nothing.
    Closed,
    /// A running record: see [`Records`](super::records::Records).
    Record,
    /// A participant of a latch, or a party of a barrier: see [`Latches`](super::latches::Latches).
    Latch,
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
        holders: Holders,
        /// The last fence that the store gave when it answered; see [`Wake::Granted`].
        last: Fence,
        /// Over which link it answered.
        link: u64,
    },
    /// Somebody else holds it, and we did not queue.
    Busy {
        /// Who holds it.
        holders: Holders,
    },
    /// What this attempt got was given back, and nothing of its owner value counts any more: go on under a new one.
    Spent,
}

/// The answer to several claims at once.
#[derive(Clone, Debug)]
pub enum AnswerAll {
    /// All are ours, in the order of the claims.
    Granted(Vec<Grant>),
    /// None is.
    Busy {
        /// Which claim is refused, by its place in the list.
        claim: usize,
        /// Who holds that one.
        holders: Holders,
    },
    /// None is, because one of the names cannot be claimed like this, whoever holds it: it is in use as another kind, for
    /// example.
    Refused {
        /// Which claim is refused, by its place in the list.
        claim: usize,
        /// Why.
        error: EngineError,
    },
}

/// Who holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Some of them, first come first.
    pub shown: Vec<Tenure>,
    /// How many there are.
    pub total: u32,
    /// When the lock may be free, unless a lease is renewed.
    pub free_in: Option<Duration>,
}

impl Holders {
    /// Nobody, as far as is known; free in this time, if that is known.
    pub fn none(free_in: Option<Duration>) -> Self {
        Self { shown: Vec::new(), total: 0, free_in }
    }

    /// One, whose end frees the lock.
    pub fn one(tenure: Tenure) -> Self {
        Self { free_in: tenure.expires_in, shown: vec![tenure], total: 1 }
    }

    /// Whether all of them are listed.
    pub fn is_complete(&self) -> bool {
        self.shown.len() >= self.total as usize
    }

    /// The first of them.
    pub fn first(&self) -> Option<&Tenure> {
        self.shown.first()
    }

    pub(crate) fn into_first(self) -> Option<Holder> {
        self.shown.into_iter().next().map(|tenure| tenure.holder)
    }
}

impl From<Option<Tenure>> for Holders {
    fn from(tenure: Option<Tenure>) -> Self {
        tenure.map_or_else(Self::default, Self::one)
    }
}

/// A wake-up for a waiting attempt.
#[derive(Clone, Copy, Debug)]
pub enum Wake {
    /// The lease was handed to it. Never sent to an attempt that waits for replicas: it has to claim again.
    ///
    /// The client decides when the lease began: not before the last claim that was answered
    /// [`Queued`](Answer::Queued) over the same link with a lower fence. Neither the arrival of this message, which may have
    /// waited in the socket of a stopped process, nor a sampled server clock, which may step, says more.
    Granted {
        /// The attempt.
        owner: OwnerId,
        /// Its fencing token.
        fence: Fence,
        /// Over which link it came: what was answered over another one may be of another run of the store.
        link: u64,
    },
    /// Something changed for it: claim again.
    LookAgain {
        /// The attempt.
        owner: OwnerId,
    },
    /// Wake-ups may have been missed: everybody claims again.
    LookAgainAll,
}

/// A hint that leases may be lost. It proves nothing: a renewal does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LossHint {
    /// What the store has under this name was changed by somebody else.
    Changed {
        /// The name of a lock or a record.
        name: Name,
    },
    /// Whatever is reported over this link may have changed.
    AllChanged {
        /// The link; see [`Renewed::Kept`].
        link: u64,
    },
    /// Nothing is reported over this link any more.
    Unwatched {
        /// The link; see [`Renewed::Kept`].
        link: u64,
    },
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// Extended.
    Kept {
        /// Lower bound of the extended lease's start.
        since: BootInstant,
        /// Over which link the store reports from here on that the lease may be lost, if it does.
        link: Option<u64>,
    },
    /// No longer ours.
    Gone,
}

/// The answer to a change of the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Converted {
    /// It is held in the new mode.
    Done {
        /// Its fence: a new one for a reader that became a writer, the old one otherwise.
        fence: Fence,
        /// Lower bound of the start of the lease, which was renewed.
        since: BootInstant,
    },
    /// Others hold it too.
    Busy,
    /// No longer ours.
    Gone,
}

/// The answer to a hand-over to one that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedTo {
    /// It holds the lock.
    Done {
        /// Its fence.
        fence: Fence,
    },
    /// It does not wait. The lease is as it was.
    NotWaiting,
    /// No longer ours.
    Gone,
}

/// How a release ended. An unknown end is an error.
#[must_use = "a lock that expired or was taken did not protect the work to its end"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Released {
    /// Nobody waits; what was held is free.
    Free,
    /// Those who waited have it.
    HandedOver {
        /// How many of them.
        to: u32,
        /// The first new holder's fence; `None` where the store only wakes the next waiter.
        next: Option<Fence>,
    },
    /// It had run out before, and nobody has taken it since.
    Expired,
    /// Somebody else holds it by now.
    Taken {
        /// The present holder's fence; `None` for a holder of another library.
        by: Option<Fence>,
    },
    /// Closed until its minimum hold time is over.
    Closed {
        /// How long it stays closed.
        #[serde(rename = "for_ms", serialize_with = "millis")]
        remaining: Duration,
    },
}

impl Released {
    /// Whether the lock was ours until it was released. If not, somebody else may have worked at the same time.
    pub const fn was_held(self) -> bool {
        match self {
            Self::Free | Self::HandedOver { .. } | Self::Closed { .. } => true,
            Self::Expired | Self::Taken { .. } => false,
        }
    }

    /// Given to one waiter, under this fence if the store grants it right away.
    pub fn handed_over(next: Option<Fence>) -> Self {
        Self::HandedOver { to: 1, next }
    }
}

fn millis<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(duration.as_millis() as u64)
}
