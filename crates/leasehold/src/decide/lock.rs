//! Who gets a lock.

use std::time::Duration;

use crate::{
    clock::BootInstant,
    engine::{Claim, EngineError, Fault, Hold, Released, WAITERS_MAX},
    error::Refusal,
    fence::{FENCE_LIMIT, Fence},
    owner::OwnerId,
};

/// What a store knows about a name, as one attempt sees it.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Who holds it, unless that is over.
    pub holder: Option<Lease>,
    /// Since when it is free, if nobody holds it.
    pub free_since: BootInstant,
    /// Live waiters before this attempt; all of them, if it is not in the queue.
    pub ahead: u32,
    /// How long a free lock is kept for them before it is this attempt's turn. Nothing is where a release hands over: there
    /// those who wait get it first.
    pub turns: Option<Duration>,
    /// Whether the attempt is in the queue.
    pub is_queued: bool,
}

/// A lease as the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The attempt that holds it.
    pub owner: OwnerId,
    /// Its fence.
    pub fence: Fence,
    /// When the lock opens, unless it is renewed.
    pub closed_until: BootInstant,
}

/// What a claim leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is the attempt's already: its lease begins anew.
    Refresh(Fence),
    /// It is given to the attempt.
    Grant,
    /// It is free, and somebody was here first: give it to the first of them, then ask again.
    HandOver,
    /// The attempt enters the queue, or is seen there again.
    Queue {
        /// When the lock may be free.
        free_in: Duration,
    },
    /// It is not given, and the attempt does not wait.
    Refuse {
        /// When the lock may be free.
        free_in: Duration,
    },
}

/// Decides a claim.
///
/// # Errors
/// `Overloaded` when too many wait already.
pub fn claim(view: &View, claim: &Claim, now: BootInstant) -> Result<Claimed, EngineError> {
    let opens_at = match view.holder {
        Some(lease) if lease.owner == claim.owner.id() => return Ok(Claimed::Refresh(lease.fence)),
        Some(lease) => lease.closed_until,
        // Nobody overtakes those who wait.
        None => match view.turns {
            None if view.ahead > 0 => return Ok(Claimed::HandOver),
            None => return Ok(Claimed::Grant),
            Some(turns) if view.free_since + turns <= now => return Ok(Claimed::Grant),
            Some(turns) => view.free_since + turns,
        },
    };
    let free_in = opens_at.since(now);
    if claim.queue.is_none() {
        return Ok(Claimed::Refuse { free_in });
    }
    if !view.is_queued && view.ahead >= WAITERS_MAX {
        let why = format!("{WAITERS_MAX} attempts wait for this name already");
        return Err(EngineError::new(Fault::Overloaded, why));
    }
    Ok(Claimed::Queue { free_in })
}

/// When a lock opens that is granted or renewed now.
pub fn closed_until(now: BootInstant, ttl: Duration, lock_delay: Duration) -> BootInstant {
    now + ttl + lock_delay
}

/// The fence after `last`: a counter alone repeats after a restore, time alone after a clock step.
///
/// # Errors
/// When it would not fit a double any more.
pub fn next_fence(last: u64, wall_us: u64) -> Result<Fence, EngineError> {
    let fence = last.saturating_add(1).max(wall_us);
    if fence >= FENCE_LIMIT {
        let why = format!("fence exhausted: the next one would be {fence}, and fences end at 2^53");
        return Err(EngineError::new(Fault::Refused(Refusal::Other), why));
    }
    Ok(Fence::new(fence))
}

/// Whether a renewal counts: only of a lease that is still there.
pub fn is_held(holder: Option<&Lease>, hold: &Hold) -> bool {
    holder.is_some_and(|lease| lease.owner == hold.owner.id())
}

/// What the end of an attempt finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The lock was the attempt's, and goes to the next one.
    Ours,
    /// Nobody holds it. It may have been the attempt's turn: then it is the next one's.
    Free,
    /// Somebody else holds it.
    Taken(Fence),
}

impl Ended {
    /// How the release ended. `to` is who waited and got the lock, or was woken, if anybody did.
    pub fn outcome(self, to: Option<Option<Fence>>) -> Released {
        match (self, to) {
            (Self::Ours, None) => Released::Free,
            (Self::Ours, Some(next)) => Released::handed_over(next),
            (Self::Free, Some(Some(by))) => Released::Taken { by: Some(by) },
            (Self::Free, _) => Released::Expired,
            (Self::Taken(by), _) => Released::Taken { by: Some(by) },
        }
    }
}

/// Decides the end of an attempt, which has left the queue.
pub fn end(holder: Option<&Lease>, owner: OwnerId) -> Ended {
    holder.map_or(
        Ended::Free,
        |lease| if lease.owner == owner { Ended::Ours } else { Ended::Taken(lease.fence) },
    )
}

/// Decides a forced release: only of the holder that was seen.
pub fn force(holder: Option<&Lease>, seen: Fence) -> Ended {
    holder.map_or(
        Ended::Free,
        |lease| if lease.fence == seen { Ended::Ours } else { Ended::Taken(lease.fence) },
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        engine::{Acks, Mode, Queue},
        name::Name,
        owner::{Holder, Owner},
    };

    const NOW: BootInstant = BootInstant::from_nanos(1_000_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn attempt(waits: bool) -> Claim {
        Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(1, &Holder::Foreign),
            mode: Mode::Exclusive,
            ttl: SECOND,
            lock_delay: Duration::ZERO,
            queue: waits.then_some(Queue { wait: SECOND, poll_every: SECOND }),
            acks: Acks::None,
        }
    }

    fn held_by(random: u128) -> Lease {
        Lease {
            owner: Owner::new(random, &Holder::Foreign).id(),
            fence: Fence::new(7),
            closed_until: NOW + SECOND,
        }
    }

    fn view() -> impl Strategy<Value = View> {
        let holder = prop_oneof![Just(None), Just(Some(1)), Just(Some(2))];
        let turns = prop_oneof![Just(None), (0..2000_u64).prop_map(|ms| Some(Duration::from_millis(ms)))];
        (holder, 0..=1_000_000_000_u64, 0..=WAITERS_MAX, turns, any::<bool>()).prop_map(
            |(holder, free_since, ahead, turns, is_queued)| View {
                holder: holder.map(held_by),
                free_since: BootInstant::from_nanos(free_since),
                ahead,
                turns: turns.map(|turns| if ahead == 0 { Duration::ZERO } else { turns }),
                is_queued,
            },
        )
    }

    proptest! {
        #[test]
        fn a_lock_is_given_only_if_nobody_holds_it_and_nobody_was_first(view in view(), waits: bool) {
            let claim = attempt(waits);
            match super::claim(&view, &claim, NOW) {
                Ok(Claimed::Grant) => {
                    prop_assert!(view.holder.is_none());
                    let turns = view.turns.unwrap_or_default();
                    prop_assert!(view.turns.is_some() || view.ahead == 0);
                    prop_assert!(view.free_since + turns <= NOW);
                }
                Ok(Claimed::HandOver) => {
                    prop_assert!(view.holder.is_none() && view.ahead > 0 && view.turns.is_none());
                }
                Ok(Claimed::Refresh(fence)) => {
                    prop_assert!(view.holder.is_some_and(|it| it.owner == claim.owner.id() && it.fence == fence));
                }
                Ok(Claimed::Queue { .. }) => prop_assert!(waits && view.holder != Some(held_by(1))),
                Ok(Claimed::Refuse { .. }) => prop_assert!(!waits && view.holder != Some(held_by(1))),
                Err(error) => {
                    prop_assert_eq!(error.fault, Fault::Overloaded);
                    prop_assert!(waits && !view.is_queued && view.ahead >= WAITERS_MAX);
                }
            }
        }

        #[test]
        fn a_fence_is_above_the_last_one_and_not_below_the_clock(last in 0..FENCE_LIMIT, wall in 0..FENCE_LIMIT) {
            match next_fence(last, wall) {
                Ok(fence) => prop_assert!(fence.get() > last && fence.get() >= wall),
                Err(_) => prop_assert!(last + 1 == FENCE_LIMIT),
            }
        }
    }

    #[test]
    fn only_the_holder_ends_its_lease() {
        let (mine, other) = (held_by(1), held_by(2));
        let owner = attempt(false).owner.id();
        assert_eq!(end(Some(&mine), owner), Ended::Ours);
        assert_eq!(end(Some(&other), owner), Ended::Taken(other.fence));
        assert_eq!(end(None, owner), Ended::Free);
        assert_eq!(force(Some(&other), other.fence), Ended::Ours);
        assert_eq!(force(Some(&other), Fence::new(6)), Ended::Taken(other.fence));
        let hold = attempt(false).hold(Fence::new(7));
        assert!(is_held(Some(&mine), &hold) && !is_held(Some(&other), &hold) && !is_held(None, &hold));
    }

    #[test]
    fn a_lock_that_goes_to_the_next_one_says_so() {
        let next = Fence::new(9);
        assert_eq!(Ended::Ours.outcome(None), Released::Free);
        assert_eq!(Ended::Ours.outcome(Some(None)), Released::handed_over(None));
        assert_eq!(Ended::Ours.outcome(Some(Some(next))), Released::handed_over(Some(next)));
        assert_eq!(Ended::Free.outcome(None), Released::Expired);
        assert_eq!(Ended::Free.outcome(Some(Some(next))), Released::Taken { by: Some(next) });
        assert_eq!(Ended::Taken(next).outcome(None), Released::Taken { by: Some(next) });
    }
}
