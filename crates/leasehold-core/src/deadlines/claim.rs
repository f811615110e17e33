//! Claiming what is due.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{
    bounds::{self, LIMIT_DEFAULT, VISIBILITY_DEFAULT},
    due::Claimed,
    pool::Deadlines,
};
use crate::{builder::setters, error::Result};

/// Builder of a claim; made by [`Deadlines::claim`]. Await it to claim.
///
/// # Cancel safety
/// Dropping the future may leave deadlines claimed: they come back after their visibility.
///
/// # Errors
/// `invalid` for a limit above 1,000 and a visibility that is not 100 ms to a day; see [`Deadlines`].
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed until it is awaited"]
pub struct ClaimDue {
    deadlines: Deadlines,
    limit: u32,
    visibility: Duration,
}

impl Deadlines {
    /// Claims what is due, oldest first within a bucket: nobody else can claim any of it for a while.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # let payments = leases.deadlines("payments");
    /// # payments.set("tx:42", Duration::ZERO).await?;
    /// for due in payments.claim().limit(10).visibility(Duration::from_secs(60)).await? {
    ///     println!("{} should have ended {:?} ago", due.id(), due.overdue());
    ///     due.acknowledge().await?;
    /// }
    /// # leases.close().await
    /// # }
    /// ```
    pub fn claim(&self) -> ClaimDue {
        ClaimDue { deadlines: self.clone(), limit: LIMIT_DEFAULT, visibility: VISIBILITY_DEFAULT }
    }
}

impl ClaimDue {
    setters! {
        /// The most to claim of each bucket. Default 100.
        limit(limit: u32) => limit;
        /// How long nobody else can claim it; what is not settled by then is due again, with one attempt more. Default 60 s.
        visibility(visibility: Duration) => visibility;
    }

    async fn send(self) -> Result<Claimed> {
        let Self { deadlines, limit, visibility } = self;
        bounds::check_claim(limit, visibility)?;
        let (_, pool) = deadlines.ready().await?;
        let claimed = deadlines.claim_quietly(limit, visibility).await;
        claimed.inspect_err(|error| deadlines.core().report(error, &pool.name))
    }
}

impl IntoFuture for ClaimDue {
    type Output = Result<Claimed>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
