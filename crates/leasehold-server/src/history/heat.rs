//! How pools of deadlines stood over time.

use std::collections::{BTreeMap, VecDeque};

use schemars::JsonSchema;
use serde::Serialize;

const STEP_MS: u64 = 10_000;
/// One hour.
const KEPT: usize = 360;

/// Columns of the same length, oldest first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Heat {
    step_ms: u64,
    at_ms: Vec<u64>,
    pending: Vec<u64>,
    due: Vec<u64>,
    overdue_ms: Vec<u64>,
}

/// A pool at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolPoint {
    pub(crate) at_ms: u64,
    pub(crate) pending: u64,
    pub(crate) due: u64,
    pub(crate) overdue_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pools(BTreeMap<String, VecDeque<PoolPoint>>);

impl Pools {
    /// Whether it is time to look at a pool again.
    pub(super) fn is_time(&self, pool: &str, at_ms: u64) -> bool {
        let last = self.0.get(pool).and_then(VecDeque::back);
        last.is_none_or(|last| at_ms.saturating_sub(last.at_ms) >= STEP_MS)
    }

    pub(super) fn keep(&mut self, pool: &str, point: PoolPoint) {
        let points = self.0.entry(pool.to_owned()).or_default();
        if points.len() >= KEPT {
            points.pop_front();
        }
        points.push_back(point);
    }

    pub(super) fn heat(&self, pool: &str) -> Heat {
        let mut heat = Heat { step_ms: STEP_MS, ..Heat::default() };
        for point in self.0.get(pool).into_iter().flatten() {
            heat.at_ms.push(point.at_ms);
            heat.pending.push(point.pending);
            heat.due.push(point.due);
            heat.overdue_ms.push(point.overdue_ms);
        }
        heat
    }

    /// How many are due in all pools, and the longest that one is overdue.
    pub(super) fn due(&self) -> (u64, u64) {
        let last = self.0.values().filter_map(VecDeque::back);
        last.fold((0, 0), |(due, overdue), point| (due + point.due, overdue.max(point.overdue_ms)))
    }
}
