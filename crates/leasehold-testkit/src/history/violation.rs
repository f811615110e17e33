//! Promises that were not kept.

use std::fmt;

use super::{Grant, Write};

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Two grants of one name have the same fence.
    DuplicateFence {
        /// The name.
        name: String,
        /// One of them.
        first: Grant,
        /// The other.
        second: Grant,
    },
    /// `later` was asked for after `earlier` had returned, and yet has the smaller fence.
    OutOfOrder {
        /// The name.
        name: String,
        /// The one with the larger fence.
        earlier: Grant,
        /// The one with the smaller fence.
        later: Grant,
    },
    /// `later` was asked for early and granted after `earlier`, which kept it out, had ended, and yet has the smaller fence.
    OutOfPhase {
        /// The name.
        name: String,
        /// The one with the larger fence.
        earlier: Grant,
        /// The one with the smaller fence.
        later: Grant,
    },
    /// The resource accepted a fence below one it had accepted before.
    RegisterWentDown {
        /// The name.
        name: String,
        /// The highest write accepted before.
        highest: Write,
        /// The write that should have been refused.
        accepted: Write,
    },
    /// Two holders relied on one name at the same time, and at least one of them in a mode that keeps the other out.
    Overlap {
        /// The name.
        name: String,
        /// The one granted first.
        first: Grant,
        /// The one granted while `first` held.
        second: Grant,
    },
    /// More permits were relied on than the highest limit that can have been in force.
    TooManyPermits {
        /// The semaphore.
        name: String,
        /// The one granted last.
        grant: Grant,
        /// The permits of all, with those of `grant`.
        taken: u64,
        /// The limit.
        limit: u32,
    },
    /// It was given back while its holder still used it: a leader whose body ran.
    GivenBackEarly {
        /// The name.
        name: String,
        /// The holder.
        grant: Grant,
    },
}

impl Violation {
    /// When it was granted a second time, if a store that lost a lease or a limit explains the violation: `None` for fences
    /// that repeat or go down, and for what a client does wrong by itself.
    pub fn lost_lease_at(&self) -> Option<u64> {
        match self {
            Self::Overlap { second: later, .. }
            | Self::OutOfPhase { later, .. }
            | Self::TooManyPermits { grant: later, .. } => Some(later.returned_at),
            Self::DuplicateFence { .. }
            | Self::OutOfOrder { .. }
            | Self::RegisterWentDown { .. }
            | Self::GivenBackEarly { .. } => None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateFence { name, first, second } => {
                write!(
                    f,
                    "{name:?}: fence {} was granted to {} and to {}",
                    first.fence, first.holder, second.holder
                )
            }
            Self::OutOfOrder { name, earlier, later } => write!(
                f,
                "{name:?}: fence {} of {} was asked for at {} and is below fence {} of {}, granted before that at {}",
                later.fence,
                later.holder,
                later.invoked_at,
                earlier.fence,
                earlier.holder,
                earlier.returned_at
            ),
            Self::OutOfPhase { name, earlier, later } => write!(
                f,
                "{name:?}: fence {} of {} ({}) was granted at {} and is below fence {} of {} ({}), which had ended at {}",
                later.fence,
                later.holder,
                later.mode,
                later.returned_at,
                earlier.fence,
                earlier.holder,
                earlier.mode,
                earlier.ended_at()
            ),
            Self::RegisterWentDown { name, highest, accepted } => write!(
                f,
                "{name:?}: the register accepted fence {} of {} after fence {} of {}",
                accepted.fence, accepted.process, highest.fence, highest.process
            ),
            Self::Overlap { name, first, second } => write!(
                f,
                "{name:?}: fence {} of {} overlaps fence {} of {}: [{}, {}] and [{}, {}]",
                first.fence,
                first.holder,
                second.fence,
                second.holder,
                first.returned_at,
                first.ended_at(),
                second.returned_at,
                second.ended_at()
            ),
            Self::TooManyPermits { name, grant, taken, limit } => write!(
                f,
                "{name:?}: {taken} permits were held at {} and the limit was {limit}: fence {} of {} has {}",
                grant.returned_at, grant.fence, grant.holder, grant.mode
            ),
            Self::GivenBackEarly { name, grant } => write!(
                f,
                "{name:?}: fence {} of {} was given back at {:?} while it was in use, until {:?}",
                grant.fence, grant.holder, grant.given_back_at, grant.released_at
            ),
        }
    }
}
