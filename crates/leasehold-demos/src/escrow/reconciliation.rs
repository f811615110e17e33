//! The reconciler: one instance compares accounts with entries, again and again, until it dies.
//!
//! It holds its lock far longer than the ttl, so the lock is kept alive. The ttl is short, so that another instance takes
//! over soon after it dies.

use std::time::Duration;

use super::{books::Books, keys};
use crate::{Result, database::number, protection::Protection};

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
                let _ended = pass.while_held(self.reconcile_again_and_again(pass.fence())).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn reconcile_again_and_again(&self, fence: i64) -> Result<()> {
        let run = rand::random();
        while self.reconcile(run, fence)? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Compares everything at one moment; false if a later reconciler is at work.
    fn reconcile(&self, run: u32, fence: i64) -> Result<bool> {
        let mut database = self.books.database();
        let moment = database.transaction()?;
        let came_in = number(&moment, "select sum(amount) from entries where kind = 'deposit'")?;
        let there =
            number(&moment, "select (select sum(balance) from accounts) + (select sum(escrow) from deals)")?;
        let wrong = number(&moment, WRONG_ACCOUNTS)?;
        drop(moment);
        let written = database.execute(
            "insert into reconciliations (run, by, fence, difference, wrong)
             select ?1, ?2, ?3, ?4, ?5 where not exists (select 1 from reconciliations where fence > ?3)",
            (run, self.books.by(), fence, came_in.abs_diff(there), wrong),
        )?;
        Ok(written > 0)
    }
}

/// How many accounts have another balance than their entries add up to.
pub(super) const WRONG_ACCOUNTS: &str = "select count(*) from accounts where balance <>
    (select coalesce(sum(amount), 0) from entries where entries.account = accounts.id)";
