//! Requests and results of any type, written as JSON.

use std::{fmt, time::Duration};

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use super::{Begun, Execution, IdempotencyKey, Idempotent};
use crate::{
    engine::{
        EngineError, Fault,
        records::{Fingerprint, Settled},
    },
    error::{Error, Result},
    lease::Lease,
    name::Name,
};

impl IdempotencyKey {
    /// What was asked for: the same key with another one is a mismatch. Written as JSON with sorted keys, of which only
    /// the SHA-256 is stored. Without one nothing is compared.
    pub fn fingerprint(mut self, request: &impl Serialize) -> Self {
        let written = serde_json::to_value(request).map(|mut value| {
            value.sort_all_objects();
            value.to_string()
        });
        self.fingerprint = written.map(|text| Some(Fingerprint::of(text))).map_err(|error| {
            Error::invalid("fingerprint", error.to_string(), "a value that can be written as JSON")
        });
        self
    }

    /// Begins an execution, or says how it stands; waits for somebody else's as long as [`wait`](Self::wait) says.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been begun.
    ///
    /// # Errors
    /// `corrupt` when something else is under the key, or a result of another type; `wrong_type` when it is another kind
    /// of key; `unsupported` for a store without records; the store's faults.
    pub async fn begin<T: DeserializeOwned>(self) -> Result<Begun<T>> {
        let key = self.key.clone();
        let begun = self.begin_bytes().await?;
        begun.try_map(Execution::retyped, |bytes| read(&key?, &bytes))
    }

    /// Waits for the result of somebody else's execution, woken when that is stored. If none is in progress, or its holder
    /// has died, the execution becomes ours; short for [`wait`](Self::wait) and [`begin`](Self::begin).
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn wait_for_result<T: DeserializeOwned>(self, most: Duration) -> Result<Begun<T>> {
        self.wait(most).begin().await
    }

    /// Executes `body` unless it was executed before, and stores its result. When the lease can no longer be trusted the
    /// body is cancelled. A body that panics is as one that was dropped: see [`Execution`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the body, and the execution is given back in the background: see [`Execution`].
    ///
    /// # Errors
    /// `lost` when the lease ended before the body did: the work may be done in part. Otherwise as
    /// [`begin`](Self::begin); once the body has ended, nothing hides its result: [`Idempotent::Unstored`].
    pub async fn run<T, E>(self, body: impl AsyncFnOnce(Lease) -> Result<T, E>) -> Result<Idempotent<T, E>>
    where
        T: Serialize + DeserializeOwned,
        E: fmt::Display,
    {
        let execution = match self.begin::<T>().await?.for_run() {
            Ok(execution) => execution,
            Err(stands) => return Ok(stands),
        };
        let lease = execution.lease();
        let ended = tokio::select! {
            biased;
            () = lease.lost() => return Err(lease.lost_error()),
            ended = body(lease.clone()) => ended,
        };
        Ok(execution.settle(ended).await)
    }
}

impl<T> Execution<T> {
    pub(super) fn retyped<U>(self) -> Execution<U> {
        Execution::new(self.held, self.terms)
    }
}

impl<T: Serialize> Execution<T> {
    /// Stores the result, and wakes its waiters. It counts also after the lease was lost, if nobody else has begun
    /// since.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still stores the result, in the background.
    ///
    /// # Errors
    /// `invalid` for a result that is too large or cannot be written as JSON: the record is then settled as
    /// [`OnFailure::Quarantine`] does, because the work was done. The store's faults: without an answer it is not known whether
    /// it is stored, and it is tried on in the background for as long as the lease lasts.
    pub async fn complete(self, result: &T) -> Result<Settled> {
        match serde_json::to_vec(result) {
            Ok(bytes) => self.complete_bytes(Bytes::from(bytes)).await,
            Err(error) => {
                let refused =
                    Error::invalid("result", error.to_string(), "a value that can be written as JSON");
                self.quarantine(refused).await
            }
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

impl<T, X> Begun<T, X> {
    /// The same with another execution and another result.
    pub fn try_map<U, Y>(
        self,
        yours: impl FnOnce(X) -> Y,
        result: impl FnOnce(T) -> Result<U>,
    ) -> Result<Begun<U, Y>> {
        Ok(match self {
            Self::Yours(execution) => Begun::Yours(yours(execution)),
            Self::Completed(of) => Begun::Completed(result(of)?),
            Self::Failed { why } => Begun::Failed { why },
            Self::Quarantined { why } => Begun::Quarantined { why },
            Self::InProgress { holder, look_again } => Begun::InProgress { holder, look_again },
            Self::Mismatch => Begun::Mismatch,
            Self::DoneElsewhere => Begun::DoneElsewhere,
        })
    }

    /// The execution if it is ours, else how it stands.
    pub fn for_run<E>(self) -> Result<X, Idempotent<T, E>> {
        Err(match self {
            Self::Yours(execution) => return Ok(execution),
            Self::Completed(result) => Idempotent::Replayed(result),
            Self::Failed { why } => Idempotent::ReplayedFailure(why),
            Self::Quarantined { why } => Idempotent::Quarantined { why },
            Self::InProgress { holder, look_again } => Idempotent::InProgress { holder, look_again },
            Self::Mismatch => Idempotent::Mismatch,
            Self::DoneElsewhere => Idempotent::DoneElsewhere,
        })
    }
}

/// A result of another type is as bad as none: the record is left as it is.
fn read<T: DeserializeOwned>(key: &Name, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        let why = format!("its result is not of the type that was asked for: {error}");
        Error::Corrupt { key: key.clone(), source: EngineError::new(Fault::Corrupt, why) }
    })
}
