//! The poller of the outbox: sends the messages that transitions asked for. One instance polls at a time.
//!
//! A notification and the mark that it was sent are written together, for it stays in this database. Orders go to the
//! broker, which is another system: a poller that dies before it has marked an order leaves it to be sent again.

use std::time::Duration;

use futures_util::future::try_join_all;
use rusqlite::TransactionBehavior::Immediate;

use super::{books::Books, broker, keys};
use crate::{
    Result,
    protection::{Begun, Protection},
};

const BATCH: u64 = 32;
const REST: Duration = Duration::from_millis(40);

pub(super) struct Poller {
    pub(super) books: Books,
    pub(super) protection: Protection,
}

struct Row {
    id: u64,
    deal: u64,
    kind: String,
    text: String,
    fence: i64,
}

impl Poller {
    pub(super) async fn work(self) {
        loop {
            // An error is another poller at work, or an unreachable store: the rows stay where they are.
            if self.send_batch().await.unwrap_or(0) == 0 {
                tokio::time::sleep(REST).await;
            }
        }
    }

    fn unsent(&self, most: u64) -> Result<Vec<Row>> {
        let database = self.books.database();
        let mut rows = database
            .prepare("select id, deal, kind, text, fence from outbox where not sent order by id limit ?")?;
        let row = |row: &rusqlite::Row<'_>| {
            let (id, deal, kind) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Row { id, deal, kind, text: row.get(3)?, fence: row.get(4)? })
        };
        Ok(rows.query_map([most], row)?.collect::<Result<_, _>>()?)
    }

    /// Sends some rows; returns how many.
    async fn send_batch(&self) -> Result<usize> {
        // Most polls find nothing and need no lock.
        if self.unsent(1)?.is_empty() {
            return Ok(0);
        }
        let pass = self.protection.lock(|leases| keys::lock(leases, "outbox", None)).await?;
        let fence = pass.fence();
        // From here on no earlier poller can mark anything.
        self.check(&self.books.database(), fence)?;
        let rows = self.unsent(BATCH)?;
        let sent = try_join_all(rows.iter().map(|row| self.send(row, fence))).await?;
        pass.release().await?;
        Ok(sent.into_iter().filter(|sent| *sent).count())
    }

    /// False if a poller that died recently was sending it: try again later.
    async fn send(&self, row: &Row, fence: i64) -> Result<bool> {
        if row.kind != "notify" {
            broker::send(&self.books.database(), &row.kind, row.deal, "", row.fence)?;
            self.mark(row, fence, None)?;
            return Ok(true);
        }
        let id = ("outbox_id", row.id);
        match self.protection.begin(|leases| keys::request(leases, "notify", id)).await? {
            Begun::Yours(execution) => {
                self.mark(row, fence, Some(&row.text))?;
                execution.complete().await?;
            }
            Begun::Done => self.mark(row, fence, None)?,
            Begun::Busy => return Ok(false),
        }
        Ok(true)
    }

    /// Marks a row as sent, together with its notification.
    fn mark(&self, row: &Row, fence: i64, notification: Option<&str>) -> Result<()> {
        let mut database = self.books.database();
        let change = database.transaction_with_behavior(Immediate)?;
        self.check(&change, fence)?;
        if let Some(text) = notification {
            change.execute("insert into notifications (outbox_id, text) values (?, ?)", (row.id, text))?;
        }
        change.execute("update outbox set sent = 1 where id = ?", [row.id])?;
        Ok(change.commit()?)
    }

    /// Refuses a poller that is not the latest.
    fn check(&self, database: &rusqlite::Connection, fence: i64) -> Result<()> {
        match database.execute("update poller set fence = ?1 where fence <= ?1", [fence])? {
            0 => Err("there is a later poller".into()),
            _ => Ok(()),
        }
    }
}
