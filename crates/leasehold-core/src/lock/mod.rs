//! Locks: one holder at a time, or many readers, or some of a limited number of permits, for as long as a lease can be trusted.
//!
//! A [`Lock`] is a builder; nothing happens until it is acquired. Acquiring it returns a [`Guard`](crate::Guard): proof that
//! the lock is yours, its fence, and the only way to give it back.
//!
//! # Which call do I need?
//!
//! | you want | use |
//! |---|---|
//! | to run something while nobody else does | [`Lock::run`]: renewed while it runs, cancelled when the lock is lost |
//! | to hold the lock across several steps | [`Lock::acquire`] with [`Lock::keep_alive`], then [`Guard::release`](crate::Guard::release) |
//! | to skip it when another holder is working on it | [`Lock::try_acquire`] |
//! | once per interval across a fleet | [`Lock::try_acquire`] with [`Lock::hold_at_least`] |
//! | many readers, or one writer | [`Client::read_lock`](crate::Client::read_lock) and [`write_lock`](crate::Client::write_lock) |
//! | at most N at a time | [`Client::semaphore`](crate::Client::semaphore), with [`Lock::permits`] for several at once |
//! | several locks at once, or none of them | [`Client::lock_all`](crate::Client::lock_all) |
//! | to acquire a lock again that the code around holds already | [`Client::owner`](crate::Client::owner) |
//! | one leader of a fleet, known to all | [`election`](crate::election) |
//! | to go on without a lock when the store is down, knowingly | [`Lock::acquire_or_proceed`] |
//! | a lock that a later process gives back | [`Guard::detach`](crate::Guard::detach), [`Client::attach`](crate::Client::attach) |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! # use std::time::Duration;
//! let leases = leasehold::Leasehold::connect("memory:").await?;
//! let guard = leases.lock("deal:42").ttl(Duration::from_secs(30)).keep_alive().acquire().await?;
//! // Each write carries the fence, and the resource refuses a fence that is lower than the last one it saw.
//! println!("UPDATE deals SET state = 'paid', fence = {0} WHERE id = 42 AND fence <= {0}", guard.fence());
//! assert!(guard.release().await?.was_held());
//! # leases.close().await
//! # }
//! ```
//!
//! # How long is it mine?
//!
//! A lock in a shared store is a lease: it ends by itself, or a crashed holder would block everybody for ever.
//!
//! - *ttl* is how long the lease lasts, and so how long the lock stays closed after a crash.
//! - [`Lock::keep_alive`] renews it every third of that. [`Lock::run`] does so by itself; [`Lock::acquire`] does not, so that
//!   the lease of a leaked guard ends with its ttl.
//! - [`Guard::is_held`](crate::Guard::is_held) returns whether the lease can be trusted now, without asking the store.
//!   [`Guard::lost`](crate::Guard::lost) completes before the store could grant the lock to another holder.
//! - [`Released::was_held`](crate::Released::was_held) returns whether the lease could be trusted to the end. If not, another
//!   holder may have worked at the same time.
//!
//! A process can be paused between that check and the write that follows it. Only the fence helps then, and only where it
//! is checked: see [`fence`](crate::fence).
//!
//! # How do callers wait?
//!
//! They queue in the order of arrival. If the store can hand over, a release gives the lock to the first in the queue at once.
//! Otherwise, and whenever a message is lost, a waiting attempt polls as [`Retry`] specifies. [`Lock::wait`] and
//! [`Lock::max_attempts`] limit the waiting; [`Lock::on_wait`] shows who is ahead. A second acquire of
//! the same name waits for the first, and the error of its timeout says that this process itself holds the lock; a [`LockOwner`]
//! re-enters it.
//!
//! # What dropping does
//!
//! A dropped `acquire` leaves the queue, or releases a lock that was granted meanwhile. A dropped guard gives the lock back. Both
//! happen in the background, and [`Client::close`](crate::Client::close) waits for them. If the program ends first, the lease
//! ends with its ttl.

mod attempt;
mod builder;
mod kind;
mod outcome;
mod reentrant;
mod request;
mod retry;
mod run;
mod set;
mod waiting;

pub use builder::Lock;
pub(crate) use kind::Kind;
pub use outcome::{Attempt, OnOutage, Protection, Waited};
pub use reentrant::{LockOwner, ReentrantGuard, ReentrantLock, ReentrantRelease};
pub use retry::Retry;
pub(crate) use retry::pause_in_outage;
pub use run::{RunError, settle};
pub(crate) use run::{conclude, unless};
pub use set::{LOCKS_MAX, LockSet};
pub(crate) use waiting::Waiting;
