//! What the tests of deadlines share.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use leasehold::{
    engine::{
        Engine,
        deadlines::{
            Batch, Deadline, DeadlineId, Deadlines, Delivery, DueTime, Placement, Pool, PoolLayout,
            PoolStats, Receipt, Settle,
        },
    },
    name::Name,
};

pub(crate) use crate::every_server::{LONG, Servers, open, soon};

/// One pool, as a client of it sees it.
pub(crate) struct Client {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) pool: Pool,
}

impl Servers {
    pub(crate) fn client(&self, pool: &str, placement: Placement) -> Client {
        Client::open(self.url(), pool, placement)
    }
}

impl Client {
    pub(crate) fn open(url: impl AsRef<str>, pool: &str, placement: Placement) -> Self {
        let layout = PoolLayout { buckets: 16, placement };
        Self { engine: open(url), pool: Pool { name: Name::new(pool).unwrap(), layout } }
    }

    pub(crate) fn deadlines(&self) -> &dyn Deadlines {
        self.engine.deadlines().unwrap()
    }

    pub(crate) async fn set(&self, deadlines: &[Deadline]) {
        self.deadlines().set(&self.pool, deadlines, soon()).await.unwrap();
    }

    pub(crate) async fn claim(&self, limit: u32, visibility: Duration) -> Batch {
        self.deadlines().claim_due(&self.pool, limit, visibility, soon()).await.unwrap()
    }

    pub(crate) async fn acknowledge(&self, done: &[Receipt]) -> Vec<bool> {
        self.settle(done, Settle::Done).await
    }

    pub(crate) async fn settle(&self, receipts: &[Receipt], settle: Settle) -> Vec<bool> {
        let all: Vec<_> = receipts.iter().map(|receipt| (receipt.clone(), settle.clone())).collect();
        self.deadlines().settle(&self.pool, &all, soon()).await.unwrap()
    }

    pub(crate) async fn stats(&self) -> PoolStats {
        self.deadlines().stats(&self.pool, soon()).await.unwrap()
    }

    /// The key of the bucket of an id.
    pub(crate) fn key(&self, side: &str, id: &str) -> String {
        let (name, number) = (&self.pool.name, self.pool.bucket_of(id));
        match self.pool.layout.placement {
            Placement::Spread => format!("leasehold:{side}:{{{name}:{number}}}"),
            _ => format!("leasehold:{side}:{{{name}}}:{number}"),
        }
    }
}

/// Due for a second.
pub(crate) fn due(id: impl AsRef<str>) -> Deadline {
    Deadline { id: id.as_ref().into(), due: DueTime::AtMs(1_000), context: None }
}

pub(crate) fn later(id: impl AsRef<str>, after: Duration) -> Deadline {
    Deadline { id: id.as_ref().into(), due: DueTime::In(after), context: None }
}

pub(crate) fn with(deadline: Deadline, context: &'static [u8]) -> Deadline {
    Deadline { context: Some(Bytes::from_static(context)), ..deadline }
}

pub(crate) fn ids(due: &[Delivery]) -> BTreeSet<DeadlineId> {
    due.iter().map(|due| due.receipt.id.clone()).collect()
}

pub(crate) fn receipts(claimed: &Batch) -> Vec<Receipt> {
    claimed.due.iter().map(|due| due.receipt.clone()).collect()
}
