//! Idempotency keys.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{fmt, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::lock::{Lease, lease_methods};
use super::mirror::{for_waiting, mirror, wait};
use crate::idempotency::{self, AtMostOnce, Idempotent, OnFailure, Record, Settled};
use crate::{Name, Result};

mirror! {
    /// One kind of request, without `async`; see [`crate::Idempotency`].
    #[derive(Clone)]
    #[must_use = "it does nothing until a key is run"]
    pub struct Idempotency(crate::Idempotency) {
        get key(key: impl ToString) -> IdempotencyKey => IdempotencyKey::new;
    }
}

mirror! {
    /// Builder of one request's execution, without `async`; see [`crate::IdempotencyKey`].
    #[derive(Clone)]
    #[must_use = "a key does nothing until it is run"]
    pub struct IdempotencyKey(crate::IdempotencyKey) {
        set fingerprint(request: &impl Serialize);
        set fingerprint_bytes(request: impl AsRef<[u8]>);
        set lease_ttl(ttl: Duration);
        set keep_result_for(time: Duration);
        set result_max(bytes: usize);
        set wait(wait: Duration);
        set on_failure(what: OnFailure);
        set label(label: impl Into<String>);
        get store_key() -> Result<Name>;
        end at_most_once() -> AtMostOnce;
        wait get() -> Option<Record>;
        wait remove() -> bool;
    }
}

impl IdempotencyKey {
    /// As [`crate::IdempotencyKey::begin`]; `unsupported` in async code.
    pub fn begin<T: DeserializeOwned>(self) -> Result<Begun<T>> {
        Ok(wait(self.inner.begin::<T>())??.map(Execution::new))
    }

    /// Executes `body` unless it was executed before, and stores its result. Nothing can cancel the body: a long one asks
    /// [`Lease::is_held`] before each step. The outcome of one that ends after its lease says whether it
    /// counts or was fenced off.
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

    mirror! { crate::idempotency::Execution:
        #[doc = "In async code the execution is given back."]
        end fail(why: impl fmt::Display) -> Settled;
    }

    lease_methods! {}
}

impl<T: Serialize> Execution<T> {
    mirror! { crate::idempotency::Execution:
        #[doc = "In async code the execution is given back."]
        end complete(result: &T) -> Settled;
    }
}
