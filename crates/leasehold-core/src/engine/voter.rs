//! One voter of a quorum: the part of the contract that a single node keeps. The quorum counts, the voter does the I/O.

use std::{fmt, sync::Arc, sync::Weak, time::Duration};

use futures_util::future::BoxFuture;
use serde::{Serialize, Serializer};
use tokio::sync::Notify;

use crate::{
    clock::Until,
    engine::{Claim, ClockOffset, Cursor, Fut, Health, Hold, Page, Waiter, WakeSink},
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

/// Renewals in one call; bounds how long a server is busy with one.
pub const RENEWALS_PER_CALL: usize = 128;
/// Votes and withdrawals in one call.
pub const OPS_PER_CALL: usize = 32;

/// Readers of one name that a node lists.
pub const READERS_LISTED: u32 = 1000;

/// How far ahead of its own clock a node lets the floor of its fences be.
pub const FLOOR_LEAD_MAX: Duration = Duration::from_secs(180);

/// One node.
pub trait Voter: Send + Sync + 'static {
    /// Host and port, for people.
    fn label(&self) -> &str;

    /// Votes under this record from now on. The node compares it with its own at every vote, so a node that was
    /// restarted, flushed or rolled back does not vote.
    fn vote_under(&self, record: Option<Record>);

    /// Does what is ordinary among these, in one call and each on its own: gives a vote for a lock that nobody holds or
    /// waits for; takes a vote back while nobody waits. What is not ordinary has no effect, and takes
    /// [`vote`](Self::vote) or [`withdraw`](Self::withdraw).
    fn do_ordinary<'a>(&'a self, ops: &'a [Op], until: Until) -> Fut<'a, Vec<Outcome>>;

    /// Asks for the node's vote. A writer gets it while nobody else has it, a reader while no writer has it and none that
    /// came before waits. Idempotent for its owner; a yes refreshes the ttl. A refused claim that may wait is queued, so that
    /// a withdrawal can wake it and newcomers come after it.
    fn vote<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, Vote>;

    /// Raises the node's fence to the hold's, only while its owner still holds there and the node has not given a higher
    /// one: then another claim was here since the votes were counted, and may have the same fence. What other readers
    /// were given does not keep a reader from it: two that come at the same time may have the same fence.
    fn confirm<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool>;

    /// Extends what is still held there. One answer per hold.
    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Kept>>;

    /// Puts a hold back that the node has lost. Refused when another one holds, when the node's fence is above the hold's,
    /// after the withdrawal of its owner, and without a record to vote under.
    fn repair<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool>;

    /// Takes a yes back. The attempt goes on: if it may wait, it waits again in its old place, and the waiter before it is
    /// woken. Until it is answered it may undo a later yes.
    fn retract<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, ()>;

    /// Takes the vote back, removes the claim from the queue, and wakes the first waiter, or the readers at its head. Nothing of the owner takes effect
    /// on this node from here on, whatever arrives late; nothing of it is sent from the moment of the call on.
    fn withdraw<'a>(&'a self, name: &'a Name, owner: &'a Owner, until: Until) -> Fut<'a, Withdrawn>;

    /// What the node knows about some names.
    fn inspect<'a>(&'a self, names: &'a [Name], until: Until) -> Fut<'a, Vec<Sighting>>;

    /// Names that are held or waited for there; a page may repeat names of earlier ones.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Name>>;

    /// The node's identity, its record, its time and the highest fence that it gave.
    fn status(&self, until: Until) -> Fut<'_, NodeStatus>;

    /// Writes a record if the present one still is `seen`, and raises the floor of its fences. Returns whether it did.
    fn write_record<'a>(
        &'a self,
        seen: Option<&'a Record>,
        record: &'a Record,
        floor: Fence,
        until: Until,
    ) -> Fut<'a, bool>;

    /// Notifies `wake` when a connection to the node breaks: the server may have been restarted.
    fn on_disconnect(&self, wake: Arc<Notify>);

    /// Where hints for waiting claims go.
    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>);

    /// What an operator should know about the node, and how far its clock is from ours, if it may be asked.
    fn health(&self, until: Until) -> Fut<'_, (Health, Option<ClockOffset>)>;

    /// Runs a task where its connections are: it carries calls of several callers, and outlives the runtime of each.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Closes its connections.
    fn close(&self);
}

/// What is asked of a node together with others.
#[derive(Clone, Debug)]
pub enum Op {
    /// Its vote.
    Vote(Arc<Ballot>),
    /// To take the vote for this owner back.
    Withdraw(Arc<(Name, Owner)>),
}

impl Op {
    /// The name it is about.
    pub fn name(&self) -> &Name {
        match self {
            Self::Vote(ballot) => &ballot.claim.name,
            Self::Withdraw(lock) => &lock.0,
        }
    }
}

/// What became of one that was asked for together with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The vote was given, under this fence.
    Voted(Fence),
    /// The vote was taken back.
    Withdrawn,
    /// There was no vote to take back: nobody holds the lock or waits for it.
    Absent,
    /// The node does not vote; [`vote`](Voter::vote) says why.
    Abstained,
    /// It is not ordinary, and nothing was done.
    NotOrdinary,
}

/// What is voted on.
#[derive(Clone, Debug)]
pub struct Ballot {
    /// The claim.
    pub claim: Claim,
    /// The fence it asks for: nodes that can give it all give the same, and one round trip decides.
    pub hint: Fence,
    /// When the attempt began to wait, in microseconds since 1970: the order in which waiters are woken.
    pub arrival: u64,
}

/// A node's vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Yes, under this fence.
    Yes(Fence),
    /// Another claim holds it, or waits for it and comes first.
    No {
        /// The node's fence of this name.
        fence: Fence,
        /// Who holds it; of several readers the one whose lease lasts longest.
        holder: Option<Holder>,
        /// How many readers hold it.
        readers: u32,
        /// When that lease runs out.
        expires_in: Option<Duration>,
        /// How many wait before us.
        ahead: u32,
    },
    /// It does not vote, because of what it may have forgotten.
    Abstains(Abstention),
}

/// Why a node does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Abstention {
    /// It has no record, or we have not read it yet.
    #[error("not admitted yet")]
    NotAdmitted,
    /// Its record is of another run of the server, or it is on its way back.
    #[error("restarted or wiped, until every lease that it might have granted has expired")]
    Forgot,
    /// Its record belongs to another set of nodes.
    #[error("belongs to another quorum")]
    OtherSet,
    /// Its quorum was admitted with another list of addresses than ours.
    #[error(
        "this quorum was admitted with other addresses or in another order; all clients must use the same list"
    )]
    OtherList,
    /// The record was written by a version that this one does not know.
    #[error("its record was written by another version")]
    UnknownLayout,
    /// It is another address of a node that votes already.
    #[error("another address of a node that votes already")]
    SameServer,
}

impl Serialize for Abstention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What became of a hold on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Extended.
    Yes,
    /// Nobody holds it there.
    Missing,
    /// Another claim holds it there.
    Taken,
}

/// The answer to a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// The node held it for us until now.
    pub was_ours: bool,
    /// How many waiters were told to try.
    pub woke: u32,
    /// Another claim holds it there, under this fence; of several readers the highest.
    pub by: Option<Fence>,
    /// Those are readers.
    pub by_readers: bool,
}

/// What one node knows about one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// The owner value of the one that holds it alone; secret.
    pub owner: Option<Value>,
    /// When it runs out; `None` for never.
    pub expires_in: Option<Duration>,
    /// The node's fence of this name.
    pub fence: Fence,
    /// Those who read, at most [`READERS_LISTED`].
    pub readers: Vec<Reader>,
    /// The first waiters, by arrival.
    pub waiters: Vec<Waiter>,
    /// How many wait.
    pub waiting: u32,
}

/// A reader as a node has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Its owner value; secret.
    pub owner: Value,
    /// The fence that it has there.
    pub fence: Fence,
    /// When its lease runs out.
    pub expires_in: Option<Duration>,
}

/// An owner value as a node has it. Secret: never shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub String);

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(redacted)")
    }
}

/// What a node reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// This run of the server and its data set; another one may have lost everything.
    pub identity: String,
    /// Its record, if it has one that can be read.
    pub record: Option<Record>,
    /// The record has a layout that this version does not know; it is never overwritten.
    pub unknown_layout: bool,
    /// The highest fence it gave to any name.
    pub highest: Fence,
    /// Its wall clock, in microseconds since 1970.
    pub time_us: u64,
}

/// What a node knows about its place in a quorum. Its text is what the node stores and compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whether it votes.
    pub state: State,
    /// The quorum it belongs to: random, and what stands for the addresses of its members.
    pub set: String,
    /// Grows when the quorum's members change.
    pub epoch: u32,
    /// How many members the quorum has.
    pub n: u32,
    /// Which of them it is.
    pub index: u32,
    /// The run of the server for which this is true.
    pub identity: String,
    /// The longest ttl and lock-delay together that it votes for, in milliseconds.
    pub max_ms: u64,
}

/// Whether a node votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Votes,
    /// Not yet: nothing that it may have forgotten can matter once it was watched for long enough.
    Waits {
        /// Tells one wait from another.
        nonce: String,
        /// How long it was watched so far, in milliseconds.
        watched_ms: u64,
    },
}

const LAYOUT: &str = "1";

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, set, epoch, n, index, identity, max_ms } = self;
        write!(f, "{LAYOUT} {set} {epoch} {n} {index} {identity} {max_ms}")?;
        match state {
            State::Votes => write!(f, " votes"),
            State::Waits { nonce, watched_ms } => write!(f, " waits {nonce} {watched_ms}"),
        }
    }
}

impl Record {
    /// The record of another node of the same quorum.
    pub fn of_node(&self, index: usize, identity: &str, state: State) -> Self {
        Self { state, index: index as u32, identity: identity.to_owned(), ..self.clone() }
    }

    /// Whether it is a record of the same quorum.
    pub fn is_same_quorum(&self, other: &Self) -> bool {
        (&self.set, self.epoch, self.n) == (&other.set, other.epoch, other.n)
    }

    /// Reads a record's text; `None` for a layout that this version does not know.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        if words.next()? != LAYOUT {
            return None;
        }
        let record = Self {
            set: words.next()?.into(),
            epoch: words.next()?.parse().ok()?,
            n: words.next()?.parse().ok()?,
            index: words.next()?.parse().ok()?,
            identity: words.next()?.into(),
            max_ms: words.next()?.parse().ok()?,
            state: match words.next()? {
                "votes" => State::Votes,
                "waits" => {
                    State::Waits { nonce: words.next()?.into(), watched_ms: words.next()?.parse().ok()? }
                }
                _ => return None,
            },
        };
        words.next().is_none().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_and_an_unknown_one_does_not() {
        let record = Record {
            state: State::Votes,
            set: "ab".into(),
            epoch: 1,
            n: 3,
            index: 2,
            identity: "run-replid".into(),
            max_ms: 300_000,
        };
        let waits = State::Waits { nonce: "cd".into(), watched_ms: 7 };
        for record in [record.clone(), Record { state: waits, ..record }] {
            assert_eq!(Record::parse(&record.to_string()), Some(record));
        }
        for unknown in ["", "2 a 1 3 0 i 5 votes", "1 a 1 3 0 i 5 naps", "1 a 1 3 0 i 5 votes more"] {
            assert_eq!(Record::parse(unknown), None, "{unknown}");
        }
    }
}
