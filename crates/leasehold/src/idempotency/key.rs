//! The builder: which request, and how its outcome is kept.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{Begun, Execution, OnFailure, execution::Terms};
use crate::{
    config::{WAIT_MAX, between, check_label, check_wait, placed},
    core::Core,
    engine::records::{self, Fingerprint, Record},
    error::{Error, Result},
    name::Name,
    record::{self, Began, Wish},
    telemetry::Count,
    template::escape_value,
};

/// Largest result in bytes, unless the builder is told otherwise.
pub const RESULT_MAX_DEFAULT: usize = 256 * 1024;
/// Largest result that can be stored, in bytes.
pub const RESULT_MAX_LIMIT: usize = 64 * 1024 * 1024;
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const KEEP_DEFAULT: Duration = Duration::from_secs(86_400);
const KEEP_MIN: Duration = Duration::from_secs(1);

/// One kind of request; made by [`Leasehold::idempotency`](crate::Leasehold::idempotency).
#[derive(Clone)]
#[must_use = "it does nothing until a key is run"]
pub struct Idempotency {
    core: Arc<Core>,
    operation: String,
}

impl Idempotency {
    pub(crate) fn new(core: Arc<Core>, operation: &str) -> Self {
        Self { core, operation: operation.to_owned() }
    }

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
#[derive(Clone)]
#[must_use = "a key does nothing until it is run"]
pub struct IdempotencyKey {
    core: Arc<Core>,
    // What is wrong is reported when the key is used, so that the builder reads as one sentence.
    pub(super) key: Result<Name>,
    pub(super) fingerprint: Result<Option<Fingerprint>>,
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

    /// What was asked for: the same key with another one is a mismatch. Only its SHA-256 is stored. Without one nothing is
    /// compared.
    pub fn fingerprint_bytes(mut self, request: impl AsRef<[u8]>) -> Self {
        self.fingerprint = Ok(Some(Fingerprint::of(request)));
        self
    }

    /// How long a crashed execution keeps others from trying. Default 30 s; it is renewed while the execution lives.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long a result is kept, and replayed. Default 24 h.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.terms.keep = keep;
        self
    }

    /// Largest result in bytes. Default 256 KiB.
    pub fn result_max(mut self, bytes: usize) -> Self {
        self.terms.result_max = bytes;
        self
    }

    /// How long to wait for somebody else's execution: its result is replayed, and if it dies, the execution becomes ours.
    /// Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// What becomes of the key when the execution fails.
    pub fn on_failure(mut self, what: OnFailure) -> Self {
        self.terms.on_failure = what;
        self
    }

    /// What people see as the holder, besides host and process.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The key in the store.
    ///
    /// # Errors
    /// `invalid` for one that is empty or too long.
    pub fn store_key(&self) -> Result<Name> {
        self.key.clone()
    }

    /// At most once: sets a bare mark if there is nothing, and answers whether to go on. Nothing else is stored, so after
    /// a crash the work is *skipped*; a key that is running or completed is skipped too.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the mark behind: then nobody goes on.
    ///
    /// # Errors
    /// The store's faults: without an answer it is not known whether the mark was set.
    pub async fn check_and_set(self) -> Result<bool> {
        let key = self.checked()?;
        let records = self.core.records()?;
        let keys = std::slice::from_ref(&key);
        let answer = records.mark(keys, self.terms.keep, true, self.core.command_until()).await;
        let set = answer.map_err(|error| self.core.failed(error, "marking", &key))?;
        Ok(set.first() == Some(&true))
    }

    /// Begins an execution whose result is bytes, or says how it stands; waits for somebody else's as long as
    /// [`wait`](Self::wait) says.
    ///
    /// # Cancel safety
    /// Dropping the future gives back, in the background, what may have been begun.
    ///
    /// # Errors
    /// `corrupt` when something else is under the key; `wrong_type` when it is another kind of key; `unsupported` for a
    /// store without records; the store's faults.
    pub async fn begin_bytes(self) -> Result<Begun<Bytes>> {
        let wish = Wish {
            key: self.checked()?,
            fingerprint: self.fingerprint?,
            lease: self.lease,
            wait: self.wait,
            label: self.label,
            left_when_dropped: self.terms.on_failure == OnFailure::Quarantine,
        };
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        let stands = match record::begin(&self.core, &wish).await? {
            Began::Yours(held) => return Ok(Begun::Yours(Execution::new(held, self.terms))),
            Began::Stands(stands) => stands,
        };
        let count = |count| self.core.telemetry.count(count);
        Ok(match stands {
            records::Begun::Completed(result) => {
                count(Count::replayed);
                Begun::Completed(result)
            }
            records::Begun::Failed(why) => {
                count(Count::replayed);
                Begun::Failed { why: text(why) }
            }
            records::Begun::Running { holder, expires_in } => {
                count(Count::in_progress);
                Begun::InProgress { holder, look_again: expires_in }
            }
            records::Begun::Mismatch => {
                count(Count::mismatched);
                tracing::warn!(key = %wish.key, "the key belongs to another request");
                Begun::Mismatch
            }
            records::Begun::Quarantined(why) => Begun::Quarantined { why: text(why) },
            records::Begun::DoneElsewhere => Begun::DoneElsewhere,
            records::Begun::Yours(_) => unreachable!("told as ours above"),
        })
    }

    /// What is under the key, for people.
    ///
    /// # Errors
    /// The store's faults.
    pub async fn get(&self) -> Result<Option<Record>> {
        let key = self.checked()?;
        let answer = self.core.records()?.read(&key, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "reading", &key))
    }

    /// Removes what is under the key, also what cannot be read; the next call executes again. An execution that is under
    /// way goes on, and its result counts unless another one has begun by then. True if there was something.
    ///
    /// # Errors
    /// The store's faults.
    pub async fn remove(&self) -> Result<bool> {
        let key = self.checked()?;
        let answer = self.core.records()?.remove(&key, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "removing", &key))
    }

    fn checked(&self) -> Result<Name> {
        self.core.check_open()?;
        let key = self.key.clone()?;
        self.fingerprint.as_ref().map_err(Clone::clone)?;
        between("lease", self.lease, crate::lease::validity::TTL_MIN, self.core.config.max_ttl)?;
        between("keep", self.terms.keep, KEEP_MIN, WAIT_MAX)?;
        check_wait(self.wait)?;
        check_label(&self.label)?;
        if !(1..=RESULT_MAX_LIMIT).contains(&self.terms.result_max) {
            let got = format!("{} bytes", self.terms.result_max);
            return Err(Error::invalid("largest result", got, format!("1 to {RESULT_MAX_LIMIT} bytes")));
        }
        Ok(key)
    }
}
