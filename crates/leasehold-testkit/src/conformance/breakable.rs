//! Faults of a store that is not broken: it is unreachable, or it replies late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Clock,
    clock::Until,
    engine::{Answer, Claim, EngineError, Fault, Fut, Hold, Leases, Renewed},
};

use super::Tamper;

/// A store that is unreachable while it is switched off. Clones share the switch.
#[derive(Clone, Debug, Default)]
pub struct Breakable {
    off: Arc<AtomicBool>,
}

impl Breakable {
    /// Makes it unreachable.
    pub fn cut(&self) {
        self.off.store(true, Ordering::SeqCst);
    }

    /// Makes it reachable again.
    pub fn mend(&self) {
        self.off.store(false, Ordering::SeqCst);
    }
}

impl Tamper for Breakable {
    fn before(&self) -> Result<(), EngineError> {
        if self.off.load(Ordering::SeqCst) {
            return Err(EngineError::new(Fault::Unreachable, "switched off"));
        }
        Ok(())
    }
}

/// A store whose replies come late although the calls took effect at once. For clients on the system clock.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    claims: Duration,
    renewals: Duration,
}

impl Slow {
    /// Delays replies to claims.
    pub fn claims(by: Duration) -> Self {
        Self { claims: by, renewals: Duration::ZERO }
    }

    /// Delays replies to renewals.
    pub fn renewals(by: Duration) -> Self {
        Self { claims: Duration::ZERO, renewals: by }
    }
}

/// Delays an answer; after the caller's limit it is lost.
async fn late<T>(answer: Result<T, EngineError>, by: Duration, until: Until) -> Result<T, EngineError> {
    let left = until.since(Clock::system().now());
    tokio::time::sleep(by.min(left)).await;
    if by < left { answer } else { Err(EngineError::no_answer()) }
}

impl Tamper for Slow {
    fn claim<'a>(&'a self, inner: &'a dyn Leases, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move { late(inner.claim(claim, until).await, self.claims, until).await })
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Leases,
        holds: &'a [Hold],
        until: Until,
    ) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        Box::pin(async move { late(inner.renew(holds, until).await, self.renewals, until).await })
    }
}
