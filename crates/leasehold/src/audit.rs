//! Who took what from whom: an act is noted in the store before it is done, and its outcome after it.
//!
//! `leasehold serve` and `leasehold top` keep one trail, which `GET /v1/audit` shows. A program of your own that takes locks from
//! others can write into it, too:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use leasehold::{Leasehold, audit::{self, Action, Entry}};
//!
//! let leases = Leasehold::connect("memory:").await?;
//! let _stuck = leases.lock("report").acquire().await?;
//! let fence = leases.inspect("report").await?.held().map(|held| held.fence).unwrap();
//!
//! let mut entry = Entry::new(Action::ForceRelease, "report", "night shift", "ops-1");
//! (entry.fence, entry.reason) = (Some(fence.get()), Some("its host is gone".into()));
//! audit::begin(&leases, &mut entry).await?;
//! let released = leases.force_release("report", fence).await?;
//! audit::end(&leases, &mut entry, format!("{released:?}")).await?;
//!
//! assert_eq!(audit::entries(&leases).await?[0].reason.as_deref(), Some("its host is gone"));
//! # leases.close().await }
//! ```

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use leasehold_core::{
    Clock, ErrorKind, Result,
    idempotency::{Begun, Content, State},
};
use serde::{Deserialize, Serialize};

use crate::Leasehold;

/// The operation under which entries lie in the store, as records.
const OPERATION: &str = "leasehold-audit";
const KEPT_FOR: Duration = Duration::from_secs(90 * 86_400);
/// Records that one listing reads at most.
const READ_MAX: usize = 10_000;
const REQUESTED: &str = "requested";

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// A lock was taken from its holder.
    ForceRelease,
    /// The limit of a semaphore was changed.
    SetLimit,
    /// The record of a request was removed.
    RemoveRecord,
    /// A dead deadline was set again.
    Requeue,
}

/// Where an entry is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// In the store, for 90 days.
    Store,
    /// Nowhere but with its writer: the store keeps no records.
    Memory,
}

/// One act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entry {
    /// Ids are in the order of time.
    pub id: String,
    /// Wall-clock milliseconds since 1970.
    pub at_ms: u64,
    /// What was done.
    pub action: Action,
    /// To what.
    pub name: String,
    /// The fence of the holder that was seen.
    pub fence: Option<u64>,
    /// Who did it.
    pub by: String,
    /// From where.
    pub from: String,
    /// Why.
    pub reason: Option<String>,
    /// `requested` until the outcome is known.
    pub outcome: String,
    /// Where this entry is kept.
    pub kept: Kept,
}

impl Entry {
    /// An act that is about to be done.
    pub fn new(
        action: Action,
        name: impl Into<String>,
        by: impl Into<String>,
        from: impl Into<String>,
    ) -> Self {
        let at_us = later_than_the_last();
        // Two programs may act in the same microsecond.
        let random = RandomState::new().build_hasher().finish() >> 32;
        Self {
            id: format!("{at_us:016}-{random:08x}"),
            at_ms: at_us / 1000,
            action,
            name: name.into(),
            fence: None,
            by: by.into(),
            from: from.into(),
            reason: None,
            outcome: REQUESTED.into(),
            kept: Kept::Store,
        }
    }
}

/// The time in microseconds, which no two acts of this program share, also if its clock goes back.
fn later_than_the_last() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = Clock::system().wall_us();
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(now.max(last + 1)));
    last.map_or(now, |last| now.max(last + 1))
}

/// Notes an act before it is done. A store that keeps no records is no reason not to do it: then [`Entry::kept`] says so.
///
/// # Errors
/// Those of the store. What cannot be noted should not be done.
pub async fn begin(leases: &Leasehold, entry: &mut Entry) -> Result<()> {
    match write(leases, &entry.id, entry).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => entry.kept = Kept::Memory,
        written => written?,
    }
    Ok(())
}

/// Notes how an act ended.
///
/// # Errors
/// Those of the store; the act stays in the trail as `requested`.
pub async fn end(leases: &Leasehold, entry: &mut Entry, outcome: impl Into<String>) -> Result<()> {
    entry.outcome = outcome.into();
    match entry.kept {
        Kept::Store => write(leases, &format!("{}-outcome", entry.id), entry).await,
        Kept::Memory => Ok(()),
    }
}

async fn write(leases: &Leasehold, key: &str, entry: &Entry) -> Result<()> {
    let key = leases.idempotency(OPERATION).key(key).keep_result_for(KEPT_FOR);
    if let Begun::Yours(execution) = key.begin::<Entry>().await? {
        execution.complete(entry).await?;
    }
    Ok(())
}

/// The entries of the store, newest first; none where it keeps no records.
///
/// # Errors
/// Those of the store.
pub async fn entries(leases: &Leasehold) -> Result<Vec<Entry>> {
    let mut entries = BTreeMap::<String, Entry>::new();
    let prefix = format!("idempotency:{OPERATION}:");
    let (mut from, mut read) = (None, 0);
    while read < READ_MAX {
        let page = match leases.records_page(&prefix, from, 500).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => break,
            page => page?,
        };
        read += page.items.len();
        for record in &page.items {
            let Content::Stored(stored) = &record.content else { continue };
            let State::Completed(text) = &stored.state else { continue };
            let Ok(entry) = serde_json::from_slice::<Entry>(text) else { continue };
            let known = entries.entry(entry.id.clone()).or_insert_with(|| entry.clone());
            // The outcome is a record of its own.
            if known.outcome == REQUESTED {
                *known = entry;
            }
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    Ok(entries.into_values().rev().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_the_order_of_time() {
        let entry = || Entry::new(Action::ForceRelease, "a", "by", "from").id;
        let ids: Vec<_> = std::iter::repeat_with(entry).take(1000).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
    }
}
