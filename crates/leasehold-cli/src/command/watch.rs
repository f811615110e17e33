//! `leasehold watch`: one line for every change of a lock.

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use leasehold::{Fence, Holder, Leasehold};
use serde::Serialize;

use super::{Global, ls};
use crate::{
    duration,
    exit::{Exit, Failure},
    output::{self, Envelope, Output, clean},
    signals::Signals,
    store::{self, Store},
    view::LockView,
    waiting::ending,
};

/// Print a line for every change: acquired, released, handed-over, waiting
#[derive(Args)]
#[command(after_help = "\
The store is polled: a lock held for less than the interval may not be seen. Exits with 0 on
INT, on TERM, or when the reader of its output is gone.

Examples:
  leasehold watch
  leasehold watch deal: --interval 200ms --json")]
pub(super) struct Watch {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// How often to poll
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,

    /// Exit after this many lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Most locks that are watched.
const NAMES_MAX: usize = 100_000;
/// Shortest interval: below it, polling would be most of the load of the store.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Change {
    change: Word,
    name: String,
    holder: Option<Holder>,
    fence: Option<Fence>,
    waiting: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Acquired,
    Released,
    HandedOver,
    Waiting,
}

impl Word {
    fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Released => "released",
            Self::HandedOver => "handed-over",
            Self::Waiting => "waiting",
        }
    }
}

type Snapshot = BTreeMap<String, LockView>;

impl Watch {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        if self.interval < INTERVAL_MIN {
            return Err(Failure::usage("the interval is too short", "give 10ms or more"));
        }
        let mut signals = Signals::listen(&crate::signals::FORWARDED)?;
        let leases = Store::choose(global)?.connect().await?;
        let out = global.output();
        let result = tokio::select! {
            biased;
            _ = ending(&mut signals) => Ok(()),
            result = self.follow(&leases, out) => result,
        };
        store::close(&leases).await;
        result.map(|()| Exit::OK)
    }

    async fn follow(&self, leases: &Leasehold, out: Output) -> Result<(), Failure> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut before = self.snapshot(leases).await?;
        if !out.json {
            output::say(&format!("watching {} locks; changes follow", before.len()));
        }
        while left > 0 {
            tokio::time::sleep(self.interval).await;
            let now = self.snapshot(leases).await?;
            for change in changes(&before, &now).into_iter().take(usize::try_from(left).unwrap_or(usize::MAX))
            {
                output::print(&change.line(out)?)?;
                left -= 1;
            }
            before = now;
        }
        Ok(())
    }

    async fn snapshot(&self, leases: &Leasehold) -> Result<Snapshot, Failure> {
        let (locks, _) = ls::all(leases, &self.prefix, NAMES_MAX).await?;
        Ok(locks.iter().map(|lock| (lock.name.to_string(), LockView::from(lock))).collect())
    }
}

impl Change {
    fn new(change: Word, lock: &LockView) -> Self {
        let LockView { name, holder, fence, waiting, .. } = lock.clone();
        Self { change, name, holder, fence, waiting }
    }

    fn line(self, out: Output) -> std::io::Result<String> {
        if out.json {
            return Envelope::new(self).line();
        }
        let holder = self.holder.as_ref().map_or_else(|| "-".into(), ToString::to_string);
        let fence = self.fence.map_or_else(|| "-".into(), |fence| fence.to_string());
        let (change, name, waiting) = (self.change.as_str(), clean(&self.name), self.waiting);
        Ok(if out.terminal {
            format!("{change:11}  {name}  {}  fence {fence}  {waiting} waiting\n", clean(&holder))
        } else {
            format!("{change}\t{name}\t{}\t{fence}\t{waiting}\n", clean(&holder))
        })
    }
}

/// What happened between two looks, by name. A release shows who had it.
fn changes(before: &Snapshot, now: &Snapshot) -> Vec<Change> {
    let mut changes = Vec::new();
    let gone = before.values().filter(|lock| !now.contains_key(&lock.name));
    changes.extend(gone.filter(|lock| lock.fence.is_some()).map(|lock| Change::new(Word::Released, lock)));
    for lock in now.values() {
        let old = before.get(&lock.name);
        match (old.and_then(|old| old.fence), lock.fence) {
            (None, Some(_)) => changes.push(Change::new(Word::Acquired, lock)),
            (Some(was), Some(is)) if was != is => changes.push(Change::new(Word::HandedOver, lock)),
            (Some(_), None) => {
                changes.extend(old.map(|old| Change::new(Word::Released, old)));
            }
            _ => {}
        }
        if lock.waiting > old.map_or(0, |old| old.waiting) {
            changes.push(Change::new(Word::Waiting, lock));
        }
    }
    changes.sort_by(|a, b| a.name.cmp(&b.name));
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::State;

    fn look(locks: &[(&str, Option<u64>, u32)]) -> Snapshot {
        let view = |&(name, fence, waiting): &(&str, Option<u64>, u32)| LockView {
            name: name.into(),
            state: if fence.is_some() { State::Held } else { State::Waiting },
            holder: None,
            fence: fence.map(Fence::new),
            expires_in_ms: None,
            waiting,
        };
        locks.iter().map(|lock| (lock.0.to_owned(), view(lock))).collect()
    }

    fn words(before: &[(&str, Option<u64>, u32)], now: &[(&str, Option<u64>, u32)]) -> Vec<String> {
        let told = changes(&look(before), &look(now)).into_iter();
        told.map(|change| format!("{} {}", change.change.as_str(), change.name)).collect()
    }

    #[test]
    fn each_change_has_its_word() {
        assert_eq!(words(&[], &[("a", Some(1), 0)]), ["acquired a"]);
        assert_eq!(words(&[("a", Some(1), 0)], &[]), ["released a"]);
        assert_eq!(words(&[("a", Some(1), 1)], &[("a", Some(2), 0)]), ["handed-over a"]);
        assert_eq!(words(&[("a", Some(1), 0)], &[("a", Some(1), 2)]), ["waiting a"]);
        assert_eq!(words(&[("a", Some(1), 1)], &[("a", None, 1)]), ["released a"]);
        assert!(words(&[("a", Some(1), 2)], &[("a", Some(1), 1)]).is_empty());
    }

    #[test]
    fn changes_come_by_name() {
        let now = [("b", Some(2), 1), ("a", Some(1), 0)];
        assert_eq!(
            words(&[("c", Some(3), 0)], &now),
            ["acquired a", "acquired b", "waiting b", "released c"]
        );
    }
}
