//! How a lock is asked for and held.

use std::{sync::Arc, time::Duration};

use super::{OnOutage, Waited, kind::Kind, retry::Retry};
use crate::{
    config::{WAIT_MAX, between, check_label, check_wait},
    core::Core,
    engine::{Acks, Format, Mode},
    error::{Error, Result},
    lease::{Bond, validity::TTL_MAX_LIMIT},
    telemetry::Telemetry,
};

/// How a lock is asked for and held.
#[derive(Clone, Default)]
pub(crate) struct LockRequest {
    pub(crate) kind: Kind,
    pub(crate) format: Format,
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retry: Retry,
    /// Unless set, a lease is renewed in [`Lock::run`](super::Lock::run) only.
    pub(crate) keep_alive: Option<bool>,
    pub(crate) label: String,
    pub(crate) lock_delay: Duration,
    pub(crate) acks: Acks,
    pub(crate) max_lifetime: Option<Duration>,
    pub(crate) hold_at_least: Duration,
    pub(crate) on_outage: OnOutage,
    /// Never to go on without protection, whatever the caller says.
    pub(crate) critical: bool,
    pub(crate) progress: Option<Progress>,
    /// Those that it is to be held with.
    pub(super) bond: Option<Arc<Bond>>,
    /// Where it is counted, if under a policy.
    pub(super) policy: Option<Arc<Telemetry>>,
}

impl LockRequest {
    /// How it is to be held, once it was checked.
    pub(crate) fn mode(&self) -> Mode {
        self.kind.mode().unwrap_or_default()
    }

    /// Where it is counted.
    pub(crate) fn telemetry<'a>(&'a self, core: &'a Core) -> &'a Arc<Telemetry> {
        self.policy.as_ref().unwrap_or(&core.telemetry).of_kind(self.kind)
    }

    /// The same, to be held with others.
    pub(super) fn bonded(&self, bond: &Arc<Bond>) -> Self {
        Self { bond: Some(bond.clone()), ..self.clone() }
    }

    /// Everything is in range, and the store has what is asked for.
    pub(super) fn check(&self, core: &Core) -> Result<()> {
        let capabilities = core.engine.capabilities();
        core.config.check_ttl(self.ttl)?;
        between("ttl", self.ttl, *capabilities.ttl.start(), *capabilities.ttl.end())?;
        check_wait(self.wait)?;
        check_label(&self.label)?;
        self.retry.check()?;
        let most = core.config.max_ttl;
        core.config.check_lock_delay(self.lock_delay)?;
        between("minimum hold time", self.hold_at_least, Duration::ZERO, TTL_MAX_LIMIT)?;
        if let Some(lifetime) = self.max_lifetime {
            between("maximum lifetime", lifetime, self.ttl.min(most), WAIT_MAX)?;
        }
        if self.critical && self.on_outage == OnOutage::Proceed {
            return Err(Error::invalid("critical on-outage", "proceed", "deny"));
        }
        let mode = self.kind.mode()?;
        if let Err(lacks) = capabilities.check_mode(mode) {
            return Err(Error::unsupported(format!("a lock held as {mode}"), lacks.why));
        }
        if let Err(lacks) = capabilities.check_format(self.format, mode) {
            return Err(Error::unsupported(format!("a lock held as {mode} in Redisson's format"), lacks.why));
        }
        if let (true, Some(why)) = (self.acks != Acks::None, capabilities.no_acks) {
            return Err(Error::unsupported("waiting for replicas", why));
        }
        if self.max_attempts == Some(0) {
            return Err(Error::invalid("max attempts", "0", "1 or more"));
        }
        Ok(())
    }
}

/// Receives the progress of a wait.
type Progress = Arc<dyn Fn(&Waited<'_>) + Send + Sync>;
