//! When a waiting attempt asks again. Pure: randomness comes in as a number.

use std::time::Duration;

use crate::{config::between, error::Result};

/// How often a waiting attempt asks the store again when nothing wakes it.
///
/// Where the store hands a lock over, the wake-up comes long before the next question; asking is what makes
/// a lost wake-up, a crashed holder or a lock deleted by hand harmless. Every pause has full jitter, so that
/// many clients refused at the same moment do not come back at the same moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    first: Duration,
    factor: f64,
    most: Duration,
}

/// Shortest pause between two questions.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause between two questions.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Extra time after the present lease's end, for each attempt that is ahead in the queue.
const TURN: Duration = Duration::from_millis(50);

impl Default for Retry {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), factor: 2.0, most: Duration::from_secs(1) }
    }
}

impl Retry {
    /// About every `pause`.
    pub fn fixed(pause: Duration) -> Self {
        Self { first: pause, factor: 1.0, most: pause }
    }

    /// `first`, then `factor` times longer each time, up to a minute.
    pub fn exponential(first: Duration, factor: f64) -> Self {
        Self { first, factor, most: PAUSE_MAX }
    }

    /// At most this long between two questions.
    pub fn up_to(self, most: Duration) -> Self {
        Self { most, ..self }
    }

    /// Checks the pauses against their range: `invalid` if one is shorter than 1 ms or longer than a minute.
    pub fn check(&self) -> Result<()> {
        between("retry interval", self.first, PAUSE_MIN, PAUSE_MAX)?;
        between("longest retry interval", self.most, self.first, PAUSE_MAX)?;
        if !(1.0..=10.0).contains(&self.factor) {
            return Err(crate::Error::invalid("retry factor", self.factor.to_string(), "1 to 10"));
        }
        Ok(())
    }

    /// The pause after the `nth` refusal (0 is the first): anywhere up to the full pause, but not less than half
    /// of the first one. `random` is a random number from 0 to 1.
    pub(crate) fn pause(&self, nth: u32, random: f64) -> Duration {
        let full = self.first.mul_f64(self.factor.powi(nth.min(64) as i32).min(1e6)).min(self.most);
        let least = self.first / 2;
        least + full.saturating_sub(least).mul_f64(random)
    }
}

/// The pause before a queued attempt asks again; `near` is that of an attempt near the front, `free_in` when the present
/// lease runs out. The first two in the queue ask often, everybody asks once the present lease must have run out, in turn,
/// and often enough to keep the position.
pub(crate) fn pause_in_queue(
    near: Duration,
    ahead: u32,
    free_in: Option<Duration>,
    poll_every: Duration,
) -> Duration {
    let near = (ahead <= 1).then_some(near);
    let expiry = free_in.map(|left| left + PAUSE_MIN + TURN * ahead.min(100));
    [near, expiry].into_iter().flatten().fold(poll_every, Duration::min).max(PAUSE_MIN)
}

/// The pause after the `nth` failure in a row (0 is the first): twice as long each time, half of it at random.
pub(crate) fn pause_in_outage(first: Duration, most: Duration, nth: u32, random: f64) -> Duration {
    first.saturating_mul(1 << nth.min(31)).min(most).mul_f64(0.5 + random / 2.0)
}

/// Longest silence of a waiting attempt: its position in the queue lapses after three of them.
pub(crate) fn poll_every(ttl: Duration) -> Duration {
    (ttl / 3).clamp(Duration::from_millis(50), Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn exponential_pauses_double_from_100_ms() {
        let retry = Retry::exponential(100 * MS, 2.0);
        let longest: Vec<_> = (0..4).map(|nth| retry.pause(nth, 1.0).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 800]);
    }

    #[test]
    fn the_default_grows_from_50_ms_to_a_second() {
        let longest: Vec<_> = (0..7).map(|nth| Retry::default().pause(nth, 1.0).as_millis()).collect();
        assert_eq!(longest, [50, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn fixed_pauses_stay() {
        assert_eq!(Retry::fixed(50 * MS).pause(40, 1.0), 50 * MS);
    }

    #[test]
    fn a_far_waiter_asks_only_to_keep_its_position_and_after_expiry() {
        let pause =
            |ahead, left| pause_in_queue(Retry::default().pause(0, 1.0), ahead, Some(left), 5000 * MS);
        assert_eq!(pause(9, 60_000 * MS), 5000 * MS);
        assert_eq!(pause(2, 300 * MS), 401 * MS);
        assert_eq!(pause(1, 60_000 * MS), 50 * MS);
    }

    #[test]
    fn failures_in_a_row_are_answered_by_longer_pauses() {
        let longest: Vec<_> =
            (0..4).map(|nth| pause_in_outage(50 * MS, 300 * MS, nth, 1.0).as_millis()).collect();
        assert_eq!(longest, [50, 100, 200, 300]);
        assert_eq!(pause_in_outage(50 * MS, 300 * MS, u32::MAX, 0.0), 150 * MS);
    }

    #[test]
    fn absurd_pauses_are_refused() {
        assert!(Retry::fixed(Duration::ZERO).check().is_err());
        assert!(Retry::exponential(100 * MS, 0.5).check().is_err());
        assert!(Retry::exponential(100 * MS, f64::NAN).check().is_err());
        Retry::default().check().unwrap();
    }

    proptest! {
        #[test]
        fn a_pause_is_never_zero_and_never_over_its_bound(
            first in 1u32..60_000, factor in 1.0f64..10.0, nth in 0u32..1000, random in 0.0f64..=1.0,
        ) {
            let retry = Retry::exponential(first * MS, factor);
            let pause = retry.pause(nth, random);
            prop_assert!(pause >= first * MS / 2 && pause <= PAUSE_MAX);
        }
    }
}
