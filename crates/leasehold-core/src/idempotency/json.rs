//! Requests and results of any type, written as JSON.

use std::fmt;

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
    text::no_json,
};

impl IdempotencyKey {
    /// What was asked for: the same key with another one is a mismatch. Written as JSON with sorted keys, of which only
    /// the SHA-256 is stored. Without one nothing is compared.
    pub fn fingerprint(mut self, request: &impl Serialize) -> Self {
        let written = serde_json::to_value(request).map(|mut value| {
            value.sort_all_objects();
            Some(Fingerprint::of(value.to_string()))
        });
        self.fingerprint = written.map_err(|error| no_json("fingerprint", &error));
        self
    }

    /// Begins an execution, or says how it stands; waits for somebody else's as long as [`wait`](Self::wait) says.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been begun.
    ///
    /// # Errors
    /// Those of [`IdempotencyKey`].
    pub async fn begin<T: DeserializeOwned>(self) -> Result<Begun<T>> {
        self.begin_as(|key, result| {
            // A result of another type is as bad as none: the record is left as it is.
            serde_json::from_slice(&result).map_err(|error| {
                let why = format!("its result is not of the type that was asked for: {error}");
                Error::Corrupt { key: key.clone(), source: EngineError::new(Fault::Corrupt, why) }
            })
        })
        .await
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

impl<T: Serialize> Execution<T> {
    /// Stores the result, and wakes its waiters. It counts also after the lease was lost, if nobody else has begun
    /// since. Cancel safety and errors are those of [`Execution::complete_bytes`]; a result that cannot be written as JSON is
    /// treated as one that is too large.
    pub async fn complete(self, result: &T) -> Result<Settled> {
        match serde_json::to_vec(result) {
            Ok(bytes) => self.complete_bytes(Bytes::from(bytes)).await,
            Err(error) => self.quarantine(no_json("result", &error)).await,
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
    /// The same with another execution.
    pub fn map<Y>(self, yours: impl FnOnce(X) -> Y) -> Begun<T, Y> {
        match self {
            Self::Yours(execution) => Begun::Yours(yours(execution)),
            Self::Completed(result) => Begun::Completed(result),
            Self::Failed { why } => Begun::Failed { why },
            Self::Quarantined { why } => Begun::Quarantined { why },
            Self::InProgress { holder, look_again } => Begun::InProgress { holder, look_again },
            Self::Mismatch => Begun::Mismatch,
            Self::DoneElsewhere => Begun::DoneElsewhere,
        }
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
