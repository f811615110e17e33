//! What a runner knows about the store under test.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Clock, engine::Engine};

use super::Need;

/// Where a case works: a part of the store that no other case uses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Namespace {
    /// A short word of letters and digits, different for every case: a file, a database, or a prefix.
    pub name: String,
    /// The clock that client and engine must use.
    pub clock: Clock,
    /// Whether the case will [`cut`](Fixture::cut) this namespace.
    pub breakable: bool,
}

impl Namespace {
    pub(super) fn new(name: String, breakable: bool) -> Self {
        Self { name, clock: Clock::system(), breakable }
    }

    pub(super) fn with_clock(&self, clock: Clock) -> Self {
        Self { clock, ..self.clone() }
    }
}

/// The store under test, and what can be done to it from outside. Only [`builder`](Fixture::builder) is required; what
/// else a fixture can do it lists in [`offers`](Fixture::offers).
///
/// Methods may block; they are called where that is allowed.
pub trait Fixture: Send + Sync + 'static {
    /// A builder for a client of this part of the store.
    fn builder(&self, namespace: &Namespace) -> Builder;

    /// Which of the optional methods below can be used.
    fn offers(&self) -> &[Need] {
        &[]
    }

    /// Longest time for one case: what takes longer hangs.
    fn patience(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// Whether using what was offered is felt outside of the case's own namespace. Such cases run alone, at the end.
    fn disturbs(&self, need: Need) -> bool {
        matches!(need, Need::Outage | Need::Wipe | Need::Rewind)
    }

    /// Lock and waiter keys that remain in the namespace, as the store itself shows them. What a client can list is
    /// asked for in any case.
    fn leftovers(&self, namespace: &str) -> Vec<String> {
        let _ = namespace;
        Vec::new()
    }

    /// An engine without a client ([`Need::Contract`]).
    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        panic!("{} offers no engine", namespace.name)
    }

    /// Deletes what the store keeps beside the locks of a namespace: queues and fences ([`Need::SideState`]).
    fn delete_side_state(&self, namespace: &str) {
        panic!("{namespace} offers no side state")
    }

    /// Deletes everything in the store ([`Need::Wipe`]).
    fn wipe(&self) {
        panic!("this fixture offers no wipe")
    }

    /// Remembers the store's present state ([`Need::Rewind`]).
    fn save(&self) {
        panic!("this fixture offers no rewind")
    }

    /// Restores the state last [saved](Fixture::save), as after a crash with an old backup.
    fn rewind(&self) {
        panic!("this fixture offers no rewind")
    }

    /// Makes the store unreachable ([`Need::Outage`]).
    fn cut(&self, namespace: &str) {
        panic!("{namespace} offers no outage")
    }

    /// Makes it reachable again, with its data.
    fn mend(&self, namespace: &str) {
        panic!("{namespace} offers no outage")
    }
}
