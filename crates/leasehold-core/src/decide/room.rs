//! Who fits beside whom (pure).

use std::{num::NonZeroU32, time::Duration};

use crate::{clock::BootInstant, engine::Mode};

/// What is taken of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Nothing,
    ByOne,
    Shared,
    Permits(u64),
}

impl Taken {
    /// The same with one more holder, if that one fits; `limit` is the number of permits.
    pub(super) fn with(self, mode: Mode, limit: Option<NonZeroU32>) -> Option<Self> {
        match (self, mode) {
            (Self::Nothing, Mode::Exclusive) => Some(Self::ByOne),
            (Self::Nothing | Self::Shared, Mode::Shared) => Some(Self::Shared),
            (Self::Nothing, Mode::Permits { .. }) => Self::Permits(0).with(mode, limit),
            (Self::Permits(taken), Mode::Permits { take, of }) => {
                let all = taken + u64::from(take.get());
                (all <= u64::from(limit.unwrap_or(of).get())).then_some(Self::Permits(all))
            }
            _ => None,
        }
    }

    /// The same with a holder that is there already, whether it fits or not: a limit may have been lowered.
    pub(super) fn and(self, held: Mode) -> Self {
        match (self, held) {
            (_, Mode::Exclusive) => Self::ByOne,
            (_, Mode::Shared) => Self::Shared,
            (Self::Permits(taken), Mode::Permits { take, .. }) => {
                Self::Permits(taken + u64::from(take.get()))
            }
            (_, Mode::Permits { take, .. }) => Self::Permits(u64::from(take.get())),
        }
    }
}

/// Walks along a queue and finds who may claim at one time.
pub(super) struct Turns {
    pub(super) at: BootInstant,
    /// When the present turn began.
    pub(super) begins: BootInstant,
    /// What is held, or kept for those before; `None` behind one that does not fit, whom nobody overtakes.
    pub(super) taken: Option<Taken>,
    pub(super) limit: Option<NonZeroU32>,
}

/// Whether a waiter may claim now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    NotYet,
    /// What it wants is kept for it.
    Now,
    /// It let its turn pass: it may still claim, and so may those behind it.
    Passed,
}

impl Turns {
    pub(super) fn fits(&self, mode: Mode) -> bool {
        self.begins <= self.at && self.taken.is_some_and(|taken| taken.with(mode, self.limit).is_some())
    }

    /// Goes on to those behind a waiter of this mode, for whom a free lock waits that long.
    pub(super) fn pass(&mut self, mode: Mode, turn: Duration) -> Turn {
        let with = self.taken.and_then(|taken| taken.with(mode, self.limit));
        if with.is_none() || self.begins > self.at {
            self.taken = None;
            return Turn::NotYet;
        }
        let ends = self.begins + turn;
        if ends <= self.at {
            self.begins = ends;
            return Turn::Passed;
        }
        self.taken = with;
        Turn::Now
    }
}
