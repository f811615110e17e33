//! Durations in fixed buckets: recording is two atomic additions, and the text format needs no conversion.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::Serialize;

/// Upper bounds of the buckets in microseconds; one more is unbounded.
const BOUNDS_US: [u64; 18] = [
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

#[derive(Default)]
pub(crate) struct LiveHistogram {
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl LiveHistogram {
    pub(crate) fn record(&self, value: Duration) {
        let us = value.as_micros() as u64;
        self.counts[BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        Histogram {
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

/// How durations were spread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    counts: Vec<u64>,
    sum_us: u64,
}

impl Histogram {
    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us)
    }

    /// An upper bound of the given quantile (0 to 1): the end of the bucket it falls into. `None` when nothing was
    /// recorded or the bucket has no end.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = (self.count() as f64 * quantile.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        self.cumulative().find(|(_, below)| *below >= rank).and_then(|(bound, _)| bound)
    }

    /// Each bucket's upper bound (`None`: unbounded) with the number of values up to it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = BOUNDS_US.iter().map(|us| Some(Duration::from_micros(*us))).chain([None]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let live = LiveHistogram::default();
        for us in [40, 50, 60, 900, 400_000_000] {
            live.record(Duration::from_micros(us));
        }
        let seen = live.snapshot();
        assert_eq!(seen.count(), 5);
        assert_eq!(seen.quantile(0.4), Some(Duration::from_micros(50)));
        assert_eq!(seen.quantile(0.5), Some(Duration::from_micros(100)));
        assert_eq!(seen.quantile(0.8), Some(Duration::from_millis(1)));
        assert_eq!(seen.quantile(1.0), None);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
