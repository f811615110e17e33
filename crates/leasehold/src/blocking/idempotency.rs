//! Idempotency keys.

use std::{
    fmt,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    lease::Lease,
    runtime::{for_waiting, wait},
};
use crate::{
    error::Result,
    idempotency::{self, Idempotent, OnFailure, Record, Settled},
    name::Name,
};

/// One kind of request, without `async`; see [`crate::Idempotency`].
#[derive(Clone)]
#[must_use = "it does nothing until a key is run"]
pub struct Idempotency {
    inner: idempotency::Idempotency,
}

impl Idempotency {
    pub(super) fn new(inner: idempotency::Idempotency) -> Self {
        Self { inner }
    }

    /// As [`crate::Idempotency::key`].
    pub fn key(&self, key: impl ToString) -> IdempotencyKey {
        IdempotencyKey { inner: self.inner.key(key) }
    }
}

/// Builder of one request's execution, without `async`; see [`crate::IdempotencyKey`].
#[derive(Clone)]
#[must_use = "a key does nothing until it is run"]
pub struct IdempotencyKey {
    inner: idempotency::IdempotencyKey,
}

/// The builder's methods are those of the async one, under the same names.
macro_rules! same_as_async {
    ($($method:ident($argument:ident: $type:ty);)+) => {$(
        #[doc = concat!("As [`", stringify!($method), "`](crate::IdempotencyKey::", stringify!($method), ").")]
        pub fn $method(self, $argument: $type) -> Self {
            Self { inner: self.inner.$method($argument) }
        }
    )+};
}

impl IdempotencyKey {
    pub(super) fn new(inner: idempotency::IdempotencyKey) -> Self {
        Self { inner }
    }

    same_as_async! {
        fingerprint(request: &impl Serialize);
        fingerprint_bytes(request: impl AsRef<[u8]>);
        lease(lease: Duration);
        keep(keep: Duration);
        result_max(bytes: usize);
        wait(wait: Duration);
        on_failure(what: OnFailure);
        label(label: impl Into<String>);
    }

    /// As [`crate::IdempotencyKey::store_key`].
    ///
    /// # Errors
    /// As there.
    pub fn store_key(&self) -> Result<Name> {
        self.inner.store_key()
    }

    /// At most once: answers whether to go on.
    ///
    /// # Errors
    /// As [`crate::IdempotencyKey::check_and_set`]; also `unsupported` in async code.
    pub fn check_and_set(self) -> Result<bool> {
        wait(self.inner.check_and_set())?
    }

    /// Begins an execution, or says how it stands.
    ///
    /// # Errors
    /// As [`crate::IdempotencyKey::begin`]; also `unsupported` in async code.
    pub fn begin<T: DeserializeOwned>(self) -> Result<Begun<T>> {
        wait(self.inner.begin::<T>())??.try_map(Execution::new, Ok)
    }

    /// Executes `body` unless it was executed before, and stores its result. Nothing can cancel the body: a long one asks
    /// [`Lease::is_held`] before each step. One that ends after its lease is told apart by its outcome: it counts, or was
    /// fenced off.
    ///
    /// # Errors
    /// As [`crate::IdempotencyKey::begin`]; also `unsupported` in async code.
    pub fn run<T, E>(self, body: impl FnOnce(Lease) -> Result<T, E>) -> Result<Idempotent<T, E>>
    where
        T: Serialize + DeserializeOwned,
        E: fmt::Display,
    {
        let runtime = for_waiting()?;
        let execution = match runtime.block_on(self.inner.begin::<T>())?.for_run() {
            Ok(execution) => execution,
            Err(stands) => return Ok(stands),
        };
        // Outside of the runtime, so that the body may make blocking calls of its own.
        let ended = catch_unwind(AssertUnwindSafe(|| body(Lease::new(execution.lease()))));
        match ended {
            Ok(ended) => Ok(runtime.block_on(execution.settle(ended))),
            Err(panic) => {
                drop(execution);
                resume_unwind(panic)
            }
        }
    }

    /// What is under the key, for people.
    ///
    /// # Errors
    /// As [`crate::IdempotencyKey::get`]; also `unsupported` in async code.
    pub fn get(&self) -> Result<Option<Record>> {
        wait(self.inner.get())?
    }

    /// Removes what is under the key.
    ///
    /// # Errors
    /// As [`crate::IdempotencyKey::remove`]; also `unsupported` in async code.
    pub fn remove(&self) -> Result<bool> {
        wait(self.inner.remove())?
    }
}

/// How [`IdempotencyKey::begin`] ended.
pub type Begun<T> = idempotency::Begun<T, Execution<T>>;

/// An execution that is yours, without `async`; see [`crate::idempotency::Execution`].
#[derive(Debug)]
#[must_use = "an execution that is dropped is given back"]
pub struct Execution<T> {
    inner: idempotency::Execution<T>,
    lease: Lease,
}

impl<T> Execution<T> {
    fn new(inner: idempotency::Execution<T>) -> Self {
        Self { lease: Lease::new(inner.lease()), inner }
    }

    /// Stores the result, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`crate::idempotency::Execution::complete`]. In async code `unsupported`; the execution is then given back.
    pub fn complete(self, result: &T) -> Result<Settled>
    where
        T: Serialize,
    {
        wait(self.inner.complete(result))?
    }

    /// Tells that it failed.
    ///
    /// # Errors
    /// As [`crate::idempotency::Execution::fail`]. In async code `unsupported`; the execution is then given back.
    pub fn fail(self, why: impl fmt::Display) -> Result<Settled> {
        wait(self.inner.fail(why))?
    }
}

/// What a lease tells: its fence, whether it is held, when it is lost.
impl<T> Deref for Execution<T> {
    type Target = Lease;
    fn deref(&self) -> &Lease {
        &self.lease
    }
}
