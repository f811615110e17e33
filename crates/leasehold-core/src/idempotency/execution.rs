//! An execution that is ours, until its outcome is stored.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;

#[cfg(feature = "json")]
use super::Idempotent;
use super::OnFailure;
use crate::{
    engine::records::{Outcome, Settled},
    error::{Error, Result},
    lease::lease_methods,
    record::Held,
    telemetry::Count,
    text::cut,
};

/// How outcomes of a key are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) keep: Duration,
    pub(super) result_max: usize,
    pub(super) on_failure: OnFailure,
}

/// An execution that is yours: a lease that is kept alive until you say how it ended.
///
/// Dropped without an end it is given back in the background, and the next one may try; with [`OnFailure::Quarantine`] it is
/// left to its lease instead, as after a crash. If the program ends first, its lease runs out.
#[must_use = "an execution that is dropped is given back"]
pub struct Execution<T> {
    held: Held,
    terms: Terms,
    result: PhantomData<fn(T)>,
}

impl<T> Execution<T> {
    pub(super) fn new(held: Held, terms: Terms) -> Self {
        Self { held, terms, result: PhantomData }
    }

    /// Stores a result that is bytes, and wakes its waiters. It counts also after the lease was lost, if nobody else has begun
    /// since. Only [`begin_bytes`](super::IdempotencyKey::begin_bytes) reads any bytes back.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still stores the result, in the background.
    ///
    /// # Errors
    /// `invalid` for a result that is too large: the record is then settled as [`OnFailure::Quarantine`] does, because the
    /// work was done. The store's faults: without an answer it is not known whether it is stored, and it is tried on in the
    /// background for as long as the lease lasts.
    pub async fn complete_bytes(self, result: Bytes) -> Result<Settled> {
        let most = self.terms.result_max;
        if result.len() > most {
            let got = format!("{} bytes", result.len());
            return self.quarantine(Error::invalid("result", got, format!("at most {most} bytes"))).await;
        }
        self.end(Outcome::Completed(result), Some(Count::executed)).await
    }

    /// The work was done and its result cannot be stored: nobody shall do it again.
    async fn quarantine(self, refused: Error) -> Result<Settled> {
        let why = Bytes::from(format!("it was done, but: {refused}"));
        let _logged = self.held.settle(Outcome::Quarantined(why), self.terms.keep).await;
        Err(refused)
    }

    /// Ends it as failed, as [`OnFailure`] says. Cancel safety and errors are those of [`Execution::complete_bytes`].
    pub async fn fail(self, why: impl fmt::Display) -> Result<Settled> {
        // A long text is cut, so that a failure can always be stored.
        let why = || Bytes::copy_from_slice(cut(&why.to_string(), self.terms.result_max).as_bytes());
        let outcome = match self.terms.on_failure {
            OnFailure::Retry => Outcome::Retry,
            OnFailure::Replay => Outcome::Failed(why()),
            OnFailure::Quarantine => Outcome::Quarantined(why()),
        };
        self.end(outcome, None).await
    }

    /// Leaves it to its lease, as a crash would: nobody else can begin until that has run out. For a program that stops while
    /// the work goes on elsewhere.
    pub fn leave(self) {
        self.held.leave();
    }

    async fn end(self, outcome: Outcome, stored: Option<Count>) -> Result<Settled> {
        let telemetry = self.held.lease().state.telemetry.clone();
        let settled = self.held.settle(outcome, self.terms.keep).await?;
        telemetry.count(match settled {
            Settled::Stored => stored,
            Settled::FencedOff { .. } => Some(Count::fenced_off),
        });
        Ok(settled)
    }

    lease_methods! { |execution| execution.held.lease() }
}

#[cfg(feature = "json")]
impl<T: serde::Serialize> Execution<T> {
    /// Stores the result, and wakes its waiters. It counts also after the lease was lost, if nobody else has begun
    /// since. Cancel safety and errors are those of [`Execution::complete_bytes`]; a result that cannot be written as JSON is
    /// treated as one that is too large.
    pub async fn complete(self, result: &T) -> Result<Settled> {
        match serde_json::to_vec(result) {
            Ok(bytes) => self.complete_bytes(Bytes::from(bytes)).await,
            Err(error) => self.quarantine(crate::text::no_json("result", &error)).await,
        }
    }

    /// Stores how a body ended; nothing hides its result.
    pub async fn settle<E: fmt::Display>(self, ended: Result<T, E>) -> Idempotent<T, E> {
        match ended {
            Ok(result) => match self.complete(&result).await {
                Ok(Settled::Stored) => Idempotent::Executed(result),
                Ok(Settled::FencedOff { by }) => Idempotent::FencedOff { result, by },
                Err(why) => Idempotent::Unstored { result, why },
            },
            Err(failure) => {
                let _logged = self.fail(&failure).await;
                Idempotent::Failed(failure)
            }
        }
    }
}

impl<T> fmt::Debug for Execution<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.lease().fmt(f)
    }
}
