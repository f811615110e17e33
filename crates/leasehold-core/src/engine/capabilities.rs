//! What an engine can do.

use std::time::Duration;

use super::Mode;
use crate::lease::validity::{TTL_MAX_LIMIT, TTL_MIN};

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
    /// How its locks can be held.
    pub modes: Modes,
    /// How long its leases can be.
    pub ttl: TtlRange,
    /// How changes of locks become known.
    pub watch: WatchBy,
    /// Why a claim cannot wait for replicas, if it cannot.
    pub no_acks: Option<&'static str>,
}

/// How locks can be held besides exclusively, or why not.
#[derive(Clone, Copy, Debug)]
pub struct Modes {
    /// Why locks cannot be shared, if they cannot.
    pub no_shared: Option<&'static str>,
    /// Why there are no permits, if there are none.
    pub no_permits: Option<&'static str>,
}

impl Modes {
    /// Exclusive locks only.
    pub const EXCLUSIVE: Self = Self {
        no_shared: Some("this store has exclusive locks only"),
        no_permits: Some("this store has exclusive locks only"),
    };

    /// Why a lock cannot be held like that, if it cannot.
    pub fn lacks(&self, mode: Mode) -> Option<&'static str> {
        match mode {
            Mode::Exclusive => None,
            Mode::Shared => self.no_shared,
            Mode::Permits { .. } => self.no_permits,
        }
    }
}

/// How long leases can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TtlRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// The store rounds up to whole multiples of it.
    pub step: Duration,
}

impl Default for TtlRange {
    /// As short and as long as the library allows, in milliseconds.
    fn default() -> Self {
        Self { min: TTL_MIN, max: TTL_MAX_LIMIT, step: Duration::from_millis(1) }
    }
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
        Self {
            engine,
            reach,
            handover,
            durable,
            name_max_bytes,
            modes: Modes::EXCLUSIVE,
            ttl: TtlRange::default(),
            watch: WatchBy::Poll,
            no_acks: None,
        }
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

/// How changes of locks become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchBy {
    /// The store reports each one.
    Push,
    /// The store is inspected again and again: a lock that is held for less than the interval may not be seen.
    Poll,
}
