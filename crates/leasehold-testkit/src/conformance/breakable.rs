//! Faults of a store that are nobody's mistake: it cannot be reached, or it answers late.

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

/// A store that cannot be reached while it is switched off. Clones share the switch.
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

/// A store whose answers come late; the calls took effect at once. For clients on the system clock.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    claims: Duration,
    renewals: Duration,
}

impl Slow {
    /// Answers to claims come this late.
    pub fn claims(by: Duration) -> Self {
        Self { claims: by, renewals: Duration::ZERO }
    }

    /// Answers to renewals come this late.
    pub fn renewals(by: Duration) -> Self {
        Self { claims: Duration::ZERO, renewals: by }
    }
}

/// Keeps an answer back; one that is not there by the caller's limit never comes.
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
