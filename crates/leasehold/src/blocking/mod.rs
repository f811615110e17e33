//! The same API without `async`.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::blocking::Leasehold;
//!
//! let leases = Leasehold::connect("memory:")?;
//! let guard = leases.lock("deal:42").ttl(Duration::from_secs(30)).acquire()?;
//! println!("writing with fence {}", guard.fence());
//! assert!(guard.release()?.was_held());
//!
//! let total = leases.lock("reconciliation").run(|lease| {
//!     let mut total = 0;
//!     for account in 1..=3 {
//!         // Nothing can cancel a closure: it asks whether it may go on.
//!         if !lease.is_held() {
//!             break;
//!         }
//!         total += account;
//!     }
//!     total
//! })?;
//! assert_eq!(total, 6);
//! leases.close()?;
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! All clients of a process share one background thread, which renews leases and releases dropped locks while yours
//! is busy. Not for async code: there, calls that wait are refused as `unsupported`, because they would stop all other
//! tasks of that thread. That includes `spawn_blocking`; use [`crate::Leasehold`] there.

mod client;
mod election;
mod idempotency;
mod latch;
mod lock;
mod mirror;
mod reentrant;
mod set;

pub use client::Leasehold;
pub use election::{Election, Leaders, Leadership};
pub use idempotency::{Begun, Execution, Idempotency, IdempotencyKey};
pub use latch::{Barrier, Latch, Participant, Party};
pub use lock::{Attempt, Guard, Lease, Lock, Protection, Upgrade};
pub use reentrant::{LockOwner, ReentrantGuard, ReentrantLock};
pub use set::{GuardSet, LockSet};
