//! Locks.

mod attempt;
mod exclusive;
mod retry;
mod run;
mod waiting;

pub use exclusive::{Attempt, Lock, OnOutage, Protection, Waited};
pub use retry::Retry;
pub(crate) use retry::pause_in_outage;
pub use run::{RunError, settle};
pub(crate) use waiting::Waiting;
