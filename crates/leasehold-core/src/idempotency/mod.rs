//! Idempotency keys: the same request is executed once, and every caller gets its result.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use leasehold::{Leasehold, idempotency::Idempotent};
//!
//! # async fn pay(_: u64) -> Result<String, String> { Ok("receipt 7".into()) }
//! let leases = Leasehold::connect("memory:").await?;
//! for again in [false, true] {
//!     let payout = leases.idempotency("payout").key(42).fingerprint(&("EUR", 100));
//!     match payout.run(async |_lease| pay(42).await).await? {
//!         Idempotent::Executed(receipt) => assert!(!again && receipt == "receipt 7"),
//!         Idempotent::Replayed(receipt) => assert!(again && receipt == "receipt 7"),
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # leases.close().await
//! # }
//! ```
//!
//! A key is in one of three states: *running*, which is a lease that is kept alive and has a fence; *completed*, with its
//! result, for a day by default; or *failed*, as [`OnFailure`] specifies. If an executor dies, its lease expires. The next caller
//! executes, and the earlier executor can no longer store a result. So the work itself may begin twice: pass the fence to the
//! resource that it writes to.
//!
//! | you want | use |
//! |---|---|
//! | the result, executed once | [`run`](IdempotencyKey::run) |
//! | the same across several steps | [`begin`](IdempotencyKey::begin), then [`Execution::complete`] or [`Execution::fail`] |
//! | the result of an execution in progress, or its work if it dies | [`wait`](IdempotencyKey::wait) with either |
//! | at most once, and nothing if it crashed | [`at_most_once`](IdempotencyKey::at_most_once) |
//! | to know that it is in progress, no more | a [`Marker`](crate::Marker) |
//! | one at a time, each of them executed | a [`Lock`](crate::Lock) |
//!
//! `run`, `begin` and `complete` store results as JSON and need the feature `json`. Without it results are bytes.

mod execution;
mod key;
mod list;
mod outcome;

pub use execution::Execution;
pub use key::{Idempotency, IdempotencyKey, RESULT_MAX_DEFAULT, RESULT_MAX_LIMIT};
pub use outcome::{AtMostOnce, Begun, Idempotent, OnFailure};

pub use crate::engine::records::{Content, Record, Settled, State, Stored};
