//! Deadlines: times by which something should have ended, that outlive the process that set them.
//!
//! A program that begins something sets a deadline; if it finishes, it cancels it. If it dies, the deadline becomes due,
//! and its claimer finds out what became of the work.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use std::time::Duration;
//! use leasehold::{Due, Leasehold};
//!
//! let leases = Leasehold::connect("memory:").await?;
//! let payments = leases.deadlines("payments");
//! payments.set_json("tx:42", Duration::from_secs(1800), &("EUR", 100)).await?;
//!
//! let recovery = payments
//!     .recover(async |due: Due| -> leasehold::Result<()> {
//!         let (currency, amount): (String, u64) = due.context_as()?.unwrap_or_default();
//!         println!("{} is late: {amount} {currency}", due.id());
//!         Ok(())
//!     })
//!     .every(Duration::from_secs(5))
//!     .start()
//!     .await?;
//!
//! payments.cancel("tx:42").await?; // it was finished in time
//! recovery.stop().await;
//! # leases.close().await
//! # }
//! ```
//!
//! # What is promised
//!
//! - *At least once*: a deadline is handled until somebody acknowledges, cancels or buries it. Handlers must bear being
//!   called again.
//! - *Not twice at once*: what was claimed is hidden from all others for its *visibility*. A claim that ends later than
//!   that may meet another one.
//! - *A late word changes nothing*: to settle a deadline takes the *receipt* of its claim, which is void once the deadline
//!   was claimed or set again.
//!
//! Times are the store's, so that the clocks of those who set and of those who claim do not matter.

mod bounds;
mod claim;
mod due;
mod pool;
mod recovery;

pub use crate::engine::deadlines::{
    BUCKETS_MAX, Dead, Deadline, DeadlineId, DueTime, Pending, Placement, PoolLayout, PoolStats, Receipt,
    Settle,
};
pub use bounds::{
    BUCKETS_DEFAULT, CONTEXT_BYTES_DEFAULT, CONTEXT_BYTES_MAX, DUE_MAX, ID_MAX_BYTES, ITEMS_MAX, LIMIT_MAX,
    POOL_NAME_MAX_BYTES, VISIBILITY_MAX, VISIBILITY_MIN,
};
pub use claim::ClaimDue;
pub use due::{Claimed, Due, SettleOutcome};
pub use pool::Deadlines;
pub use recovery::{Recover, Recovery, Scans};
