//! Records and marks of a store, for people.

use crate::{
    client::Client,
    config::between,
    engine::{Cursor, Listing, Page, records::Record},
    error::Result,
};

impl Client {
    /// One page of the records and marks whose key begins with `prefix`, in the order of the store. A page may be short or empty
    /// although more follow; the last one has no `next`. What is there from the first page to the last is on exactly one of
    /// them, as long as the cursors stay in this process. Other programs' keys with that prefix are listed as corrupt.
    ///
    /// # Errors
    /// `unsupported` for a store without records; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let leases = leasehold::Leasehold::connect("memory:").await?;
    /// assert!(leases.idempotency("payout").key(42).at_most_once().await?.is_first());
    /// let page = leases.records_page("idempotency:payout:", None, 100).await?;
    /// assert_eq!(page.items[0].key.as_str(), "idempotency:payout:42");
    /// # leases.close().await
    /// # }
    /// ```
    pub async fn records_page(&self, prefix: &str, from: Option<Cursor>, limit: u32) -> Result<Page<Record>> {
        self.core.check_open()?;
        between("page size", limit, 1, 10_000)?;
        let (listing, until) = (Listing::at(from), self.core.command_until());
        let page = self.core.records()?.scan(prefix, listing.from(), limit, until).await;
        let doing = format!("listing the records \"{prefix}\"");
        let page = page.map_err(|error| self.core.explain_doing(error, doing, None))?;
        Ok(listing.page(page, limit, |record| record.key.as_str()))
    }
}
