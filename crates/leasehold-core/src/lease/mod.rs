//! Leases: how long one can be trusted, what keeps it alive, and the guard that its holder has.

mod guard;
mod handle;
mod keeper;
mod reaper;
mod state;
pub mod validity;

pub(crate) use guard::Terms;
pub use guard::{Guard, Lease};
pub use handle::Handle;
pub(crate) use keeper::Keeper;
pub(crate) use reaper::{Cleanup, Reaper};
