//! What an engine can do.

use std::{ops::RangeInclusive, time::Duration};

use super::{Claim, EXCLUSIVE_ONLY, EngineError, FIRST_ONLY, Fault, Format, Mode, NO_REDISSON};
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
    /// Whether waiters are served in the order in which they came, as long as each asks in time when it is its turn.
    pub ordered: bool,
    /// Whether locks outlive the client that made the store.
    pub durable: bool,
    /// Longest name, in bytes, after the store's own prefix.
    pub name_max_bytes: usize,
    /// How long leases can be.
    pub ttl: RangeInclusive<Duration>,
    /// The store rounds leases up to whole multiples of it.
    pub ttl_step: Duration,
    /// Whether the store reports it when somebody else takes a lease away that is kept alive: see
    /// [`LossHint`](super::LossHint). Otherwise its next renewal finds out.
    pub reports_loss: bool,
    /// Which locks can be claimed all or none: see [`Leases::claim_all`](super::Leases::claim_all).
    pub claim_all: Atomic,
    /// Why locks cannot be shared, if they cannot.
    pub no_shared: Option<&'static str>,
    /// Why there are no permits, if there are none.
    pub no_permits: Option<&'static str>,
    /// Why a writer cannot become a reader, nor a reader the writer, if they cannot: see
    /// [`Leases::convert`](super::Leases::convert).
    pub no_convert: Option<&'static str>,
    /// Why locks cannot have Redisson's format, if they cannot.
    pub no_redisson: Option<&'static str>,
    /// Why a claim cannot wait for replicas, if it cannot.
    pub no_acks: Option<&'static str>,
    /// Why a holder cannot name the next one, if it cannot: see [`Leases::hand_to`](super::Leases::hand_to).
    pub no_hand_to: Option<&'static str>,
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
            ordered: true,
            durable,
            name_max_bytes,
            ttl: TTL_MIN..=TTL_MAX_LIMIT,
            ttl_step: Duration::from_millis(1),
            reports_loss: false,
            claim_all: Atomic::No,
            no_shared: Some(EXCLUSIVE_ONLY),
            no_permits: Some(EXCLUSIVE_ONLY),
            no_convert: Some(EXCLUSIVE_ONLY),
            no_redisson: Some(NO_REDISSON),
            no_acks: None,
            no_hand_to: Some(FIRST_ONLY),
        }
    }

    /// The same with waiters that are served in no order.
    pub fn without_order(self) -> Self {
        Self { ordered: false, ..self }
    }

    /// The same without claims that wait for replicas, and why.
    pub fn without_acks(self, why: &'static str) -> Self {
        Self { no_acks: Some(why), ..self }
    }

    /// The same with locks of all modes.
    pub fn with_all_modes(self) -> Self {
        Self { no_shared: None, no_permits: None, no_convert: None, ..self }
    }

    /// The same with shared locks.
    pub fn with_shared(self) -> Self {
        Self { no_shared: None, ..self }
    }

    /// The same without permits, and why.
    pub fn without_permits(self, why: &'static str) -> Self {
        Self { no_permits: Some(why), ..self }
    }

    /// The same with holders that keep their mode, and why.
    pub fn without_convert(self, why: &'static str) -> Self {
        Self { no_convert: Some(why), ..self }
    }

    /// The same with claims of several locks at once.
    pub fn with_claim_all(self) -> Self {
        Self { claim_all: Atomic::Store, ..self }
    }

    /// The same with holders that name the next one.
    pub fn with_hand_to(self) -> Self {
        Self { no_hand_to: None, ..self }
    }

    /// The same with locks in Redisson's format, or why there are none after all.
    pub fn with_redisson(self, unless: Option<&'static str>) -> Self {
        Self { no_redisson: unless, ..self }
    }

    /// The same with reports of lost leases.
    pub fn with_loss_reports(self) -> Self {
        Self { reports_loss: true, ..self }
    }

    /// Refuses what the engine does not have: every claim begins with it.
    pub fn check(&self, claim: &Claim) -> Result<(), EngineError> {
        self.check_mode(claim.mode)?;
        self.check_format(claim.format, claim.mode)
    }

    /// Refuses a mode that the engine does not have.
    pub fn check_mode(&self, mode: Mode) -> Result<(), EngineError> {
        let lacks = match mode {
            Mode::Exclusive => None,
            Mode::Shared => self.no_shared,
            Mode::Permits { .. } => self.no_permits,
        };
        lacks.map_or(Ok(()), |why| Err(EngineError::new(Fault::Unsupported, why)))
    }

    /// Refuses a format that the engine does not have, or not in this mode.
    pub fn check_format(&self, format: Format, mode: Mode) -> Result<(), EngineError> {
        let lacks = match (format, mode) {
            (Format::Plain, _) => None,
            (Format::Redisson, Mode::Exclusive) => self.no_redisson,
            (Format::Redisson, _) => Some("of Redisson's locks only the exclusive ones can be shared"),
        };
        lacks.map_or(Ok(()), |why| Err(EngineError::new(Fault::Unsupported, why)))
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

/// What a store does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Atomic {
    /// One name at a time.
    No,
    /// Any names of the store.
    Store,
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
