//! Locks that tell the truth: leases with fencing tokens on memory, SQLite, Redis and etcd.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let leases = leasehold::Leasehold::connect("memory:").await?;
//! let answer = leases.lock("deal:42").run(async |lease| {
//!     // Cancelled the moment the lease can no longer be trusted; every write carries `lease.fence()`.
//!     lease.fence()
//! });
//! assert!(answer.await?.get() > 0);
//! # leases.close().await
//! # }
//! ```
//!
//! # Which one do I need?
//!
//! | you want | use |
//! |---|---|
//! | to run something while nobody else does | [`Lock::run`] |
//! | to hold a lock across several steps | [`Lock::acquire`] with [`Lock::keep_alive`], then [`Guard::release`] |
//! | to skip it when another holder is working on it | [`Lock::try_acquire`] |
//! | many readers, or one writer | [`Client::read_lock`] and [`write_lock`](Client::write_lock) |
//! | at most N at a time, on all hosts | [`Client::semaphore`] |
//! | once per interval across a fleet | [`Lock::try_acquire`] with [`Lock::hold_at_least`] |
//! | several locks at once, or none of them | [`Leasehold::lock_all`](Client::lock_all) |
//! | to acquire a lock again that the code around holds already | [`Leasehold::owner`](Client::owner) |
//! | one leader of a fleet, known to all | [`Leasehold::election`](Client::election) |
//! | to go on when N others have done their part, or to be told who did not | [`Leasehold::latch`](Client::latch) |
//! | N workers that begin each phase together | [`Leasehold::barrier`](Client::barrier) |
//! | to go on without a lock when the store is down, knowingly | [`Lock::acquire_or_proceed`] |
//! | a lock that a later process gives back | [`Guard::detach`], [`Client::attach`] |
//! | to execute a request once and give everybody its result | [`Leasehold::idempotency`](Client::idempotency) |
//! | to skip a request that was seen before, also after a crash | [`IdempotencyKey::at_most_once`] |
//! | to show others that something is in progress | [`Leasehold::marker`](Client::marker) |
//! | names and ttls from a file, checked at start-up | `Leasehold::lock_policy`, with the feature `config` |
//! | to notice what should have ended by now, also after a crash | [`Leasehold::deadlines`](Client::deadlines) |
//! | locks and idempotency keys without `async` | the feature `blocking` |
//! | to see who holds what, or to end it | [`Client::inspect`], [`Client::list`], [`Client::force_release`] |
//!
//! The pages of [`lock`], [`latch`], [`idempotency`], [`marker`] and [`deadlines`] explain each of them; `examples/` has a program for each
//! row.
//!
//! # What dropping does
//!
//! Every async method says what dropping its future does. In short: a dropped `acquire` ends its attempt in the
//! background; a dropped guard gives the lock back in the background; [`Leasehold::close`](Client::close) waits for both.
//!
//! # Logs
//!
//! The library logs through `tracing`, in the spans `acquire`, `hold` (the body of [`Lock::run`]) and `release`:
//!
//! - `debug`: a lock was acquired or released, or an attempt waits;
//! - `warn`: a lock was lost, or was no longer held when it was released; a connection broke; a lock was held for more than half
//!   of a fixed ttl; the handler of a deadline failed;
//! - `error`: the store failed; a deadline was buried; the first failure of an outage in a recovery loop.
//!
//! Fields: `name`, `fence`, `mode` (`exclusive`, `shared` or `permits`), `policy`, `held`, `waited`, `outcome`, `kind`, `error`; `pool`, `id`, `attempt`, `why`. Owner values and
//! passwords are never logged.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "json")]
pub mod audit;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod config;
mod connect;
pub mod engine;
mod leasehold;
#[cfg(feature = "config")]
pub mod policy;

pub use config::Config;
#[cfg(feature = "config")]
pub use config::Settings;
pub use leasehold::{Builder, Leasehold};
use leasehold_core::text;
#[doc(inline)]
pub use leasehold_core::{
    Acks, Attempt, Barrier, Client, Clock, Deadline, Deadlines, Due, Election, Error, ErrorKind, Event,
    Fence, Format, Guard, GuardSet, Handle, Health, Holder, Idempotency, IdempotencyKey, Inspection, Latch,
    Leadership, Lease, LeaseSet, Lock, LockOwner, LockSet, Marker, MarkerGuard, Mode, Name, Observer,
    OnOutage, Participant, Party, Protection, ReentrantGuard, ReentrantLock, Refusal, Released, ReleasedSet,
    Result, Retry, RunError, Stats, Upgrade, client, clock, deadlines, election, error, fence, idempotency,
    latch, lease, lock, marker, name, owner, telemetry,
};
#[cfg(feature = "config")]
pub use policy::Policies;

/// The examples of the README and of the guides, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/deadlines.md")]
pub struct Readme;
