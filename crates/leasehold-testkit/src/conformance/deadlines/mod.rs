//! Deadlines: they outlive the client that set them. All through the engine contract.

mod claiming;
mod dead;
mod receipts;
mod setting;
mod standing;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use leasehold::engine::deadlines::{
    Batch, Dead, Deadline, DeadlineId, Delivery, DueTime, Placement, Pool, PoolLayout, PoolStats, Receipt,
    Settle,
};

use super::{Case, context::ms, engine_client::EngineClient, eventually};

/// Hidden for longer than any case lasts.
const HIDDEN: Duration = Duration::from_secs(600);
/// Due now.
const NOW: DueTime = DueTime::In(Duration::ZERO);
/// Not due while a case lasts.
const LATER: DueTime = DueTime::In(Duration::from_secs(600));

pub(super) fn cases() -> Vec<Case> {
    [claiming::CASES, receipts::CASES, setting::CASES, dead::CASES, standing::CASES].concat()
}

impl EngineClient {
    /// A new pool in this case's namespace.
    async fn pool(&self, name: &str, buckets: u16) -> Pool {
        let layout = PoolLayout { buckets, placement: Placement::Spread };
        let pool = Pool { name: self.name(name), layout };
        assert_eq!(self.deadlines().layout(&pool, self.until()).await.unwrap(), layout);
        pool
    }

    async fn set(&self, pool: &Pool, id: &str, due: DueTime) {
        self.set_all(pool, &[Deadline { id: id.into(), due, context: None }]).await;
    }

    async fn set_with(&self, pool: &Pool, id: &str, due: DueTime, context: &'static [u8]) {
        let context = Some(Bytes::from_static(context));
        self.set_all(pool, &[Deadline { id: id.into(), due, context }]).await;
    }

    async fn set_all(&self, pool: &Pool, deadlines: &[Deadline]) {
        self.deadlines().set(pool, deadlines, self.until()).await.unwrap();
    }

    async fn claim(&self, pool: &Pool, limit: u32, visibility: Duration) -> Batch {
        self.deadlines().claim_due(pool, limit, visibility, self.until()).await.unwrap()
    }

    /// Claims the only deadline that is due.
    async fn claim_one(&self, pool: &Pool, visibility: Duration) -> Delivery {
        let mut claimed = self.claim(pool, 100, visibility).await;
        assert_eq!((claimed.due.len(), claimed.more), (1, false), "{claimed:?}");
        claimed.due.remove(0)
    }

    /// Waits until the only deadline can be claimed, and claims it.
    async fn claim_when_due(&self, pool: &Pool, visibility: Duration) -> Delivery {
        let mut due = None;
        eventually("it becomes due", async || {
            due = self.claim(pool, 100, visibility).await.due.pop();
            due.is_some()
        })
        .await;
        due.expect("waited for")
    }

    async fn assert_nothing_due(&self, pool: &Pool) {
        assert_eq!(self.claim(pool, 100, HIDDEN).await, Batch::default());
    }

    async fn settle_one(&self, pool: &Pool, receipt: &Receipt, settle: Settle) -> bool {
        let settlements = [(receipt.clone(), settle)];
        self.deadlines().settle(pool, &settlements, self.until()).await.unwrap() == [true]
    }

    async fn acknowledge(&self, pool: &Pool, receipt: &Receipt) -> bool {
        self.settle_one(pool, receipt, Settle::Done).await
    }

    async fn postpone(&self, pool: &Pool, receipt: &Receipt, by: Duration) -> bool {
        self.settle_one(pool, receipt, Settle::Postpone(by)).await
    }

    async fn give_back(&self, pool: &Pool, receipt: &Receipt) -> bool {
        self.settle_one(pool, receipt, Settle::GiveBack).await
    }

    async fn bury(&self, pool: &Pool, receipt: &Receipt, why: &str) -> bool {
        self.settle_one(pool, receipt, Settle::Bury(why.into())).await
    }

    async fn cancel(&self, pool: &Pool, id: &str) -> bool {
        self.deadlines().cancel(pool, &[id.into()], self.until()).await.unwrap() == [true]
    }

    async fn stats(&self, pool: &Pool) -> PoolStats {
        self.deadlines().stats(pool, self.until()).await.unwrap()
    }

    /// All pages of dead deadlines.
    async fn dead(&self, pool: &Pool, page: u32) -> Vec<Dead> {
        let (mut found, mut from) = (Vec::<Dead>::new(), None);
        loop {
            let page = self.deadlines().dead(pool, from, page, self.until()).await.unwrap();
            // A store may return one twice if its table grows meanwhile.
            let known: BTreeSet<_> = found.iter().map(|dead| dead.id.clone()).collect();
            found.extend(page.items.into_iter().filter(|dead| !known.contains(&dead.id)));
            match page.next {
                Some(next) => from = Some(next),
                None => return found,
            }
        }
    }

    /// No use of the receipt has an effect.
    async fn assert_void(&self, pool: &Pool, receipt: &Receipt) {
        let before = self.stats(pool).await;
        assert!(!self.acknowledge(pool, receipt).await, "a void receipt was acknowledged");
        assert!(!self.postpone(pool, receipt, ms(0)).await, "a void receipt was postponed");
        assert!(!self.give_back(pool, receipt).await, "a void receipt was given back");
        assert!(!self.bury(pool, receipt, "void").await, "a void receipt was buried");
        let after = self.stats(pool).await;
        assert_eq!((after.pending, after.dead), (before.pending, before.dead));
    }
}

/// Deadlines `prefix0`, `prefix1` and so on, without context.
fn many(prefix: &str, count: usize, due: DueTime) -> Vec<Deadline> {
    (0..count).map(|number| Deadline { id: format!("{prefix}{number}").into(), due, context: None }).collect()
}

fn ids<'a>(due: impl IntoIterator<Item = &'a Delivery>) -> BTreeSet<DeadlineId> {
    due.into_iter().map(|due| Arc::clone(&due.receipt.id)).collect()
}
