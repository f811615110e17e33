//! How long each holder held what, and how that ended.

use std::collections::VecDeque;

use leasehold::engine::Tenure;
use schemars::JsonSchema;
use serde::Serialize;

use crate::views::{Fence64, HolderView, ModeWord, label_of, millis};

/// Tenures that are remembered after their end.
const KEPT: usize = 20_000;
/// A renewal shows as a lease that lasts longer than it did by at least so much.
const RENEWAL_MS: u64 = 20;

/// How a tenure ended, as far as can be seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndKind {
    Released,
    Expired,
    HandedOver,
    Forced,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tenure")]
pub(crate) struct TenureRow {
    pub(crate) name: String,
    pub(crate) fence: Fence64,
    pub(crate) holder: HolderView,
    pub(crate) mode: ModeWord,
    pub(crate) from_ms: u64,
    pub(crate) to_ms: Option<u64>,
    pub(crate) ended: Option<EndKind>,
    pub(crate) waiters_max: u32,
    pub(crate) renewals: u32,
    #[serde(skip)]
    label: String,
}

/// A tenure that goes on.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) fence: u64,
    pub(super) label: String,
    pub(super) from_ms: u64,
    /// The most that was left of its lease.
    pub(super) longest_ms: Option<u64>,
    pub(super) left_ms: Option<u64>,
    pub(super) renewals: u32,
    holder: HolderView,
    mode: ModeWord,
    waiters_max: u32,
}

impl Open {
    pub(super) fn new(tenure: &Tenure, at_ms: u64, waiting: u32) -> Self {
        let left_ms = tenure.expires_in.map(millis);
        Self {
            fence: tenure.fence.get(),
            label: label_of(&tenure.holder).to_owned(),
            from_ms: at_ms,
            longest_ms: left_ms,
            left_ms,
            renewals: 0,
            holder: (&tenure.holder).into(),
            mode: tenure.mode.into(),
            waiters_max: waiting,
        }
    }

    pub(super) fn is_of(&self, tenure: &Tenure) -> bool {
        self.fence == tenure.fence.get() && self.holder == (&tenure.holder).into()
    }

    pub(super) fn seen_again(&self, tenure: &Tenure, at_ms: u64, elapsed_ms: u64, waiting: u32) -> Self {
        let now = Self::new(tenure, at_ms, waiting);
        let expected = self.left_ms.map(|left| left.saturating_sub(elapsed_ms));
        let is_renewed = now.left_ms.zip(expected).is_some_and(|(now, expected)| now > expected + RENEWAL_MS);
        Self {
            from_ms: self.from_ms,
            longest_ms: self.longest_ms.max(now.left_ms),
            renewals: self.renewals + u32::from(is_renewed),
            waiters_max: self.waiters_max.max(waiting),
            ..now
        }
    }

    pub(super) fn row(&self, name: &str) -> TenureRow {
        TenureRow {
            name: name.to_owned(),
            fence: Fence64(self.fence),
            holder: self.holder.clone(),
            mode: self.mode,
            from_ms: self.from_ms,
            to_ms: None,
            ended: None,
            waiters_max: self.waiters_max,
            renewals: self.renewals,
            label: self.label.clone(),
        }
    }

    pub(super) fn ended(
        &self,
        name: &str,
        at_ms: u64,
        elapsed_ms: u64,
        is_followed: bool,
        is_forced: bool,
    ) -> TenureRow {
        let ended = match () {
            () if is_forced => EndKind::Forced,
            () if self.left_ms.is_some_and(|left| left <= elapsed_ms) => EndKind::Expired,
            () if is_followed => EndKind::HandedOver,
            () => EndKind::Released,
        };
        TenureRow { to_ms: Some(at_ms), ended: Some(ended), ..self.row(name) }
    }
}

/// How long tenures lasted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct HoldHistogram {
    /// Upper bounds; the last one is none.
    bounds_ms: Vec<Option<u64>>,
    counts: Vec<u64>,
}

const BOUNDS_MS: [u64; 6] = [10, 100, 1_000, 10_000, 60_000, 300_000];

impl HoldHistogram {
    fn of<'a>(rows: impl Iterator<Item = &'a TenureRow>) -> Self {
        let mut counts = vec![0; BOUNDS_MS.len() + 1];
        for row in rows {
            let Some(to) = row.to_ms else { continue };
            counts[BOUNDS_MS.partition_point(|bound| *bound < to.saturating_sub(row.from_ms))] += 1;
        }
        Self { bounds_ms: BOUNDS_MS.map(Some).into_iter().chain([None]).collect(), counts }
    }
}

/// Tenures that ended, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tenures(VecDeque<TenureRow>);

impl Tenures {
    pub(super) fn keep(&mut self, row: TenureRow) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(row);
    }

    pub(super) fn of(
        &self,
        name: &str,
        open: impl Iterator<Item = TenureRow>,
        most: usize,
    ) -> (Vec<TenureRow>, HoldHistogram) {
        let ended = || self.0.iter().rev().filter(|row| row.name == name);
        let rows = open.chain(ended().cloned()).take(most).collect();
        (rows, HoldHistogram::of(ended()))
    }

    pub(super) fn by(&self, label: &str) -> impl Iterator<Item = TenureRow> {
        self.0.iter().rev().filter(move |row| row.label == label).cloned()
    }
}
