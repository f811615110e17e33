//! When a deadline whose handler failed is due again. Pure: randomness comes in as a number.

use std::time::Duration;

use crate::{config::between, deadlines::DUE_MAX, error::Result};

/// How long a failed deadline is left alone: twice as long after each attempt.
///
/// Every pause has jitter, so that many that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), most: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// `first` after the first attempt, then twice as long each time, up to `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most }
    }

    pub(super) fn check(&self) -> Result<()> {
        between("first backoff", self.first, Duration::from_millis(1), DUE_MAX)?;
        between("longest backoff", self.most, self.first, DUE_MAX)
    }

    /// The pause after the given attempt (1 is the first): from half of the full pause to all of it. `chance` is a
    /// random number from 0 to 1.
    pub(super) fn pause(&self, attempt: u32, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.most);
        full / 2 + (full / 2).mul_f64(chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::new(100 * MS, 700 * MS);
        let longest: Vec<_> = (1..6).map(|attempt| backoff.pause(attempt, 1.0).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 700, 700]);
        assert_eq!(backoff.pause(2, 0.0), 100 * MS);
    }

    #[test]
    fn absurd_pauses_are_refused() {
        assert!(Backoff::new(Duration::ZERO, MS).check().is_err());
        assert!(Backoff::new(2 * MS, MS).check().is_err());
        Backoff::default().check().unwrap();
    }

    proptest! {
        #[test]
        fn a_pause_is_between_half_and_all_of_the_full_one(
            first in 1u32..100_000, more in 0u32..100_000, attempt in 0u32.., chance in 0.0f64..=1.0,
        ) {
            let (first, most) = (first * MS, (first + more) * MS);
            let pause = Backoff::new(first, most).pause(attempt, chance);
            prop_assert!(pause >= first / 2 && pause <= most);
        }
    }
}
