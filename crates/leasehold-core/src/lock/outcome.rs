//! What asking for a lock leads to.

use std::time::Duration;

use crate::{error::Error, lease::Guard, owner::Holder};

/// What to do when the store cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnOutage {
    /// Do not go on. The only choice for anything that moves money.
    #[default]
    Deny,
    /// Go on without protection, as its own type, counted.
    Proceed,
}

/// The state of a wait, for people who watch it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Waited<'a> {
    /// Who holds the lock.
    pub holder: Option<&'a Holder>,
    /// How many are before this attempt in the queue.
    pub ahead: u32,
    /// How long it has waited so far.
    pub waited: Duration,
}

/// The result of asking once for a lock.
#[derive(Debug)]
#[must_use = "a lock that was acquired is given back when dropped"]
pub enum Attempt<G = Guard> {
    /// It is yours.
    Held(G),
    /// Somebody else holds it.
    Busy {
        /// Who, as far as the store says.
        holder: Option<Holder>,
        /// When to ask again. Jittered: clients refused together do not come back together.
        retry_after: Duration,
    },
}

impl<G> Attempt<G> {
    /// The guard, if it was acquired.
    pub fn held(self) -> Option<G> {
        match self {
            Self::Held(guard) => Some(guard),
            Self::Busy { .. } => None,
        }
    }
}

/// The result of [`Lock::acquire_or_proceed`](super::Lock::acquire_or_proceed).
#[derive(Debug)]
#[must_use = "a lock that was acquired is given back when dropped"]
pub enum Protection<G = Guard> {
    /// The lock is held.
    Held(G),
    /// The store is out of reach and the lock's policy is to go on. There is no fence: nothing protects this run.
    Unprotected {
        /// Why.
        cause: Error,
    },
}
