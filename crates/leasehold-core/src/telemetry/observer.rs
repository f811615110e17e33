//! Events for the program that uses the library.

use std::time::Duration;

use crate::{
    engine::{Mode, Released, deadlines::DeadlineId},
    error::ErrorKind,
    fence::Fence,
    name::Name,
};

/// Receives the events of a client, in the client's own tasks: return quickly, never block. A panic is caught and logged.
pub trait Observer: Send + Sync + 'static {
    /// Takes one event.
    fn on_event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// Something that happened. No event carries an owner value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The store was reached, for the first time or again.
    Connected,
    /// The connection to the store broke.
    Disconnected {
        /// What is known about it.
        why: String,
    },
    /// An operation failed.
    Error {
        /// Its kind.
        kind: ErrorKind,
        /// The lock, if it was about one.
        name: Option<Name>,
        /// The whole text.
        text: String,
    },
    /// A lock was acquired.
    Acquired {
        /// The lock.
        name: Name,
        /// Its token.
        fence: Fence,
        /// How it is held.
        mode: Mode,
        /// How long it took.
        waited: Duration,
    },
    /// A lock was released.
    Released {
        /// The lock.
        name: Name,
        /// Its token.
        fence: Fence,
        /// How it is held.
        mode: Mode,
        /// How it ended.
        outcome: Released,
    },
    /// A renewal got no answer. It is tried again until the lease is lost.
    RenewalMissed {
        /// The lock.
        name: Name,
        /// Its token.
        fence: Fence,
        /// How it is held.
        mode: Mode,
        /// What is known about it.
        why: String,
    },
    /// A lease ended before its holder was done.
    Lost {
        /// The lock.
        name: Name,
        /// Its token.
        fence: Fence,
        /// How it is held.
        mode: Mode,
    },
    /// A deadline was given up.
    Buried {
        /// Its pool.
        pool: Name,
        /// Its id.
        id: DeadlineId,
        /// Why.
        why: String,
    },
}
