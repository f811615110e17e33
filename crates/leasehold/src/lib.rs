//! Locks that tell the truth.

pub mod clock;
pub mod engine;
pub mod error;
pub mod fence;
pub mod lease;
pub mod name;
pub mod owner;

pub use clock::{BootInstant, Clock};
pub use error::{Error, ErrorKind, Refusal, Result};
pub use fence::Fence;
pub use name::Name;
pub use owner::Holder;
