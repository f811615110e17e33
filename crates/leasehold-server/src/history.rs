//! What the service has seen of the store since it was started, in bounded memory: no part of it is stored.

mod contention;
mod heat;
mod lints;
mod series;
mod tenures;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use leasehold::{Stats, engine::Inspection};
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use contention::{Hot, Pair};
pub(crate) use heat::{Heat, PoolPoint};
pub(crate) use lints::Lint;
pub(crate) use series::{Point, Series};
pub(crate) use tenures::{HoldHistogram, TenureRow};

use crate::{
    events::{CHANGED_MAX, LocksChanged},
    views::{LockRow, ModeWord},
};
use contention::Contention;
use heat::Pools;
use lints::Lints;
use series::Recorder;
use tenures::{Open, Tenures};

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) since_ms: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seq: u64,
    at_ms: u64,
    is_truncated: bool,
    seen: BTreeMap<String, Seen>,
    reach: Reach,
    tenures: Tenures,
    contention: Contention,
    lints: Lints,
    recorder: Recorder,
    pools: Pools,
    /// Grants that were taken by force through this service.
    forced: HashSet<(String, u64)>,
}

/// One name, as it was seen last.
#[derive(Debug)]
struct Seen {
    row: LockRow,
    open: Vec<Open>,
    waiters: HashSet<String>,
}

/// Whether the store answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Reach {
    pub(crate) reachable: bool,
    pub(crate) since_ms: u64,
    pub(crate) error: Option<String>,
}

/// The numbers of one poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) held: u32,
    pub(crate) waiting: u32,
    pub(crate) expiring: u32,
    pub(crate) names: u32,
    pub(crate) is_truncated: bool,
    pub(crate) is_reachable: bool,
    pub(crate) lost_1h: u64,
}

/// What one poll found new.
pub(crate) struct Found {
    pub(crate) changed: Option<LocksChanged>,
    /// The reach, if it changed.
    pub(crate) reach: Option<Reach>,
    /// The point of the series that ended.
    pub(crate) point: Option<Point>,
}

/// Which locks a list shows.
#[derive(Debug, Default)]
pub(crate) struct Filter<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) states: Vec<&'a str>,
    pub(crate) mode: Option<ModeWord>,
    pub(crate) holder: Option<String>,
    pub(crate) waiting: bool,
}

impl Filter<'_> {
    fn takes(&self, row: &LockRow) -> bool {
        let holder = || {
            let text = serde_json::to_string(&row.holder).unwrap_or_default().to_lowercase();
            self.holder.as_ref().is_none_or(|wanted| text.contains(wanted))
        };
        (self.states.is_empty() || self.states.contains(&row.state.as_str()))
            && self.mode.is_none_or(|mode| row.mode == Some(mode))
            && (!self.waiting || row.waiting > 0)
            && holder()
    }
}

impl History {
    pub(crate) fn new(since_ms: u64) -> Self {
        let reach = Reach { reachable: true, since_ms, error: None };
        Self { since_ms, state: Mutex::new(State { reach, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a poll found at that time.
    pub(crate) fn record(
        &self,
        at_ms: u64,
        locks: &[Inspection],
        is_truncated: bool,
        stats: &Stats,
    ) -> Found {
        let mut state = self.state();
        let mut changed = state.take_in(at_ms, locks);
        state.is_truncated = is_truncated;
        let reach = state.reached(at_ms, None);
        let totals = state.totals();
        let State { recorder, .. } = &mut *state;
        let point = recorder.step(at_ms, totals, stats);
        let total = changed.changed.len() + changed.removed.len();
        changed.more = total > CHANGED_MAX;
        if changed.more {
            (changed.changed, changed.removed) = (Vec::new(), Vec::new());
        }
        let changed = (total > 0).then_some(changed);
        Found { changed, reach, point }
    }

    /// Notes that the store did not answer.
    pub(crate) fn unreachable(&self, at_ms: u64, error: String) -> Option<Reach> {
        self.state().reached(at_ms, Some(error))
    }

    pub(crate) fn reach(&self) -> Reach {
        self.state().reach.clone()
    }

    pub(crate) fn seq(&self) -> (u64, u64) {
        let state = self.state();
        (state.seq, state.at_ms)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.state().totals()
    }

    /// Notes that a grant was taken by force.
    pub(crate) fn forced(&self, name: &str, fence: u64) {
        let mut state = self.state();
        if state.forced.len() < 1_000 {
            state.forced.insert((name.to_owned(), fence));
        }
    }

    /// The locks that match, by name.
    pub(crate) fn locks(&self, filter: &Filter<'_>, may_see: impl Fn(&str) -> bool) -> Vec<LockRow> {
        let state = self.state();
        let rows = state.seen.range(filter.prefix.to_owned()..);
        let rows = rows.take_while(|(name, _)| name.starts_with(filter.prefix)).map(|(_, seen)| &seen.row);
        rows.filter(|row| filter.takes(row) && may_see(&row.name)).cloned().collect()
    }

    /// What was seen of a lock that was inspected just now.
    pub(crate) fn complete(&self, row: &mut LockRow) {
        let state = self.state();
        let Some(seen) = state.seen.get(&row.name).filter(|seen| seen.row.fence == row.fence) else { return };
        row.held_for_ms = seen.row.held_for_ms;
        row.renewals = seen.row.renewals;
        row.ttl_ms = row.ttl_ms.max(seen.row.ttl_ms);
    }

    /// The tenures of one name, newest first, and how long they lasted.
    pub(crate) fn tenures_of(&self, name: &str, most: usize) -> (Vec<TenureRow>, HoldHistogram) {
        let state = self.state();
        let open =
            state.seen.get(name).into_iter().flat_map(|seen| seen.open.iter().map(|open| open.row(name)));
        state.tenures.of(name, open, most)
    }

    /// The tenures of a holder of this label, newest first.
    pub(crate) fn tenures_by(&self, label: &str, most: usize) -> Vec<TenureRow> {
        let state = self.state();
        let open = state.seen.iter().flat_map(|(name, seen)| seen.open.iter().map(move |open| (name, open)));
        let open = open.filter(|(_, open)| open.label == label).map(|(name, open)| open.row(name));
        let ended = state.tenures.by(label);
        let mut rows: Vec<_> = open.chain(ended).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.from_ms));
        rows.truncate(most);
        rows
    }

    /// Who waited for whom, most first.
    pub(crate) fn pairs(&self, wanted: impl Fn(&Pair) -> bool, most: usize) -> Vec<Pair> {
        self.state().contention.pairs(wanted, most)
    }

    pub(crate) fn hot(&self) -> Vec<Hot> {
        self.state().contention.hot()
    }

    pub(crate) fn lints(&self) -> Vec<Lint> {
        self.state().lints.recent()
    }

    /// Whether it is time to look at a pool of deadlines again.
    pub(crate) fn is_pool_time(&self, pool: &str, at_ms: u64) -> bool {
        self.state().pools.is_time(pool, at_ms)
    }

    pub(crate) fn record_pool(&self, pool: &str, point: PoolPoint) {
        self.state().pools.keep(pool, point);
    }

    pub(crate) fn heat(&self, pool: &str) -> Heat {
        self.state().pools.heat(pool)
    }

    /// How many deadlines are due, and the longest that one is overdue.
    pub(crate) fn deadlines(&self) -> (u64, u64) {
        self.state().pools.due()
    }

    pub(crate) fn series(&self) -> Series {
        self.state().recorder.series()
    }
}

impl State {
    fn take_in(&mut self, at_ms: u64, locks: &[Inspection]) -> LocksChanged {
        let elapsed_ms = if self.seq == 0 { 0 } else { at_ms.saturating_sub(self.at_ms) };
        (self.seq, self.at_ms) = (self.seq + 1, at_ms);
        let mut before = std::mem::take(&mut self.seen);
        let mut changes = LocksChanged { seq: self.seq, at_ms, ..LocksChanged::default() };
        self.contention.begin();
        for lock in locks {
            let was = before.remove(lock.name.as_str());
            let seen = self.take_in_one(lock, was.as_ref(), elapsed_ms);
            if was.is_none_or(|was| is_news(&was.row, &seen.row)) {
                changes.changed.push(seen.row.clone());
            }
            self.seen.insert(lock.name.to_string(), seen);
        }
        for (name, was) in before {
            for open in &was.open {
                self.end(&name, open, elapsed_ms, false);
            }
            changes.removed.push(name);
        }
        changes
    }

    fn take_in_one(&mut self, lock: &Inspection, was: Option<&Seen>, elapsed_ms: u64) -> Seen {
        let (name, at_ms, is_first) = (lock.name.as_str(), self.at_ms, self.seq == 1);
        let mut open: Vec<Open> = Vec::with_capacity(lock.holders.shown.len());
        for tenure in &lock.holders.shown {
            let known = was.and_then(|was| was.open.iter().find(|open| open.is_of(tenure)));
            let now = match known {
                Some(known) => known.seen_again(tenure, at_ms, elapsed_ms, lock.waiting),
                None => {
                    // What was there at the start was not acquired just now.
                    if !is_first {
                        self.recorder.acquired();
                        self.contention.acquired(name);
                    }
                    Open::new(tenure, at_ms, lock.waiting)
                }
            };
            open.push(now);
        }
        for gone in was.into_iter().flat_map(|was| &was.open) {
            if !open.iter().any(|open| open.fence == gone.fence && open.label == gone.label) {
                self.end(name, gone, elapsed_ms, !open.is_empty());
            }
        }
        let waiters = self.contention.waited(lock, was.map(|was| &was.waiters), elapsed_ms);
        let mut row = LockRow::from(lock);
        if let Some(first) = open.first() {
            row.held_for_ms = Some(at_ms.saturating_sub(first.from_ms));
            row.ttl_ms = first.longest_ms;
            row.renewals = first.renewals;
            self.lints.look(&row, first, at_ms);
        }
        Seen { row, open, waiters }
    }

    fn end(&mut self, name: &str, open: &Open, elapsed_ms: u64, is_followed: bool) {
        let is_forced = self.forced.remove(&(name.to_owned(), open.fence));
        let row = open.ended(name, self.at_ms, elapsed_ms, is_followed, is_forced);
        self.recorder.ended(row.ended, self.at_ms);
        self.tenures.keep(row);
    }

    fn reached(&mut self, at_ms: u64, error: Option<String>) -> Option<Reach> {
        let is_reachable = error.is_none();
        if is_reachable == self.reach.reachable {
            self.reach.error = error;
            return None;
        }
        self.reach = Reach { reachable: is_reachable, since_ms: at_ms, error };
        Some(self.reach.clone())
    }

    fn totals(&self) -> Totals {
        let rows = || self.seen.values().map(|seen| &seen.row);
        let is_expiring = |row: &&LockRow| match (row.expires_in_ms, row.ttl_ms) {
            (Some(left), Some(ttl)) => left < ttl / 5,
            _ => false,
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Totals {
            held: count(rows().filter(|row| row.holder.is_some()).count()),
            waiting: rows().map(|row| row.waiting).fold(0, u32::saturating_add),
            expiring: count(rows().filter(is_expiring).count()),
            names: count(self.seen.len()),
            is_truncated: self.is_truncated,
            is_reachable: self.reach.reachable,
            lost_1h: self.recorder.lost_within_an_hour(self.at_ms),
        }
    }
}

/// Whether a row changed beyond what passing time does.
fn is_news(was: &LockRow, is: &LockRow) -> bool {
    let still = |row: &LockRow| LockRow { expires_in_ms: None, held_for_ms: None, ..row.clone() };
    still(was) != still(is)
}

#[cfg(test)]
mod tests;
