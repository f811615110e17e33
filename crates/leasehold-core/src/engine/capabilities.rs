//! What an engine can do.

/// What an engine can do, as plain data: it drives errors, docs and which conformance cases run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// The engine's word, as in its URL scheme.
    pub engine: &'static str,
    /// Who can share a lock.
    pub reach: Reach,
    /// How the next waiter learns that it is its turn.
    pub handover: Handover,
    /// Whether locks outlive the client that made the store.
    pub durable: bool,
    /// Longest name, in bytes, after the store's own prefix.
    pub name_max_bytes: usize,
    /// Why a claim cannot wait for replicas, if it cannot.
    pub no_acks: Option<&'static str>,
}

impl Capabilities {
    /// The capabilities of an engine.
    pub fn new(
        engine: &'static str,
        reach: Reach,
        handover: Handover,
        durable: bool,
        name_max_bytes: usize,
    ) -> Self {
        Self { engine, reach, handover, durable, name_max_bytes, no_acks: None }
    }

    /// The same without claims that wait for replicas, and why.
    pub fn without_acks(self, why: &'static str) -> Self {
        Self { no_acks: Some(why), ..self }
    }
}

/// Who can share a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks of one process.
    Process,
    /// The processes of one host.
    Host,
    /// Every host that reaches the store.
    Network,
}

/// How the next waiter learns that it is its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Handover {
    /// A release makes the next waiter the holder and notifies it.
    Push,
    /// A release wakes the next waiter, which then claims for itself.
    Pull,
}
