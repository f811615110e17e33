//! How a pool is recovered, and what becomes of a deadline whose handler failed. Pure: randomness comes in as a number.

use std::time::Duration;

use super::Scans;
use crate::{
    config::between,
    deadlines::{DUE_MAX, bounds},
    engine::deadlines::Settle,
    error::{Error, Result},
};

/// Shortest time between two scans.
const EVERY_MIN: Duration = Duration::from_millis(10);
/// Longest time between two scans, and longest grace.
const DAY: Duration = Duration::from_secs(86_400);
/// Most handlers at once.
const PARALLELISM_MAX: usize = 10_000;
/// Most attempts.
const ATTEMPTS_MAX: u32 = 10_000;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) every: Duration,
    pub(super) parallelism: usize,
    pub(super) limit: u32,
    pub(super) visibility: Duration,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) scans: Scans,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            parallelism: 16,
            limit: 100,
            visibility: Duration::from_secs(60),
            attempts: 10,
            backoff: Backoff::default(),
            handler_timeout: None,
            grace: Duration::from_secs(30),
            scans: Scans::Shared,
        }
    }
}

impl Plan {
    pub(super) fn handler_timeout(&self) -> Duration {
        self.handler_timeout.unwrap_or(self.visibility * 3 / 4)
    }

    pub(super) fn check(&self) -> Result<()> {
        between("time between scans", self.every, EVERY_MIN, DAY)?;
        bounds::check_limit(self.limit)?;
        bounds::check_visibility(self.visibility)?;
        between("first backoff", self.backoff.first, Duration::from_millis(1), DUE_MAX)?;
        between("longest backoff", self.backoff.most, self.backoff.first, DUE_MAX)?;
        between("grace of a stop", self.grace, Duration::ZERO, DAY)?;
        bounds::within("parallelism", self.parallelism, 1..=PARALLELISM_MAX, "")?;
        bounds::within("number of attempts", self.attempts, 1..=ATTEMPTS_MAX, "")?;
        let timeout = self.handler_timeout();
        if timeout.is_zero() || timeout >= self.visibility {
            let expected = format!("less than the visibility, {:?}", self.visibility);
            return Err(Error::invalid("handler timeout", format!("{timeout:?}"), expected));
        }
        Ok(())
    }

    /// What becomes of a deadline whose handler `failed`, in words. Every failure uses up one attempt.
    pub(super) fn after_failure(&self, attempt: u32, failed: &str, chance: f64) -> Settle {
        if attempt >= self.attempts {
            Settle::Bury(format!("attempt {attempt} {failed}"))
        } else {
            Settle::Postpone(self.backoff.pause(attempt, chance))
        }
    }

    /// What to do instead of calling a handler: one that takes its whole process down never reports a failure, and would do
    /// so for ever.
    pub(super) fn instead_of(&self, attempt: u32) -> Option<Settle> {
        let why = || format!("claimed {} times, and no claimer said how it ended", attempt - 1);
        (attempt > self.attempts).then(|| Settle::Bury(why()))
    }
}

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
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most }
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
        let check = |backoff| Plan { backoff, ..Plan::default() }.check();
        assert!(check(Backoff::new(Duration::ZERO, MS)).is_err());
        assert!(check(Backoff::new(2 * MS, MS)).is_err());
        check(Backoff::default()).unwrap();
    }

    #[test]
    fn a_failure_postpones_until_the_attempts_are_used_up() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let plan = Plan { attempts: 3, backoff, ..Plan::default() };
        let why = "panicked: oops";
        assert_eq!(plan.after_failure(2, why, 1.0), Settle::Postpone(Duration::from_secs(2)));
        assert_eq!(plan.after_failure(3, why, 1.0), Settle::Bury("attempt 3 panicked: oops".into()));
    }

    #[test]
    fn a_deadline_that_nobody_ever_settled_is_given_up() {
        let plan = Plan { attempts: 3, ..Plan::default() };
        assert_eq!(plan.instead_of(3), None);
        let why = "claimed 3 times, and no claimer said how it ended";
        assert_eq!(plan.instead_of(4), Some(Settle::Bury(why.into())));
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
