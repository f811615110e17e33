//! What of each attempt is under way to a node, so that its end knows what may come after it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{super::script::TOMBSTONE, call::ended};
use crate::{
    clock::BootInstant,
    engine::{EngineError, Fault, voter::Ballot},
    owner::{Owner, OwnerId},
};

/// Attempts of one client that a node may know.
const ATTEMPTS_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Attempts(Mutex<HashMap<OwnerId, Attempt>>);

struct Attempt {
    /// Calls that have not returned.
    callers: u32,
    /// Copies of a vote, its retraction or a repair that are about to enter some connection's queue.
    leaving: u32,
    /// The newest connection over which a copy left, and how many are unanswered there and on older ones.
    newest: u64,
    on_newest: u32,
    on_older: u32,
    /// How it waits there, if it may.
    waits: Option<Arc<Ballot>>,
    end: End,
    asked_at: BootInstant,
}

/// How far an attempt's end has come. From its beginning on no copy leaves any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    UnderWay,
    Heard,
}

impl Attempt {
    fn new(asked_at: BootInstant) -> Self {
        Self {
            callers: 0,
            leaving: 0,
            newest: 0,
            on_newest: 0,
            on_older: 0,
            waits: None,
            end: End::Open,
            asked_at,
        }
    }

    fn is_over(&self) -> bool {
        let knows_nothing = self.leaving + self.on_newest + self.on_older == 0 && self.waits.is_none();
        self.callers == 0 && (knows_nothing || self.end == End::Heard)
    }
}

/// What the end of an attempt has to do away with.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// How it may wait.
    pub(super) waits: Option<Arc<Ballot>>,
    /// A copy of a vote may arrive later than the end.
    pub(super) may_come_late: bool,
}

impl Attempts {
    fn all(&self) -> MutexGuard<'_, HashMap<OwnerId, Attempt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins.
    pub(super) fn enter(self: &Arc<Self>, owner: &Owner, now: BootInstant) -> Result<Call, EngineError> {
        let mut all = self.all();
        if all.len() >= ATTEMPTS_MAX && !all.contains_key(&owner.id()) {
            // Those that nobody ended, and of which nothing can be on its way any more.
            all.retain(|_, attempt| attempt.callers > 0 || now.since(attempt.asked_at) < TOMBSTONE);
            if all.len() >= ATTEMPTS_MAX {
                let why = format!("{ATTEMPTS_MAX} attempts are under way already");
                return Err(EngineError::new(Fault::Overloaded, why));
            }
        }
        let attempt = all.entry(owner.id()).or_insert_with(|| Attempt::new(now));
        attempt.callers += 1;
        attempt.asked_at = now;
        Ok(Call { attempts: self.clone(), owner: owner.clone() })
    }

    /// The attempt ends: what has not left yet stays.
    pub(super) fn withdraw(&self, owner: OwnerId) {
        if let Some(attempt) = self.all().get_mut(&owner) {
            attempt.end = End::UnderWay;
        }
    }

    /// What an end that leaves over this connection must do.
    pub(super) fn remains(&self, owner: OwnerId, connection: u64) -> Remains {
        let all = self.all();
        let Some(attempt) = all.get(&owner) else { return Remains::default() };
        // What left over the same connection arrives before the end.
        let elsewhere = attempt.newest != connection && attempt.on_newest > 0;
        Remains {
            waits: attempt.waits.clone(),
            may_come_late: attempt.leaving > 0 || attempt.on_older > 0 || elsewhere,
        }
    }

    /// The node has heard of the end.
    pub(super) fn ended(&self, owner: OwnerId) {
        let mut all = self.all();
        if let Some(attempt) = all.get_mut(&owner) {
            attempt.end = End::Heard;
            if attempt.is_over() {
                all.remove(&owner);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.all().len()
    }
}

/// A vote, its retraction or a repair whose caller waits.
pub(super) struct Call {
    attempts: Arc<Attempts>,
    owner: Owner,
}

impl Call {
    fn change<T>(&self, change: impl FnOnce(&mut Attempt) -> T) -> T {
        let mut all = self.attempts.all();
        // It is there as long as a call is: only the last one removes it.
        change(all.entry(self.owner.id()).or_insert_with(|| Attempt::new(BootInstant::from_nanos(0))))
    }

    /// A copy is about to leave, which may make the attempt wait there.
    pub(super) fn leaves(&self, waits: Option<&Arc<Ballot>>) -> Result<(), EngineError> {
        self.change(|attempt| {
            if attempt.end != End::Open || self.owner.has_ended() {
                return Err(ended());
            }
            attempt.leaving += 1;
            if let Some(ballot) = waits {
                attempt.waits = Some(ballot.clone());
            }
            Ok(())
        })
    }

    /// It is in the connection's queue: what leaves over it later arrives later.
    pub(super) fn left(&self, connection: u64) {
        self.change(|attempt| {
            attempt.leaving -= 1;
            if connection > attempt.newest {
                attempt.on_older += attempt.on_newest;
                (attempt.newest, attempt.on_newest) = (connection, 1);
            } else if connection == attempt.newest {
                attempt.on_newest += 1;
            } else {
                attempt.on_older += 1;
            }
        });
    }

    pub(super) fn answered(&self, connection: u64) {
        self.change(|attempt| {
            if connection == attempt.newest {
                attempt.on_newest -= 1;
            } else {
                attempt.on_older -= 1;
            }
        });
    }

    /// It got what it waited for.
    pub(super) fn waits_no_longer(&self) {
        self.change(|attempt| attempt.waits = None);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let over = self.change(|attempt| {
            attempt.callers -= 1;
            attempt.is_over()
        });
        if over {
            self.attempts.all().remove(&self.owner.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Holder;

    const NOW: BootInstant = BootInstant::from_nanos(5_000);

    fn begin() -> (Arc<Attempts>, Owner, Call) {
        let (attempts, owner) = (Arc::<Attempts>::default(), Owner::new(1, &Holder::Foreign));
        let call = attempts.enter(&owner, NOW).unwrap();
        (attempts, owner, call)
    }

    fn may_come_late(attempts: &Attempts, owner: &Owner, connection: u64) -> bool {
        attempts.remains(owner.id(), connection).may_come_late
    }

    #[test]
    fn only_a_copy_on_another_connection_can_come_after_the_end() {
        let (attempts, owner, call) = begin();
        assert!(!may_come_late(&attempts, &owner, 1));
        call.leaves(None).unwrap();
        assert!(may_come_late(&attempts, &owner, 1), "it is in no queue yet");
        call.left(1);
        assert!(!may_come_late(&attempts, &owner, 1));
        assert!(may_come_late(&attempts, &owner, 2));

        call.leaves(None).unwrap();
        call.left(2);
        assert!(may_come_late(&attempts, &owner, 2), "the first copy is unanswered");
        call.answered(1);
        assert!(!may_come_late(&attempts, &owner, 2));
        assert!(may_come_late(&attempts, &owner, 3));
        call.answered(2);
        assert!(!may_come_late(&attempts, &owner, 3));
    }

    #[test]
    fn an_unanswered_copy_is_remembered_until_the_end_and_an_answered_one_is_not() {
        let (attempts, owner, call) = begin();
        call.leaves(None).unwrap();
        call.left(1);
        drop(call);
        assert!(may_come_late(&attempts, &owner, 2));
        attempts.withdraw(owner.id());
        attempts.ended(owner.id());
        assert_eq!(attempts.count(), 0);

        // Also if the caller still waits for the answer when the end was heard.
        let call = attempts.enter(&owner, NOW).unwrap();
        call.leaves(None).unwrap();
        call.left(1);
        attempts.withdraw(owner.id());
        attempts.ended(owner.id());
        drop(call);
        assert_eq!(attempts.count(), 0);

        let call = attempts.enter(&owner, NOW).unwrap();
        call.leaves(None).unwrap();
        call.left(1);
        call.answered(1);
        drop(call);
        assert_eq!(attempts.count(), 0);
    }

    #[test]
    fn nothing_leaves_after_the_end() {
        let (attempts, owner, call) = begin();
        attempts.withdraw(owner.id());
        attempts.ended(owner.id());
        assert_eq!(call.leaves(None).unwrap_err().fault, Fault::Ended);
        drop(call);
        assert_eq!(attempts.count(), 0);

        let (_, owner, call) = begin();
        owner.end();
        assert_eq!(call.leaves(None).unwrap_err().fault, Fault::Ended);
    }

    #[test]
    fn attempts_that_nobody_ended_make_room_when_they_are_old() {
        let attempts = Arc::<Attempts>::default();
        for random in 0..ATTEMPTS_MAX as u128 {
            let call = attempts.enter(&Owner::new(random, &Holder::Foreign), NOW).unwrap();
            call.leaves(None).unwrap();
            call.left(1);
        }
        let another = Owner::new(u128::MAX, &Holder::Foreign);
        let fault = attempts.enter(&another, NOW).err().map(|error| error.fault);
        assert_eq!(fault, Some(Fault::Overloaded));
        assert!(attempts.enter(&another, NOW + TOMBSTONE).is_ok());
        assert_eq!(attempts.count(), 0);
    }
}
