//! The reconciler: one instance compares accounts with entries, again and again, until it dies.
//!
//! It holds its lock far longer than the ttl, so the lock is kept alive. The ttl is short, so that another instance takes
//! over soon after it dies.

use std::time::Duration;

use super::{books::Books, database::values, keys};
use crate::{
    Result,
    protection::{Held, Protection},
};

const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Reconciler {
    pub(super) books: Books,
    pub(super) protection: Protection,
}

impl Reconciler {
    pub(super) async fn work(self) {
        loop {
            let lock = self.protection.lock(|leases| keys::lock(leases, "reconciliation", None));
            if let Ok(pass) = lock.await {
                // Ends when the lock is lost, or when the database has a later reconciler.
                let _ended = pass.while_held(self.reconcile_again_and_again(pass.held())).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn reconcile_again_and_again(&self, held: Held) -> Result<()> {
        let run = rand::random();
        while self.reconcile(run, &held)? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Compares everything at one moment, which is that of the statement; false if a later reconciler is at work.
    fn reconcile(&self, run: u32, held: &Held) -> Result<bool> {
        let sql = format!(
            "insert into reconciliations (run, by, fence, difference, wrong)
             select ?1, ?2, ?3, abs(({CAME_IN}) - ({THERE})), ({WRONG_ACCOUNTS})
             where not exists (select 1 from reconciliations where fence > ?3)"
        );
        let values = values![u64::from(run), self.books.by(), held.fence];
        let written = self.books.database().transaction(&[held], |change| change.execute(&sql, &values))?;
        Ok(written > 0)
    }
}

const CAME_IN: &str = "select coalesce(sum(amount), 0) from entries where kind = 'deposit'";

/// The money in accounts and escrow.
pub(super) const THERE: &str = "select (select sum(balance) from accounts) + (select sum(escrow) from deals)";

/// How many accounts have another balance than their entries add up to.
pub(super) const WRONG_ACCOUNTS: &str = "select count(*) from accounts where balance <>
    (select coalesce(sum(amount), 0) from entries where entries.account = accounts.id)";
