//! Deadlines: times by which work should have ended. They outlive the process that set them.
//!
//! A program sets a deadline before it starts the work, and cancels it afterwards. If the program dies, the deadline becomes
//! due, and a recovery loop claims it and finds out what became of the work.
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
//! - *At least once*: a deadline stays until a client acknowledges, cancels or buries it. Handlers must tolerate a second call.
//! - *Not twice at once*: a claim hides a deadline from all others for its *visibility*. A handler that takes longer may overlap
//!   with the next claim.
//! - *A late acknowledgement changes nothing*: settling a deadline takes the *receipt* of its claim, which is void once the
//!   deadline is claimed or set again.
//!
//! Times are the store's: the clocks of clients do not matter.

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
