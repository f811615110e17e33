//! How a pool is recovered, and what becomes of a deadline whose handler failed. Pure: randomness comes in as a number.

use std::time::Duration;

use super::Scans;
use crate::{
    config::between,
    deadlines::{
        DUE_MAX, Settle,
        bounds::{self, LIMIT_DEFAULT, VISIBILITY_DEFAULT},
    },
    error::{Error, Result},
    lock::pause_in_outage,
    text::cut,
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
    /// The pause after the first failure, and the longest.
    pub(super) backoff: (Duration, Duration),
    pub(super) handler_timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) scans: Scans,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            parallelism: 16,
            limit: LIMIT_DEFAULT,
            visibility: VISIBILITY_DEFAULT,
            attempts: 10,
            backoff: (Duration::from_secs(1), Duration::from_secs(300)),
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
        bounds::check_claim(self.limit, self.visibility)?;
        let (first, most) = self.backoff;
        between("first backoff", first, Duration::from_millis(1), DUE_MAX)?;
        between("longest backoff", most, first, DUE_MAX)?;
        between("grace of a stop", self.grace, Duration::ZERO, DAY)?;
        between("parallelism", self.parallelism, 1, PARALLELISM_MAX)?;
        between("number of attempts", self.attempts, 1, ATTEMPTS_MAX)?;
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
            let why = format!("attempt {attempt} {failed}");
            Settle::Bury(cut(&why, bounds::WHY_MAX_BYTES).to_owned())
        } else {
            let (first, most) = self.backoff;
            Settle::Postpone(pause_in_outage(first, most, attempt.saturating_sub(1), chance))
        }
    }

    /// What to do instead of calling a handler: one that takes its process down reports no failure, and would for ever.
    pub(super) fn instead_of(&self, attempt: u32) -> Option<Settle> {
        let why = || format!("claimed {} times, and no claimer said how it ended", attempt - 1);
        (attempt > self.attempts).then(|| Settle::Bury(why()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn pause(backoff: (Duration, Duration), attempt: u32, chance: f64) -> Duration {
        match (Plan { backoff, attempts: u32::MAX, ..Plan::default() }).after_failure(attempt, "", chance) {
            Settle::Postpone(pause) => pause,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = (100 * MS, 700 * MS);
        let longest: Vec<_> = (1..6).map(|attempt| pause(backoff, attempt, 1.0).as_millis()).collect();
        assert_eq!(longest, [100, 200, 400, 700, 700]);
        assert_eq!(pause(backoff, 2, 0.0), 100 * MS);
    }

    #[test]
    fn absurd_pauses_are_refused() {
        let check = |backoff| Plan { backoff, ..Plan::default() }.check();
        assert!(check((Duration::ZERO, MS)).is_err());
        assert!(check((2 * MS, MS)).is_err());
        Plan::default().check().unwrap();
    }

    #[test]
    fn a_failure_postpones_until_the_attempts_are_used_up() {
        let backoff = (Duration::from_secs(1), Duration::from_secs(60));
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
            first in 1u32..100_000, more in 0u32..100_000, attempt in 0u32..u32::MAX, chance in 0.0f64..=1.0,
        ) {
            let (first, most) = (first * MS, (first + more) * MS);
            let pause = pause((first, most), attempt, chance);
            prop_assert!(pause >= first / 2 && pause <= most);
        }
    }
}
