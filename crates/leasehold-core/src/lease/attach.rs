//! A detached lock becomes a guard again.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::{Guard, Handle, Lease, Terms};
use crate::{
    builder::setters,
    core::Core,
    engine::{Grant, Hold, Renewed},
    error::{Error, Result},
    telemetry::Count,
};

/// Builder that makes a [`Handle`] a [`Guard`] of this process; made by [`Client::attach`](crate::Client::attach). Await it
/// to extend the lock and have its guard.
///
/// The fence stays, so a copy of the handle must not be attached elsewhere: two processes would both hold the lock. A minimum
/// hold time and a maximum lifetime end with the guard that was detached.
///
/// # Cancel safety
/// Dropping the future leaves the lock as it was, or extended; whoever has a copy of the handle can go on with it.
///
/// # Errors
/// `lost` when the lock is gone; `invalid` for a ttl out of range; the store's faults.
#[must_use = "nothing holds the lock until it is awaited"]
pub struct Attach {
    core: Arc<Core>,
    hold: Hold,
    keep_alive: bool,
}

impl Attach {
    pub(crate) fn new(core: Arc<Core>, handle: Handle) -> Self {
        Self { core, hold: handle.hold, keep_alive: false }
    }

    setters! {
        /// How long the lease lasts from now on. Default: that of the handle.
        ttl(ttl: Duration) => hold.ttl;
    }

    /// Renews the lease, every third of its ttl, until it is released or lost.
    pub fn keep_alive(self) -> Self {
        Self { keep_alive: true, ..self }
    }

    async fn send(self) -> Result<Guard> {
        let Self { core, hold, keep_alive } = self;
        core.check_open()?;
        core.check_name(&hold.name)?;
        core.config.check_ttl(hold.ttl)?;
        core.config.check_lock_delay(hold.lock_delay)?;
        let lost = Error::Lost { name: hold.name.clone(), fence: hold.fence };
        let answer = core.renew(&hold).await;
        let Renewed::Kept { since, .. } =
            answer.map_err(|error| core.failed(error, "attaching", &hold.name))?
        else {
            return Err(lost);
        };
        let telemetry = core.telemetry.of_kind(hold.mode.into()).clone();
        telemetry.count(Count::renewed);
        let grant = Grant { fence: hold.fence, since, ttl: hold.ttl, acks: 0 };
        let terms = Terms { keep_alive, max_lifetime: None, handed_over: false, telemetry, bond: None };
        let lease = Lease::begin(&core, hold, &grant, terms, core.clock.now());
        // An answer that came too late is worth nothing. The lock is left to the handle.
        if !lease.is_held() {
            lease.end();
            return Err(lost);
        }
        Ok(Guard::new(lease, Duration::ZERO))
    }
}

impl IntoFuture for Attach {
    type Output = Result<Guard>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl std::fmt::Debug for Attach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attach").field("name", &self.hold.name).finish_non_exhaustive()
    }
}
