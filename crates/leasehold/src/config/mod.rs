//! Settings and where they come from.
//!
//! A setting in code wins over a `LEASEHOLD_*` variable, that over the file `leasehold.toml`, that over the variables
//! `LOCK_TTL` and `REDIS_*` that other libraries use, and those over the default. Files and variables need the feature `config`.

#[cfg(feature = "config")]
mod environment;
#[cfg(feature = "config")]
mod file;
#[cfg(feature = "config")]
mod settings;

#[cfg(feature = "config")]
pub use file::parse_duration;
#[cfg(feature = "config")]
pub(crate) use file::{Document, acks, duration, written};
#[cfg(feature = "config")]
pub(crate) use leasehold_core::config::between;
pub use leasehold_core::config::{Config, WAIT_MAX};
#[cfg(feature = "config")]
pub(crate) use settings::replace;
#[cfg(feature = "config")]
pub use settings::{Settings, Sources};
