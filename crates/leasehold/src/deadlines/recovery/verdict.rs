//! What becomes of a deadline after its handler ended. Pure.

use std::time::Duration;

use super::backoff::Backoff;
use crate::engine::deadlines::Settle;

/// How a handler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Failed(String),
    Panicked(String),
    TimedOut(Duration),
    /// It settled the deadline itself.
    Settled,
    /// It was stopped before it ended.
    CutOff,
}

/// A failure of any kind uses up one attempt; after the last one the deadline is buried with the reason. `None`: it comes
/// back by itself, or is somebody else's by now.
pub(super) fn verdict(
    end: &End,
    attempt: u32,
    attempts_max: u32,
    backoff: &Backoff,
    chance: f64,
) -> Option<Settle> {
    let why = match end {
        End::Done => return Some(Settle::Done),
        End::Settled | End::CutOff => return None,
        End::Failed(why) => format!("attempt {attempt} failed: {why}"),
        End::Panicked(why) => format!("attempt {attempt} panicked: {why}"),
        End::TimedOut(after) => format!("attempt {attempt} took longer than {after:?}"),
    };
    Some(if attempt >= attempts_max {
        Settle::Bury(why)
    } else {
        Settle::Postpone(backoff.pause(attempt, chance))
    })
}

/// What to do before a handler is called: one that takes its whole process down never reports a failure, and would do so
/// for ever.
pub(super) fn verdict_before(attempt: u32, attempts_max: u32) -> Option<Settle> {
    let why = || format!("claimed {} times, and no claimer said how it ended", attempt - 1);
    (attempt > attempts_max).then(|| Settle::Bury(why()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_failure_postpones_until_the_attempts_are_used_up() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let ends = [
            (End::Failed("no route".into()), "attempt 3 failed: no route"),
            (End::Panicked("oops".into()), "attempt 3 panicked: oops"),
            (End::TimedOut(Duration::from_secs(45)), "attempt 3 took longer than 45s"),
        ];
        for (end, why) in ends {
            let pause = Duration::from_secs(2);
            assert_eq!(verdict(&end, 2, 3, &backoff, 1.0), Some(Settle::Postpone(pause)));
            assert_eq!(verdict(&end, 3, 3, &backoff, 1.0), Some(Settle::Bury(why.into())));
        }
        assert_eq!(verdict(&End::Done, 3, 3, &backoff, 1.0), Some(Settle::Done));
        assert_eq!(verdict(&End::CutOff, 3, 3, &backoff, 1.0), None);
    }

    #[test]
    fn a_deadline_that_nobody_ever_settled_is_given_up() {
        assert_eq!(verdict_before(3, 3), None);
        let why = "claimed 3 times, and no claimer said how it ended";
        assert_eq!(verdict_before(4, 3), Some(Settle::Bury(why.into())));
    }
}
