//! The builder: which request, and how its outcome is kept.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
#[cfg(feature = "json")]
use serde::{Serialize, de::DeserializeOwned};

use super::{AtMostOnce, Begun, Execution, OnFailure, execution::Terms};
use crate::{
    builder::setters,
    config::{WAIT_MAX, between, check_label, check_wait},
    core::Core,
    engine::records::{self, Fingerprint, MarkOp, Record},
    error::{Error, Result},
    lease::validity::TTL_MIN,
    name::Name,
    record::{self, Began, RecordRequest},
    telemetry::{Count, Telemetry},
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let key = leases.idempotency("payout").key(42);
    /// assert_eq!(key.store_key()?.as_str(), "idempotency:payout:42");
    /// # Ok(()) }
    /// ```
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
    lease_ttl: Duration,
    wait: Duration,
    label: String,
    terms: Terms,
    /// Where it is counted.
    telemetry: Arc<Telemetry>,
}

impl IdempotencyKey {
    pub(crate) fn named(core: Arc<Core>, key: Result<Name>) -> Self {
        let terms =
            Terms { keep: KEEP_DEFAULT, result_max: RESULT_MAX_DEFAULT, on_failure: OnFailure::Retry };
        let lease_ttl = LEASE_DEFAULT.min(core.config.max_ttl);
        let (wait, label, telemetry) = (Duration::ZERO, String::new(), core.telemetry.clone());
        Self { core, key, fingerprint: Ok(None), lease_ttl, wait, label, terms, telemetry }
    }

    /// What was asked for, of which the SHA-256 is stored: another one under the same key is a mismatch. Default: no check.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::idempotency::Begun;
    /// let key = || leases.idempotency("payout").key(42);
    /// let execution = key().fingerprint_bytes("EUR 100").begin_bytes().await?.yours().unwrap();
    /// assert!(matches!(key().fingerprint_bytes("EUR 999").begin_bytes().await?, Begun::Mismatch));
    /// # drop(execution);
    /// # Ok(()) }
    /// ```
    pub fn fingerprint_bytes(self, request: impl AsRef<[u8]>) -> Self {
        Self { fingerprint: Ok(Some(Fingerprint::of(request))), ..self }
    }

    setters! {
        /// How long a crashed execution keeps others from trying. Default 30 s; it is renewed while the execution lives.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let key = leases.idempotency("payout").key(42).lease_ttl(Duration::from_secs(60));
        /// # assert!(key.at_most_once().await?.is_first());
        /// # Ok(()) }
        /// ```
        lease_ttl(ttl: Duration) => lease_ttl;
        /// How long a result is kept, and replayed. Default 24 h.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let key = leases.idempotency("payout").key(42).keep_result_for(Duration::from_secs(7 * 86_400));
        /// # assert!(key.at_most_once().await?.is_first());
        /// # Ok(()) }
        /// ```
        keep_result_for(time: Duration) => terms.keep;
        /// Largest result in bytes. Default 256 KiB.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let key = leases.idempotency("payout").key(42).result_max(1024);
        /// # assert!(key.at_most_once().await?.is_first());
        /// # Ok(()) }
        /// ```
        result_max(bytes: usize) => terms.result_max;
        /// How long to wait for somebody else's execution, woken when its result is stored: that is replayed, and if it dies,
        /// the execution becomes ours. Default: not at all.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let key = leases.idempotency("payout").key(42).wait(Duration::from_secs(5));
        /// let paid = key.run(async |_lease| Ok::<_, String>("receipt 7".to_owned())).await?;
        /// assert_eq!(paid.result().unwrap(), "receipt 7");
        /// # Ok(()) }
        /// ```
        wait(wait: Duration) => wait;
        /// What becomes of the key when the execution fails.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// # use leasehold::idempotency::{Idempotent, OnFailure};
        /// let key = || leases.idempotency("payout").key(42).on_failure(OnFailure::Replay);
        /// let failed = key().run(async |_lease| Err::<u32, _>("no such account")).await?;
        /// assert!(matches!(failed, Idempotent::Failed("no such account")));
        /// let again = key().run(async |_lease| Ok::<u32, String>(1)).await?;
        /// assert!(matches!(again, Idempotent::ReplayedFailure(why) if why == "no such account"));
        /// # Ok(()) }
        /// ```
        on_failure(what: OnFailure) => terms.on_failure;
        /// What people see as the holder, besides host and process.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # use std::time::Duration;
        /// # let leases = leasehold::Leasehold::connect("memory:").await?;
        /// let key = leases.idempotency("payout").key(42).label("worker 3");
        /// # assert!(key.at_most_once().await?.is_first());
        /// # Ok(()) }
        /// ```
        label(label: impl Into<String>) => label;
    }

    /// Counts the request under this policy of the client; as [`Lock::counted_as`](crate::Lock::counted_as).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let key = leases.idempotency("payout").key(42).counted_as("payout");
    /// # assert!(key.at_most_once().await?.is_first());
    /// # Ok(()) }
    /// ```
    pub fn counted_as(mut self, policy: &str) -> Self {
        self.telemetry = self.core.telemetry.of_policy(policy).unwrap_or(self.telemetry);
        self
    }

    /// The key in the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let key = leases.idempotency("payout").key("a:b");
    /// assert_eq!(key.store_key()?.as_str(), "idempotency:payout:a%3Ab");
    /// # Ok(()) }
    /// ```
    pub fn store_key(&self) -> Result<Name> {
        self.key.clone()
    }

    /// Better skipped than repeated: sets a bare mark if there is nothing, and says whether this call is the first. Nothing
    /// else is stored, so after a crash the work is *skipped*; a key that is running or completed is skipped too. After an
    /// error without an answer it is not known whether the mark was set.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the mark behind: then nobody goes on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// if leases.idempotency("mail").key("welcome:7").at_most_once().await?.is_first() {
    ///     println!("sending");
    /// }
    /// assert!(!leases.idempotency("mail").key("welcome:7").at_most_once().await?.is_first());
    /// # Ok(()) }
    /// ```
    pub async fn at_most_once(self) -> Result<AtMostOnce> {
        let (keys, op) = ([self.checked()?], MarkOp::SetIfAbsent(self.terms.keep));
        let answer = self.core.records()?.on_marks(&keys, op, self.core.command_until()).await;
        let marked = answer.map_err(|error| self.core.failed(error, "marking", &keys[0]))?;
        Ok(if marked == [true] { AtMostOnce::First } else { AtMostOnce::Repeated })
    }

    /// [`begin`](Self::begin) for an execution whose result is bytes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let execution = leases.idempotency("render").key("page 1").begin_bytes().await?.yours().unwrap();
    /// execution.complete_bytes("<html>".into()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn begin_bytes(self) -> Result<Begun<Bytes>> {
        self.begin_as(|_, result| Ok(result)).await
    }

    async fn begin_as<T>(self, read: impl FnOnce(&Name, Bytes) -> Result<T>) -> Result<Begun<T>> {
        let request = RecordRequest {
            key: self.checked()?,
            fingerprint: self.fingerprint?,
            lease: self.lease_ttl,
            wait: self.wait,
            label: self.label,
            left_when_dropped: self.terms.on_failure == OnFailure::Quarantine,
            telemetry: self.telemetry.clone(),
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
        self.telemetry.count(count);
        Ok(begun)
    }

    /// What is under the key, for people.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let key = leases.idempotency("mail").key(7);
    /// assert!(key.get().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn get(&self) -> Result<Option<Record>> {
        let key = self.checked()?;
        let answer = self.core.records()?.read(&key, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "reading", &key))
    }

    /// Removes what is under the key, also what cannot be read; the next call executes again. An execution that is under
    /// way goes on, and its result counts unless another one has begun by then. True if there was something.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let key = leases.idempotency("mail").key(7);
    /// assert!(key.clone().at_most_once().await?.is_first());
    /// assert!(key.remove().await?);
    /// # Ok(()) }
    /// ```
    pub async fn remove(&self) -> Result<bool> {
        let key = self.checked()?;
        let answer = self.core.records()?.remove(&key, self.core.command_until()).await;
        answer.map_err(|error| self.core.failed(error, "removing", &key))
    }

    fn checked(&self) -> Result<Name> {
        self.core.check_open()?;
        let key = self.key.clone()?;
        self.fingerprint.as_ref().map_err(Clone::clone)?;
        between("ttl of the lease", self.lease_ttl, TTL_MIN, self.core.config.max_ttl)?;
        between("time to keep a result", self.terms.keep, KEEP_MIN, WAIT_MAX)?;
        check_wait(self.wait)?;
        check_label(&self.label)?;
        between("largest result in bytes", self.terms.result_max, 1, RESULT_MAX_LIMIT)?;
        Ok(key)
    }
}

#[cfg(feature = "json")]
impl IdempotencyKey {
    /// [`fingerprint_bytes`](Self::fingerprint_bytes) of what was asked for, written as JSON with sorted keys.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::idempotency::Idempotent;
    /// let pay = |cents: u32| leases.idempotency("payout").key(42).fingerprint(&cents).run(async |_lease| Ok::<u32, String>(7));
    /// assert!(matches!(pay(100).await?, Idempotent::Executed(7)));
    /// assert!(matches!(pay(999).await?, Idempotent::Mismatch));
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::idempotency::Begun;
    /// match leases.idempotency("payout").key(42).begin::<u32>().await? {
    ///     Begun::Yours(execution) => drop(execution.complete(&7).await?),
    ///     Begun::Completed(receipt) => println!("paid before: {receipt}"),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::idempotency::Idempotent;
    /// let pay = async || leases.idempotency("payout").key(42).run(async |_lease| Ok::<u32, String>(7)).await;
    /// assert!(matches!(pay().await?, Idempotent::Executed(7)));
    /// assert!(matches!(pay().await?, Idempotent::Replayed(7)));
    /// # Ok(()) }
    /// ```
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
