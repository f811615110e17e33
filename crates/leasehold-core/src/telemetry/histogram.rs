//! Durations in fixed buckets, which are those of the text format.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::Serialize;

/// Upper bounds of the buckets in seconds; one more is unbounded.
const BOUNDS: [f64; 18] = [
    5e-5, 1e-4, 2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0,
    300.0,
];

/// How durations were spread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum_us: u64,
}

/// One that is being recorded, by many at once.
#[derive(Default)]
pub(super) struct LiveHistogram {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl LiveHistogram {
    pub(super) fn record(&self, value: Duration) {
        let seconds = value.as_secs_f64();
        self.counts[BOUNDS.partition_point(|bound| *bound < seconds)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(value.as_micros() as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Histogram {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Histogram { counts: self.counts.each_ref().map(read), sum_us: read(&self.sum_us) }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum_us += other.sum_us;
    }

    /// What was recorded since an earlier reading of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        counts.iter_mut().zip(earlier.counts).for_each(|(now, then)| *now = now.saturating_sub(then));
        Self { counts, sum_us: self.sum_us.saturating_sub(earlier.sum_us) }
    }

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
        let (bound, _) = self.cumulative().find(|(_, below)| *below >= rank)?;
        bound.map(Duration::from_secs_f64)
    }

    /// Each bucket's upper bound in seconds (`None`: unbounded) with the number of values up to it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = BOUNDS.map(Some).into_iter().chain([None]);
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
        let seen = live.read();
        assert_eq!(seen.count(), 5);
        assert_eq!(seen.quantile(0.4), Some(Duration::from_micros(50)));
        assert_eq!(seen.quantile(0.5), Some(Duration::from_micros(100)));
        assert_eq!(seen.quantile(0.8), Some(Duration::from_millis(1)));
        assert_eq!(seen.quantile(1.0), None);
        assert_eq!(Histogram::default().quantile(0.5), None);
        live.record(Duration::from_millis(2));
        assert_eq!(live.read().since(&seen).quantile(1.0), Some(Duration::from_micros(2500)));
    }
}
