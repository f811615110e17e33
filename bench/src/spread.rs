//! Medians and percentiles.

use std::time::Duration;

/// The middle of some values, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// # Panics
    /// Without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Self { median: (low + high) / 2.0, min: values[0], max: values[values.len() - 1] }
    }
}

/// The median of some durations, in microseconds.
pub(crate) fn p50_us(samples: &[Duration]) -> f64 {
    Spread::of(samples.iter().map(|sample| sample.as_secs_f64() * 1e6)).median
}

/// The sample below which this share of all lies, in microseconds; 0 without samples. Changes their order.
pub(crate) fn percentile_us(samples: &mut [Duration], share: f64) -> f64 {
    let Some(last) = samples.len().checked_sub(1) else { return 0.0 };
    let (_, sample, _) = samples.select_nth_unstable((last as f64 * share) as usize);
    sample.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
        assert_eq!(p50_us(&[Duration::from_micros(7)]), 7.0);
    }

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let mut samples: Vec<_> = (0..=100).rev().map(Duration::from_micros).collect();
        assert_eq!(percentile_us(&mut samples, 0.5).round(), 50.0);
        assert_eq!(percentile_us(&mut samples, 0.99).round(), 99.0);
        assert_eq!(percentile_us(&mut [], 0.5), 0.0);
    }
}
