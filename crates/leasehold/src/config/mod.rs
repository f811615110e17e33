//! Settings and where they come from.
//!
//! A setting in code wins over a `LEASEHOLD_*` variable, that over the files called `leasehold.toml`, those over the variables
//! `LOCK_TTL` and `REDIS_*` that other libraries use, and those over the default. Files and variables need the feature `config`.

#[cfg(feature = "config")]
mod default_store;
#[cfg(feature = "config")]
pub(crate) mod file;
#[cfg(feature = "config")]
mod redis_variables;
#[cfg(feature = "config")]
pub(crate) mod settings;
#[cfg(feature = "config")]
mod sources;

#[cfg(feature = "config")]
pub use file::parse_duration;
pub use leasehold_core::config::{Config, WAIT_MAX};
#[cfg(feature = "config")]
pub use settings::{ChosenBy, Settings};
#[cfg(feature = "config")]
pub use sources::{Environment, Sources};
