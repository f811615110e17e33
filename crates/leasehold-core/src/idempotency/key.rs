//! The builder: which request, and how its outcome is kept.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
#[cfg(feature = "json")]
use serde::{Serialize, de::DeserializeOwned};

use super::{Begun, Execution, OnFailure, execution::Terms};
use crate::{
    builder::setters,
    config::{WAIT_MAX, between, check_label, check_wait},
    core::Core,
    engine::records::{self, Fingerprint, MarkOp, Record},
    error::{Error, Result},
    lease::validity::TTL_MIN,
    name::Name,
    record::{self, Began, RecordRequest},
    telemetry::Count,
    template::escape_value,
    text::placed,
};
#[cfg(feature = "json")]
use crate::{engine::EngineError, engine::Fault, idempotency::Idempotent, lease::Lease, text::no_json};

/// Largest result in bytes, unless the builder is told otherwise.
pub const RESULT_MAX_DEFAULT: usize = 256 * 1024;
/// Largest result that can be stored, in bytes.
pub const RESULT_MAX_LIMIT: usize = 64 * 1024 * 1024;
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const KEEP_DEFAULT: Duration = Duration::from_secs(86_400);
const KEEP_MIN: Duration = Duration::from_secs(1);

/// One kind of request; made by `Leasehold::idempotency`.
#[derive(Clone)]
#[must_use = "it does nothing until a key is run"]
pub struct Idempotency {
    pub(crate) core: Arc<Core>,
    pub(crate) operation: String,
}

impl Idempotency {
    /// One request of this kind. In the store it is `idempotency:OPERATION:KEY`; `%`, `:`, `{`, `}` and control characters
    /// of both are percent-encoded, so no two pairs share a key.
    pub fn key(&self, key: impl ToString) -> IdempotencyKey {
        IdempotencyKey::named(self.core.clone(), store_key(&self.operation, &key.to_string()))
    }
}

fn store_key(operation: &str, key: &str) -> Result<Name> {
    for (what, text) in [("operation", operation), ("idempotency key", key)] {
        if text.is_empty() {
            return Err(Error::invalid(what, text, "text that is not empty"));
        }
    }
    Name::new(format!("idempotency:{}:{}", escape_value(operation), escape_value(key)))
        .map_err(|error| placed(error, "idempotency key"))
}

/// Builder of one request's execution.
///
/// Not the right tool when every call must be executed, one after the other: that is a [`Lock`](crate::Lock).
///
/// # Errors
/// All methods: `invalid` for something out of range; `corrupt` when something else is under the key, or a result of another
/// type; `wrong_type` when it is another kind of key; `unsupported` for a store without records; the store's faults.
#[derive(Clone)]
#[must_use = "a key does nothing until it is run"]
pub struct IdempotencyKey {
    core: Arc<Core>,
    // What is wrong is reported when the key is used, so that the builder reads as one sentence.
    key: Result<Name>,
    fingerprint: Result<Option<Fingerprint>>,
    lease: Duration,
    wait: Duration,
    label: String,
    terms: Terms,
}

impl IdempotencyKey {
    pub(crate) fn named(core: Arc<Core>, key: Result<Name>) -> Self {
        let terms =
            Terms { keep: KEEP_DEFAULT, result_max: RESULT_MAX_DEFAULT, on_failure: OnFailure::Retry };
        let lease = LEASE_DEFAULT.min(core.config.max_ttl);
        Self { core, key, fingerprint: Ok(None), lease, wait: Duration::ZERO, label: String::new(), terms }
    }

    /// What was asked for, of which the SHA-256 is stored: another one under the same key is a mismatch. Default: no check.
    pub fn fingerprint_bytes(self, request: impl AsRef<[u8]>) -> Self {
        Self { fingerprint: Ok(Some(Fingerprint::of(request))), ..self }
    }

    setters! {
        /// How long a crashed execution keeps others from trying. Default 30 s; it is renewed while the execution lives.
        lease(lease: Duration) => lease;
        /// How long a result is kept, and replayed. Default 24 h.
        keep(keep: Duration) => terms.keep;
        /// Largest result in bytes. Default 256 KiB.
        result_max(bytes: usize) => terms.result_max;
        /// How long to wait for somebody else's execution, woken when its result is stored: that is replayed, and if it dies,
        /// the execution becomes ours. Default: not at all.
        wait(wait: Duration) => wait;
        /// What becomes of the key when the execution fails.
        on_failure(what: OnFailure) => terms.on_failure;
        /// What people see as the holder, besides host and process.
        label(label: impl Into<String>) => label;
    }

    /// The key in the store.
    pub fn store_key(&self) -> Result<Name> {
        self.key.clone()
    }

    /// At most once: sets a bare mark if there is nothing, and answers whether to go on. Nothing else is stored, so after
    /// a crash the work is *skipped*; a key that is running or completed is skipped too. After an error without an answer it
    /// is not known whether the mark was set.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the mark behind: then nobody goes on.
    pub async fn check_and_set(self) -> Result<bool> {
        let (keys, op) = ([self.checked()?], MarkOp::SetIfAbsent(self.terms.keep));
        let answer = self.core.records()?.on_marks(&keys, op, self.core.command_until()).await;
        Ok(answer.map_err(|error| self.core.failed(error, "marking", &keys[0]))? == [true])
    }

    /// [`begin`](Self::begin) for an execution whose result is bytes.
    pub async fn begin_bytes(self) -> Result<Begun<Bytes>> {
        self.begin_as(|_, result| Ok(result)).await
    }

    async fn begin_as<T>(self, read: impl FnOnce(&Name, Bytes) -> Result<T>) -> Result<Begun<T>> {
        let request = RecordRequest {
            key: self.checked()?,
            fingerprint: self.fingerprint?,
            lease: self.lease,
            wait: self.wait,
            label: self.label,
            left_when_dropped: self.terms.on_failure == OnFailure::Quarantine,
        };
        let stands = match record::begin(&self.core, &request).await? {
            Began::Yours(held) => return Ok(Begun::Yours(Execution::new(held, self.terms))),
            Began::Stands(stands) => stands,
        };
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        let (count, begun) = match stands {
            records::Begun::Completed(result) => {
                (Some(Count::replayed), Begun::Completed(read(&request.key, result)?))
            }
            records::Begun::Failed(why) => (Some(Count::replayed), Begun::Failed { why: text(why) }),
            records::Begun::Running { holder, expires_in } => {
                (Some(Count::in_progress), Begun::InProgress { holder, look_again: expires_in })
            }
            records::Begun::Mismatch => {
                tracing::warn!(key = %request.key, "the key belongs to another request");
                (Some(Count::mismatched), Begun::Mismatch)
            }
            records::Begun::Quarantined(why) => (None, Begun::Quarantined { why: text(why) }),
            records::Begun::DoneElsewhere => (None, Begun::DoneElsewhere),
            records::Begun::Yours(_) => unreachable!("told as ours above"),
        };
        self.core.telemetry.count(count);
        Ok(begun)
    }

    /// What is under the key, for people.
    pub async fn get(&self) -> Result<Option<Record>> {
        let key = self.checked()?;
        let answer = self.core.records()?.read(&key, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "reading", &key))
    }

    /// Removes what is under the key, also what cannot be read; the next call executes again. An execution that is under
    /// way goes on, and its result counts unless another one has begun by then. True if there was something.
    pub async fn remove(&self) -> Result<bool> {
        let key = self.checked()?;
        let answer = self.core.records()?.remove(&key, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "removing", &key))
    }

    fn checked(&self) -> Result<Name> {
        self.core.check_open()?;
        let key = self.key.clone()?;
        self.fingerprint.as_ref().map_err(Clone::clone)?;
        between("lease", self.lease, TTL_MIN, self.core.config.max_ttl)?;
        between("keep", self.terms.keep, KEEP_MIN, WAIT_MAX)?;
        check_wait(self.wait)?;
        check_label(&self.label)?;
        between("largest result in bytes", self.terms.result_max, 1, RESULT_MAX_LIMIT)?;
        Ok(key)
    }
}

#[cfg(feature = "json")]
impl IdempotencyKey {
    /// [`fingerprint_bytes`](Self::fingerprint_bytes) of what was asked for, written as JSON with sorted keys.
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
        E: std::fmt::Display,
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
