//! What every store of Leasehold keeps to, and what is built on it.
//!
//! [`engine`] is the contract of a store. [`lock`], [`lease`], [`idempotency`], [`marker`], [`latch`] and [`deadlines`] are the same for
//! all stores. [`engine::memory`] is the store inside one process. No driver, no URL and no file format is known here.
//!
//! Applications add `leasehold`. This crate is for those who write a store, together with `leasehold-testkit`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
pub mod client;
pub mod clock;
pub mod config;
mod core;
pub mod deadlines;
pub mod decide;
pub mod election;
pub mod engine;
mod entropy;
pub mod error;
pub mod fence;
mod forced;
pub mod idempotency;
pub mod latch;
pub mod lease;
pub mod lock;
pub mod marker;
pub mod name;
pub mod owner;
mod process;
mod record;
pub mod telemetry;
pub mod template;
pub mod text;

pub use client::{Client, Members};
pub use clock::{BootInstant, Clock};
pub use deadlines::{Deadline, Deadlines, Due, Placement, Recovery};
pub use election::{Election, Leadership};
pub use engine::{Acks, Format, Health, Inspection, Mode, Released};
pub use error::{Error, ErrorKind, Refusal, Result};
pub use fence::Fence;
pub use idempotency::{Idempotency, IdempotencyKey};
pub use latch::{Barrier, Latch, Participant, Party};
pub use lease::{Guard, GuardSet, Handle, Lease, LeaseSet, ReleasedSet, Upgrade};
pub use lock::{
    Attempt, Lock, LockOwner, LockSet, OnOutage, Protection, ReentrantGuard, ReentrantLock, Retry, RunError,
    Waited,
};
pub use marker::{Marker, MarkerGuard};
pub use name::Name;
pub use owner::Holder;
pub use telemetry::{Event, Histogram, Observer, Stats};
