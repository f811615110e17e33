//! The contract of deadlines: times at which something must be looked at, that outlive whoever set them.
//!
//! The id of a deadline decides in which bucket of its pool it is. A claim hides what is due from all others for a while
//! (*visibility*) and returns a *receipt* for each; only with that can it be settled. If the claimer dies, the deadline
//! becomes visible again. All times are the store's.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;

use super::{Cursor, Fut, Page, crc16::crc16};
use crate::{clock::Until, name::Name};

/// Deadlines of many pools. Every operation is atomic per bucket.
pub trait Deadlines: Send + Sync {
    /// Stores the layout of a pool that is new; returns the one that is stored. Clients ask this first, and go on only if
    /// the answer is what they want.
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout>;

    /// The layout of the pool of that name, if anybody ever used it. Stores nothing.
    fn known_layout<'a>(&'a self, pool: &'a Name, until: Until) -> Fut<'a, Option<PoolLayout>>;

    /// Sets deadlines. One of that id, also a dead one, is replaced: a claim of it is void, its attempts begin anew.
    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], until: Until) -> Fut<'a, ()>;

    /// Claims what is due, at most `limit` per bucket, oldest first within a bucket; nothing is claimed twice within its
    /// visibility. One round trip; on a sharded store one to each shard, all at once. If their contexts are too much for one
    /// answer, some are left, and more is due.
    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Fut<'a, Batch>;

    /// Settles claimed deadlines, in order. One result each: false for a receipt that is no longer good; then nothing of
    /// that deadline changes.
    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>>;

    /// Removes deadlines, claimed or not, alive or dead. True where there was one.
    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>>;

    /// What is due, oldest first, without claiming it; at most `limit`.
    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, until: Until) -> Fut<'a, Vec<Pending>>;

    /// A page of dead deadlines, about `limit`. A page may be empty although more follow. What is dead from the first page
    /// to the last is on at least one of them; the client removes duplicates.
    fn dead<'a>(
        &'a self,
        pool: &'a Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Dead>>;

    /// How the pool stands.
    fn stats<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolStats>;
}

/// Names one deadline of a pool.
pub type DeadlineId = Arc<str>;

/// A pool of deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// How it is laid out.
    pub layout: PoolLayout,
}

/// How a pool is laid out. Stored with the pool: it is the same for all who use it, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLayout {
    /// How many buckets there are.
    pub buckets: u16,
    /// Where they are.
    pub placement: Placement,
}

/// Where the buckets of a pool are on a sharded store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each for itself, on any shard: the pool's load is shared.
    #[default]
    Spread,
    /// All on one shard: one script claims from all of them.
    Together,
}

impl fmt::Display for PoolLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} buckets {}", self.buckets, self.placement)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spread => "spread",
            Self::Together => "together",
        })
    }
}

/// Most buckets of a pool.
pub const BUCKETS_MAX: u16 = 1024;

impl Pool {
    /// The bucket of an id. The same for ever, in every version and language: the CRC-16 that Redis places keys by
    /// (XMODEM) modulo the number of buckets.
    pub fn bucket_of(&self, id: &str) -> u16 {
        crc16(id.as_bytes()) % self.layout.buckets.max(1)
    }
}

/// A deadline to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Its id in the pool.
    pub id: DeadlineId,
    /// When it is due.
    pub due: DueTime,
    /// What its claimer gets with it.
    pub context: Option<Bytes>,
}

impl Deadline {
    /// A deadline without context. It is due after a [`Duration`] by the store's clock, or at a [`SystemTime`].
    pub fn new(id: impl Into<DeadlineId>, due: impl Into<DueTime>) -> Self {
        Self { id: id.into(), due: due.into(), context: None }
    }

    /// What its claimer gets with it.
    #[must_use]
    pub fn context(self, context: impl Into<Bytes>) -> Self {
        Self { context: Some(context.into()), ..self }
    }
}

/// When a deadline is due. Stores count in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueTime {
    /// So long after the store's present time.
    In(Duration),
    /// At this time, in milliseconds since 1970.
    AtMs(u64),
}

impl From<Duration> for DueTime {
    fn from(after: Duration) -> Self {
        Self::In(after)
    }
}

/// A time before 1970 is due at once.
impl From<SystemTime> for DueTime {
    fn from(at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::AtMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Oldest first within each bucket.
    pub due: Vec<Delivery>,
    /// Whether more is due by now than the limit let through.
    pub more: bool,
}

/// A deadline that was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Proof of the claim.
    pub receipt: Receipt,
    /// Which delivery attempt this is, starting at 1.
    pub attempt: u32,
    /// How late it is claimed. For a later attempt it counts from when it became visible again.
    pub overdue: Duration,
    /// What was given with it.
    pub context: Option<Bytes>,
}

/// Proof of a claim. Good until the deadline is claimed or set again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The deadline.
    pub id: DeadlineId,
    /// Grows with every claim in a bucket, and with the store's time.
    pub number: u64,
}

/// What becomes of a claimed deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It was handled: remove it.
    Done,
    /// It is due again after this time, and the attempt counts. The receipt stays good until somebody claims it.
    Postpone(Duration),
    /// It was not handled: it is due again at once, and the attempt does not count. The receipt is void.
    GiveBack,
    /// Move it to the dead ones, with its context and this reason.
    Bury(String),
}

/// A deadline that is due and was not claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The deadline.
    pub id: DeadlineId,
    /// How often it was claimed so far.
    pub attempts: u32,
    /// For how long it has been due.
    pub overdue: Duration,
}

/// A deadline that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// The deadline.
    pub id: DeadlineId,
    /// How often it was claimed.
    pub attempts: u32,
    /// When it was buried, in milliseconds since 1970 by the store's clock.
    pub buried_at_ms: u64,
    /// Why.
    pub why: String,
    /// What was given with it.
    pub context: Option<Bytes>,
}

/// How a pool stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Deadlines that are not dead: due, not yet due, or claimed.
    pub pending: u64,
    /// Of these, due now and not hidden by a claim.
    pub due: u64,
    /// Of these, claimed at least once.
    pub tried: u64,
    /// How long the oldest has been due.
    pub overdue: Duration,
    /// Deadlines that were given up.
    pub dead: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_of_an_id_is_the_same_for_ever() {
        let layout = PoolLayout { buckets: 16, placement: Placement::Spread };
        let pool = Pool { name: Name::new("payments").unwrap(), layout };
        assert_eq!(pool.bucket_of("123456789"), 3);
        let mut counts = [0; 16];
        (0..16_000).for_each(|n| counts[usize::from(pool.bucket_of(&format!("tx:{n}")))] += 1);
        assert!(counts.iter().all(|count| (500..2000).contains(count)), "{counts:?}");
    }
}
