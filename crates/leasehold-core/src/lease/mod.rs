//! Leases: how long one can be trusted, what keeps it alive, and the guard that its holder has.

mod attach;
mod convert;
mod extend_all;
mod guard;
mod hand_to;
mod handle;
mod keeper;
mod reaper;
mod set;
mod state;
pub mod validity;

pub use attach::Attach;
pub use convert::Upgrade;
pub use guard::{Guard, Lease};
pub(crate) use guard::{Terms, lease_methods};
pub use handle::Handle;
pub(crate) use keeper::Keeper;
pub(crate) use reaper::{Cleanup, Reaper};
pub(crate) use set::give_back;
pub use set::{GuardSet, LeaseSet, ReleasedSet};
pub(crate) use state::Bond;
