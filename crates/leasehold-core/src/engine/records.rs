//! The contract of records: what was begun, how it ended, and plain marks.
//!
//! A record lives under its key as given, without the prefix of locks, so that other programs can share it. A bare `1`
//! is a mark: it was done, or is in progress, and nothing more is known. Everything else has the layout of [`Stored`].
//!
//! A record that is *running* is a lease: it ends by itself, is renewed as [`Leases`](super::Leases) says, and has a fence.
//! Whoever begins after it ran out gets a higher fence, and the one before can no longer settle anything.

use std::time::Duration;

use bytes::Bytes;

use super::{Cursor, Format, Fut, Grant, Held, Hold, Mode, Page};
use crate::{
    clock::Until,
    fence::Fence,
    name::Name,
    owner::{Holder, Owner},
};

pub mod decide;
mod stored;

pub use stored::{Fingerprint, State, Stored};

/// What a mark is.
pub const MARK: &[u8] = b"1";

/// Records and marks. Every operation is atomic per key.
pub trait Records: Send + Sync {
    /// Begins a record, or says how it stands. The same owner again gets the same fence and a fresh lease.
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun>;

    /// Ends an execution, keeps its outcome, and wakes its waiters. It counts while the record is still running under
    /// its owner, and also after its lease ran out if nobody has begun since: the work was done once. Sent again it says
    /// the same. Somebody else's record is never touched.
    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled>;

    /// Does something with many marks, all in one round trip. Anything that is no mark is left alone: it may be a record, a
    /// lock or another program's data. One result per key.
    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>>;

    /// What is under a key.
    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>>;

    /// Removes whatever is under a key, also what cannot be read, and wakes its waiters. For operators: a later
    /// execution still gets a higher fence. True if there was something.
    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool>;

    /// Records and marks whose key begins with `prefix`, a page at a time. A page may be empty although more follow. What is
    /// there from the first page to the last is on at least one of them; it may be on several.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>>;
}

/// How the keys of notes begin that a lock was taken by force: marks that the library sets itself. They are the only marks
/// under `leasehold:`, which stores may refuse to callers.
pub const FORCED_PREFIX: &str = "leasehold:forced:";

/// What to do with marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkOp {
    /// Sets one for this long, or lets the one that is there last anew. True where it was set.
    Set(Duration),
    /// Sets one where there is nothing. True where it was set.
    SetIfAbsent(Duration),
    /// Tests whether there is anything.
    Test,
    /// Removes it. True where a mark was removed.
    Clear,
}

/// One request to begin a record.
#[derive(Clone, Debug)]
pub struct Begin {
    /// Which record.
    pub key: Name,
    /// Who.
    pub owner: Owner,
    /// What was asked for; another one under the same key is a mismatch. Without one nothing is compared.
    pub fingerprint: Option<Fingerprint>,
    /// How long it runs unless renewed.
    pub lease: Duration,
    /// Whether to be woken ([`Wake::LookAgain`](super::Wake::LookAgain)) when somebody else's is settled or removed. Such
    /// hints may be lost: waiters ask again from time to time, and at the latest when the lease has run out.
    pub wake: bool,
}

impl Begin {
    /// The lease that a grant leads to.
    pub fn hold(&self, fence: Fence) -> Hold {
        let Self { key: name, owner, lease: ttl, .. } = self.clone();
        let (mode, lock_delay) = (Mode::Exclusive, Duration::ZERO);
        let format = Format::Plain;
        Hold { name, owner, fence, mode, format, ttl, lock_delay, of: Held::Record, watch: false }
    }

    /// The text of the record while it runs.
    pub fn text(&self, fence: Fence) -> Vec<u8> {
        let state = State::Running(self.owner.clone());
        Stored { state, fence, fingerprint: self.fingerprint.clone() }.write()
    }
}

/// How a record stands for who asked to begin it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It is yours to execute.
    Yours(Grant),
    /// Another execution is in progress.
    Running {
        /// Who.
        holder: Holder,
        /// When its lease runs out, unless it is renewed.
        expires_in: Duration,
    },
    /// It was done; this is the result.
    Completed(Bytes),
    /// It failed, and everybody gets this failure.
    Failed(Bytes),
    /// It failed, and nobody tries again until it is removed; this is why.
    Quarantined(Bytes),
    /// There is a mark, and no result.
    DoneElsewhere,
    /// The record is of another request.
    Mismatch,
}

/// The end of an execution.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The lease under which it ran.
    pub hold: Hold,
    /// Of which request it was, as it was begun.
    pub fingerprint: Option<Fingerprint>,
    /// How it ended.
    pub outcome: Outcome,
    /// How long the outcome is kept.
    pub keep: Duration,
}

impl Settle {
    /// The text of the record from then on; nothing if it is removed.
    pub fn text(&self) -> Option<Vec<u8>> {
        let state = match &self.outcome {
            Outcome::Completed(result) => State::Completed(result.clone()),
            Outcome::Failed(why) => State::Failed(why.clone()),
            Outcome::Quarantined(why) => State::Quarantined(why.clone()),
            Outcome::Retry => return None,
        };
        Some(Stored { state, fence: self.hold.fence, fingerprint: self.fingerprint.clone() }.write())
    }
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this result.
    Completed(Bytes),
    /// With this failure, for everybody who asks.
    Failed(Bytes),
    /// With this failure, and nobody shall try again until somebody has looked.
    Quarantined(Bytes),
    /// Without a result: the next one may try.
    Retry,
}

/// What became of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It stands.
    Stored,
    /// Nothing was stored: the lease had run out, and somebody else has begun since.
    FencedOff {
        /// The fence of the later execution, if it is known.
        by: Option<Fence>,
    },
}

/// What is under a key, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key.
    pub key: Name,
    /// What it says, or why it cannot be read.
    pub content: Content,
    /// When it goes away by itself, if it does.
    pub expires_in: Option<Duration>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A mark.
    Mark,
    /// A record of this library.
    Stored(Stored),
    /// Neither; the key was left alone.
    Corrupt,
}
