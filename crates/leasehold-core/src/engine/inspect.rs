//! What people may see of locks.

use std::{num::NonZeroU32, time::Duration};

use super::{Changes, Cursor, Fut, Holders, Mode, Page, Watch, watch};
use crate::{clock::Until, fence::Fence, name::Name, owner::Holder};

/// What people may see of locks. Reads only.
pub trait Inspect: Send + Sync {
    /// Who holds it and who waits, in order.
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection>;

    /// Names that are held or waited for and begin with `prefix`, about `limit` at a time. A name that is held from the
    /// first page to the last must be on at least one of them. It may be on several: the client removes duplicates. A page
    /// may be empty although more follow. The cursor is [`Cursor::new`] of all that the next page needs to know.
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>>;

    /// Reports what changes. Unless the store can push changes, it polls.
    fn watch(&self, watch: Watch) -> Changes<'_> {
        watch::poll(self, watch)
    }
}

/// What is known about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The name.
    pub name: Name,
    /// Who holds it; at most [`HOLDERS_SHOWN`] are listed.
    pub holders: Holders,
    /// How many permits there are, if it is a semaphore.
    pub limit: Option<NonZeroU32>,
    /// How many permits all holders have together, also those that are not listed; see [`Inspection::permits_used`].
    pub permits_taken: u32,
    /// Who waits, next first; at most [`WAITERS_SHOWN`].
    pub waiters: Vec<Waiter>,
    /// How many wait in all.
    pub waiting: u32,
}

impl Inspection {
    /// A name that nobody holds or waits for.
    pub fn unused(name: Name) -> Self {
        Self {
            name,
            holders: Holders::default(),
            limit: None,
            permits_taken: 0,
            waiters: Vec::new(),
            waiting: 0,
        }
    }

    /// Who holds it, or the first of them.
    pub fn held(&self) -> Option<&Tenure> {
        self.holders.first()
    }

    /// How it is held: that of its holders, who all have the same but for the number of their permits. `None` if nobody
    /// holds it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let _reader = leases.read_lock("config").acquire().await?;
    /// assert_eq!(leases.inspect("config").await?.mode(), Some(leasehold::Mode::Shared));
    /// assert_eq!(leases.inspect("other").await?.mode(), None);
    /// # Ok(()) }
    /// ```
    pub fn mode(&self) -> Option<Mode> {
        self.held().map(|tenure| tenure.mode)
    }

    /// How many permits of a semaphore are in use; `None` if it is none. It can be more than the limit for a while after the
    /// limit was lowered.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let _two = leases.semaphore("gpu", 5).permits(2).acquire().await?;
    /// let _one = leases.semaphore("gpu", 5).acquire().await?;
    /// let seen = leases.inspect("gpu").await?;
    /// assert_eq!((seen.permits_used(), seen.permits_free()), (Some(3), Some(2)));
    /// for holder in &seen.holders.shown {
    ///     println!("{} has {}", holder.holder, holder.mode);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn permits_used(&self) -> Option<u32> {
        self.limit?;
        // An engine that lists all holders need not count them.
        let listed = self.holders.shown.iter().map(|tenure| tenure.mode.permits()).sum();
        Some(self.permits_taken.max(listed))
    }

    /// How many permits of a semaphore nobody has; `None` if it is none. Those who wait come first.
    pub fn permits_free(&self) -> Option<u32> {
        Some(self.limit?.get().saturating_sub(self.permits_used()?))
    }

    /// Whether anybody holds it or waits for it.
    pub fn is_in_use(&self) -> bool {
        self.holders.total > 0 || self.waiting > 0
    }
}

/// Most holders that an [`Inspection`] and an answer list.
pub const HOLDERS_SHOWN: usize = 100;
/// Most waiters an [`Inspection`] lists.
pub const WAITERS_SHOWN: u32 = 100;

/// Somebody holding a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Who.
    pub holder: Holder,
    /// Under which fence; zero for a holder of another library, which has none.
    pub fence: Fence,
    /// How.
    pub mode: Mode,
    /// Time until it runs out unless renewed; `None` if it never does (another library's doing).
    pub expires_in: Option<Duration>,
}

/// Somebody waiting for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Who.
    pub holder: Holder,
    /// For what.
    pub mode: Mode,
    /// For how long.
    pub waiting_for: Duration,
}
