//! How asking for an execution ends.

use std::{fmt, time::Duration};

use super::Execution;
use crate::{error::Error, fence::Fence, owner::Holder};

/// What becomes of a key whose execution failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The next one may try.
    #[default]
    Retry,
    /// Everybody gets the same failure, for as long as results are kept.
    Replay,
    /// Nobody tries again until somebody has looked and [removed](super::IdempotencyKey::remove) the record. It goes away
    /// by itself after as long as results are kept.
    Quarantine,
}

/// Whether a call is the first under its key; see [`at_most_once`](super::IdempotencyKey::at_most_once).
#[must_use = "only the first call may go on"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtMostOnce {
    /// Nobody was here before: go on.
    First,
    /// Somebody was, and may have crashed since: skip.
    Repeated,
}

impl AtMostOnce {
    /// Whether to go on.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First)
    }
}

/// How [`run`](super::IdempotencyKey::run) ended.
#[must_use = "it may not have been executed"]
#[non_exhaustive]
pub enum Idempotent<T, E> {
    /// It was executed now, and its result is stored.
    Executed(T),
    /// It had been executed before; this is its result.
    Replayed(T),
    /// It was executed now, and failed.
    Failed(E),
    /// It had failed before, and [`OnFailure::Replay`] is what it was settled with; this is the failure's text.
    ReplayedFailure(String),
    /// It had failed before, and nobody tries again until the record is removed.
    Quarantined {
        /// The failure's text.
        why: String,
    },
    /// Another execution is in progress.
    InProgress {
        /// Whose.
        holder: Holder,
        /// When its lease runs out unless it is renewed: ask again then, at the latest.
        look_again: Duration,
    },
    /// The key belongs to another request: its fingerprint differs.
    Mismatch,
    /// It was executed now, but its lease had run out and somebody else has begun since: their result counts.
    FencedOff {
        /// Its result.
        result: T,
        /// The fence of the later execution, if it is known.
        by: Option<Fence>,
    },
    /// There is a mark, of [`at_most_once`](super::IdempotencyKey::at_most_once) or of another program: it was done, or
    /// begun, and there is no result.
    DoneElsewhere,
    /// It was executed now, and its result could not be stored.
    ///
    /// One that is too large or cannot be written as JSON is settled as [`OnFailure::Quarantine`] does, so that nobody executes
    /// it again. Without an answer of the store it is not known whether it is stored; that is then tried on in the
    /// background for as long as the lease lasts.
    Unstored {
        /// Its result.
        result: T,
        /// Why it is not stored.
        why: Error,
    },
}

impl<T, E> Idempotent<T, E> {
    /// The result that counts, executed or replayed.
    pub fn result(self) -> Option<T> {
        match self {
            Self::Executed(result) | Self::Replayed(result) => Some(result),
            _ => None,
        }
    }

    /// A word for it, for logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Executed(_) => "executed",
            Self::Replayed(_) => "replayed",
            Self::Failed(_) => "failed",
            Self::ReplayedFailure(_) => "replayed failure",
            Self::Quarantined { .. } => "quarantined",
            Self::InProgress { .. } => "in progress",
            Self::Mismatch => "mismatch",
            Self::FencedOff { .. } => "fenced off",
            Self::DoneElsewhere => "done elsewhere",
            Self::Unstored { .. } => "unstored",
        }
    }
}

/// No result: it may be a secret.
impl<T, E> fmt::Debug for Idempotent<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How [`begin`](super::IdempotencyKey::begin) ended.
#[must_use = "an execution that is dropped is given back"]
#[non_exhaustive]
pub enum Begun<T, X = Execution<T>> {
    /// It is yours to execute.
    Yours(X),
    /// It was executed before; this is its result.
    Completed(T),
    /// It failed before, and everybody gets this failure.
    Failed {
        /// The failure's text.
        why: String,
    },
    /// It failed before, and nobody tries again until the record is removed.
    Quarantined {
        /// The failure's text.
        why: String,
    },
    /// Another execution is in progress.
    InProgress {
        /// Whose.
        holder: Holder,
        /// When its lease runs out unless it is renewed: ask again then, at the latest.
        look_again: Duration,
    },
    /// The key belongs to another request: its fingerprint differs.
    Mismatch,
    /// There is a mark, and no result.
    DoneElsewhere,
}

impl<T, X> Begun<T, X> {
    /// The execution, if it is yours.
    pub fn yours(self) -> Option<X> {
        match self {
            Self::Yours(execution) => Some(execution),
            _ => None,
        }
    }

    /// The same with another execution.
    pub fn map<Y>(self, yours: impl FnOnce(X) -> Y) -> Begun<T, Y> {
        match self {
            Self::Yours(execution) => Begun::Yours(yours(execution)),
            Self::Completed(result) => Begun::Completed(result),
            Self::Failed { why } => Begun::Failed { why },
            Self::Quarantined { why } => Begun::Quarantined { why },
            Self::InProgress { holder, look_again } => Begun::InProgress { holder, look_again },
            Self::Mismatch => Begun::Mismatch,
            Self::DoneElsewhere => Begun::DoneElsewhere,
        }
    }

    /// The execution if it is ours, else how it stands.
    pub fn for_run<E>(self) -> Result<X, Idempotent<T, E>> {
        Err(match self {
            Self::Yours(execution) => return Ok(execution),
            Self::Completed(result) => Idempotent::Replayed(result),
            Self::Failed { why } => Idempotent::ReplayedFailure(why),
            Self::Quarantined { why } => Idempotent::Quarantined { why },
            Self::InProgress { holder, look_again } => Idempotent::InProgress { holder, look_again },
            Self::Mismatch => Idempotent::Mismatch,
            Self::DoneElsewhere => Idempotent::DoneElsewhere,
        })
    }
}

/// No result: it may be a secret.
impl<T, X: fmt::Debug> fmt::Debug for Begun<T, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yours(execution) => return f.debug_tuple("Yours").field(execution).finish(),
            Self::InProgress { holder, .. } => return f.debug_tuple("InProgress").field(holder).finish(),
            Self::Completed(_) => "Completed",
            Self::Failed { .. } => "Failed",
            Self::Quarantined { .. } => "Quarantined",
            Self::Mismatch => "Mismatch",
            Self::DoneElsewhere => "DoneElsewhere",
        })
    }
}
