//! The store under test, as a runner provides it.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Clock, engine::Engine};

use super::Need;

/// A part of the store that only one case uses.
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

/// The store under test, and faults that can be injected from outside. Only [`builder`](Fixture::builder) is required;
/// [`offers`](Fixture::offers) lists which optional methods a fixture implements.
///
/// Methods may block; they are called where blocking is allowed.
pub trait Fixture: Send + Sync + 'static {
    /// A builder for a client of this namespace.
    fn builder(&self, namespace: &Namespace) -> Builder;

    /// Which of the optional methods below can be used.
    fn offers(&self) -> &[Need] {
        &[]
    }

    /// The longest time for one case; a case that takes longer has failed.
    fn patience(&self) -> Duration {
        Duration::from_secs(45)
    }

    /// Whether this fault affects other namespaces. Cases that need it run alone, at the end.
    fn disturbs(&self, need: Need) -> bool {
        matches!(need, Need::Outage | Need::Wipe | Need::Rewind)
    }

    /// Lock and waiter keys that remain in the namespace, read from the store itself. A client lists its locks in any
    /// case.
    fn leftovers(&self, namespace: &str) -> Vec<String> {
        let _ = namespace;
        Vec::new()
    }

    /// The case of this namespace has ended, and nothing of it is needed any more.
    fn ended(&self, namespace: &str) {
        let _ = namespace;
    }

    /// An engine without a client ([`Need::Contract`]).
    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        panic!("{} offers no engine", namespace.name)
    }

    /// Deletes queues and fences of a namespace, but not its locks ([`Need::SideState`]).
    fn delete_side_state(&self, namespace: &str) {
        panic!("{namespace} offers no side state")
    }

    /// Deletes everything in the store ([`Need::Wipe`]).
    fn wipe(&self) {
        panic!("this fixture offers no wipe")
    }

    /// Saves the current state of the store ([`Need::Rewind`]).
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
