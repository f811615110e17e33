//! Numbers over time, in steps of a few seconds.

use std::collections::VecDeque;

use leasehold::{Stats, telemetry::Histogram};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Totals, tenures::EndKind};
use crate::views::millis;

pub(super) const STEP_MS: u64 = 5_000;
/// One hour.
const KEPT: usize = 720;
const HOUR_MS: u64 = 3_600_000;

/// One step: counts within it, and states at its end.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Point {
    at_ms: u64,
    acquired: u64,
    refused: u64,
    timed_out: u64,
    failed: u64,
    lost: u64,
    released: u64,
    held: u32,
    waiting: u32,
    wait_p50_ms: Option<u64>,
    wait_p95_ms: Option<u64>,
    wait_p99_ms: Option<u64>,
}

/// Columns of the same length, oldest first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Series {
    step_ms: u64,
    at_ms: Vec<u64>,
    acquired: Vec<u64>,
    refused: Vec<u64>,
    timed_out: Vec<u64>,
    failed: Vec<u64>,
    lost: Vec<u64>,
    released: Vec<u64>,
    held: Vec<u32>,
    waiting: Vec<u32>,
    wait_p50_ms: Vec<Option<u64>>,
    wait_p95_ms: Vec<Option<u64>>,
    wait_p99_ms: Vec<Option<u64>>,
}

#[derive(Debug, Default)]
pub(super) struct Recorder {
    points: VecDeque<Point>,
    began_ms: u64,
    current: Point,
    before: Counts,
    losses: VecDeque<u64>,
}

/// The library's counters at the end of the step before.
#[derive(Debug, Default)]
struct Counts {
    refused: u64,
    timed_out: u64,
    failed: u64,
    waits: Histogram,
}

impl Recorder {
    pub(super) fn acquired(&mut self) {
        self.current.acquired += 1;
    }

    pub(super) fn ended(&mut self, how: Option<EndKind>, at_ms: u64) {
        match how {
            Some(EndKind::Expired | EndKind::Forced) => {
                self.current.lost += 1;
                if self.losses.len() >= 100_000 {
                    self.losses.pop_front();
                }
                self.losses.push_back(at_ms);
            }
            _ => self.current.released += 1,
        }
    }

    pub(super) fn lost_within_an_hour(&self, at_ms: u64) -> u64 {
        self.losses.iter().rev().take_while(|at| at_ms.saturating_sub(**at) < HOUR_MS).count() as u64
    }

    /// Ends a step if it is time to.
    pub(super) fn step(&mut self, at_ms: u64, totals: Totals, stats: &Stats) -> Option<Point> {
        if self.began_ms == 0 {
            (self.began_ms, self.before) = (at_ms, Counts::of(stats));
            return None;
        }
        if at_ms.saturating_sub(self.began_ms) < STEP_MS {
            return None;
        }
        let (now, before) = (Counts::of(stats), &self.before);
        let waits = now.waits.since(&before.waits);
        let quantile = |q: f64| waits.quantile(q).map(millis);
        let point = Point {
            at_ms,
            refused: now.refused.saturating_sub(before.refused),
            timed_out: now.timed_out.saturating_sub(before.timed_out),
            failed: now.failed.saturating_sub(before.failed),
            held: totals.held,
            waiting: totals.waiting,
            wait_p50_ms: quantile(0.5),
            wait_p95_ms: quantile(0.95),
            wait_p99_ms: quantile(0.99),
            ..std::mem::take(&mut self.current)
        };
        (self.began_ms, self.before) = (at_ms, now);
        if self.points.len() >= KEPT {
            self.points.pop_front();
        }
        self.points.push_back(point.clone());
        Some(point)
    }

    pub(super) fn series(&self) -> Series {
        let mut series = Series { step_ms: STEP_MS, ..Series::default() };
        for point in &self.points {
            series.at_ms.push(point.at_ms);
            series.acquired.push(point.acquired);
            series.refused.push(point.refused);
            series.timed_out.push(point.timed_out);
            series.failed.push(point.failed);
            series.lost.push(point.lost);
            series.released.push(point.released);
            series.held.push(point.held);
            series.waiting.push(point.waiting);
            series.wait_p50_ms.push(point.wait_p50_ms);
            series.wait_p95_ms.push(point.wait_p95_ms);
            series.wait_p99_ms.push(point.wait_p99_ms);
        }
        series
    }
}

impl Counts {
    fn of(stats: &Stats) -> Self {
        Self {
            refused: stats.refused,
            timed_out: stats.timed_out,
            failed: stats.failed,
            waits: stats.acquire_latency.clone(),
        }
    }
}
