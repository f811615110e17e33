//! Locks that tell the truth.

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
pub mod clock;
pub mod config;
mod core;
pub mod engine;
pub mod error;
pub mod fence;
pub mod lease;
mod lock;
pub mod name;
pub mod owner;
pub mod policy;
mod telemetry;

pub use client::{Builder, Leasehold};
pub use clock::{BootInstant, Clock};
pub use config::{Config, Settings, WAIT_MAX};
pub use error::{Error, ErrorKind, Refusal, Result};
pub use fence::Fence;
pub use lease::{Guard, Handle, Lease};
pub use lock::{Attempt, Lock, OnOutage, Protection, Retry, RunError, Waited};
pub use name::Name;
pub use owner::Holder;
pub use policy::Policies;
pub use telemetry::{Event, Histogram, Observer, Stats};
