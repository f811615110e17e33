//! What a runner knows about the store under test.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Clock, engine::Engine};

use super::Need;

/// Where a case works: a part of the store that no other case uses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plot {
    /// A short word of letters and digits, different for every case: a file, a database, or a prefix.
    pub space: String,
    /// The clock that client and engine must use.
    pub clock: Clock,
    /// Whether the case will [`cut`](Ground::cut) this space.
    pub breakable: bool,
}

impl Plot {
    pub(super) fn new(space: String, breakable: bool) -> Self {
        Self { space, clock: Clock::system(), breakable }
    }

    pub(super) fn with_clock(&self, clock: Clock) -> Self {
        Self { clock, ..self.clone() }
    }
}

/// The store under test, and what can be done to it from outside. Only [`builder`](Ground::builder) is required; what
/// else a ground can do it lists in [`offers`](Ground::offers).
///
/// Methods may block; they are called where that is allowed.
pub trait Ground: Send + Sync + 'static {
    /// A builder for a client of this part of the store.
    fn builder(&self, plot: &Plot) -> Builder;

    /// Which of the optional methods below can be used.
    fn offers(&self) -> &[Need] {
        &[]
    }

    /// Longest time for one case: what takes longer hangs.
    fn patience(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// Whether using what was offered is felt outside of the case's own space. Such cases run alone, at the end.
    fn disturbs(&self, need: Need) -> bool {
        matches!(need, Need::Outage | Need::Wipe | Need::Rewind)
    }

    /// Lock and waiter keys that remain in the space, as the store itself shows them. What a client can list is
    /// asked for in any case.
    fn leftovers(&self, space: &str) -> Vec<String> {
        let _ = space;
        Vec::new()
    }

    /// An engine without a client ([`Need::Contract`]).
    fn engine(&self, plot: &Plot) -> Arc<dyn Engine> {
        panic!("{} offers no engine", plot.space)
    }

    /// Deletes what the store keeps beside the locks of a space: queues and fences ([`Need::SideState`]).
    fn delete_side_state(&self, space: &str) {
        panic!("{space} offers no side state")
    }

    /// Deletes everything in the store ([`Need::Wipe`]).
    fn wipe(&self) {
        panic!("this ground offers no wipe")
    }

    /// Remembers the store's present state ([`Need::Rewind`]).
    fn save(&self) {
        panic!("this ground offers no rewind")
    }

    /// Restores the state last [saved](Ground::save), as after a crash with an old backup.
    fn rewind(&self) {
        panic!("this ground offers no rewind")
    }

    /// Makes the store unreachable ([`Need::Outage`]).
    fn cut(&self, space: &str) {
        panic!("{space} offers no outage")
    }

    /// Makes it reachable again, with its data.
    fn mend(&self, space: &str) {
        panic!("{space} offers no outage")
    }
}
