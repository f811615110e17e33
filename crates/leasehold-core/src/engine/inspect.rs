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
    /// Who waits, next first; at most [`WAITERS_SHOWN`].
    pub waiters: Vec<Waiter>,
    /// How many wait in all.
    pub waiting: u32,
}

impl Inspection {
    /// A name that nobody holds or waits for.
    pub fn unused(name: Name) -> Self {
        Self { name, holders: Holders::default(), limit: None, waiters: Vec::new(), waiting: 0 }
    }

    /// Who holds it, or the first of them.
    pub fn held(&self) -> Option<&Tenure> {
        self.holders.first()
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
