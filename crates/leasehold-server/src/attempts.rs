//! Attempts to get a lock that have an id of their client's choice: a repeated request joins the attempt that is under way,
//! or gets the same grant.

mod entry;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::clock::BootInstant;
use tokio_util::sync::CancellationToken;

pub(crate) use entry::{Attempt, Ended, Progress};

use crate::{
    problem::{Problem, Result},
    token::LockKey,
};

/// An attempt that nobody asks for leaves the queue after this time.
pub(crate) const UNASKED: Duration = Duration::from_secs(15);
/// How long the end of an attempt is remembered, beyond its lease.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The caller and the id that it chose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AttemptKey {
    pub(crate) caller: String,
    pub(crate) id: String,
}

/// All attempts that this service remembers.
#[derive(Debug)]
pub(crate) struct Attempts {
    state: Mutex<State>,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    attempts: HashMap<AttemptKey, Arc<Attempt>>,
    by_lock: HashMap<LockKey, AttemptKey>,
}

/// What an id stands for.
pub(crate) enum Found {
    /// Nothing yet: the caller of this function has to run it.
    New(Arc<Attempt>),
    Known(Arc<Attempt>),
}

impl Attempts {
    pub(crate) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), most }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attempt of this id, made if there is none. `request` is what was asked for: another one is a mismatch.
    pub(crate) fn enter(
        &self,
        key: &AttemptKey,
        request: [u8; 32],
        made: impl FnOnce() -> Attempt,
    ) -> Result<Found> {
        let mut state = self.state();
        if let Some(known) = state.attempts.get(key).filter(|known| !known.was_left()) {
            if known.request != request {
                let detail = format!("the Idempotency-Key {} was used for another request", key.id);
                return Err(Problem::mismatch(detail));
            }
            return Ok(Found::Known(known.clone()));
        }
        if state.attempts.len() >= self.most {
            return Err(Problem::overloaded(format!(
                "the service remembers {} attempts, its limit",
                self.most
            )));
        }
        let attempt = Arc::new(made());
        state.attempts.insert(key.clone(), attempt.clone());
        Ok(Found::New(attempt))
    }

    pub(crate) fn get(&self, key: &AttemptKey) -> Result<Arc<Attempt>> {
        let found = self.state().attempts.get(key).filter(|known| !known.was_left()).cloned();
        found.ok_or_else(|| {
            Problem::not_found(format!(
                "no attempt {}: it ended, was never made, or another service has it",
                key.id
            ))
        })
    }

    /// Notes which lock an attempt has, so that its release ends it.
    pub(crate) fn granted(&self, key: &AttemptKey, lock: LockKey) {
        self.state().by_lock.insert(lock, key.clone());
    }

    /// A lock was given back or lost: its attempt grants nothing any more.
    pub(crate) fn ended(&self, lock: &LockKey, now: BootInstant) {
        let mut state = self.state();
        let Some(key) = state.by_lock.remove(lock) else { return };
        if let Some(attempt) = state.attempts.get(&key) {
            attempt.end(Ended::Over, now);
        }
    }

    /// A lock lasts longer than was known.
    pub(crate) fn extended(&self, lock: &LockKey, valid_until: BootInstant) {
        let state = self.state();
        if let Some(attempt) = state.by_lock.get(lock).and_then(|key| state.attempts.get(key)) {
            attempt.extend(valid_until);
        }
    }

    /// Forgets what is over, and ends what nobody asks for.
    pub(crate) fn sweep(&self, now: BootInstant) {
        let mut state = self.state();
        let State { attempts, by_lock } = &mut *state;
        attempts.retain(|_, attempt| attempt.is_remembered(now, REMEMBERED));
        by_lock.retain(|_, key| attempts.contains_key(key));
        for attempt in attempts.values().filter(|attempt| attempt.is_unasked(now, UNASKED)) {
            attempt.leave();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.state().attempts.len()
    }

    /// A token that ends every attempt that waits.
    pub(crate) fn leave_all(&self) {
        self.state().attempts.values().for_each(|attempt| attempt.leave());
    }
}

/// Cancelled when an attempt is to leave the queue.
pub(crate) type Leave = CancellationToken;
