//! The poller of the outbox: sends the messages that transitions asked for. One instance polls at a time.
//!
//! A notification and the mark that it was sent are written together, for it stays in this database. Orders go to the
//! broker, which is another system: a poller that dies before it has marked an order leaves it to be sent again.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::{
    books::Books,
    broker,
    database::{Statements, values},
    keys,
};
use crate::{
    Result,
    protection::{Begun, Held, Protection},
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
        let sql = "select id, deal, kind, text, fence from outbox where sent = 0 order by id limit ?1";
        let rows = self.books.database().rows(sql, &values![most])?;
        let rows = rows.iter().map(|row| {
            let (id, deal, kind) = (row.count(0)?, row.count(1)?, row.text(2)?);
            Ok(Row { id, deal, kind, text: row.text(3)?, fence: row.number(4)? })
        });
        rows.collect()
    }

    /// Sends some rows; returns how many.
    async fn send_batch(&self) -> Result<usize> {
        // Most polls find nothing and need no lock.
        if self.unsent(1)?.is_empty() {
            return Ok(0);
        }
        let pass = self.protection.lock(|leases| keys::lock(leases, "outbox", None)).await?;
        let held = pass.held();
        // From here on no earlier poller can mark anything.
        check(self.books.database(), &held)?;
        let rows = self.unsent(BATCH)?;
        let sent = try_join_all(rows.iter().map(|row| self.send(row, &held))).await?;
        pass.release().await?;
        Ok(sent.into_iter().filter(|sent| *sent).count())
    }

    /// False if a poller that died recently was sending it: try again later.
    async fn send(&self, row: &Row, held: &Held) -> Result<bool> {
        if row.kind != "notify" {
            broker::send(self.books.database(), &row.kind, row.deal, "", row.fence)?;
            self.mark(row, held, None)?;
            return Ok(true);
        }
        let id = ("outbox_id", row.id);
        match self.protection.begin(|leases| keys::request(leases, "notify", id)).await? {
            Begun::Yours(execution) => {
                self.mark(row, held, Some(&row.text))?;
                execution.complete().await?;
            }
            Begun::Done => self.mark(row, held, None)?,
            Begun::Busy => return Ok(false),
        }
        Ok(true)
    }

    /// Marks a row as sent, together with its notification.
    fn mark(&self, row: &Row, held: &Held, notification: Option<&str>) -> Result<()> {
        self.books.database().transaction(&[held], |change| {
            check(change, held)?;
            if let Some(text) = notification {
                let sql = "insert into notifications (outbox_id, text) values (?1, ?2)";
                change.execute(sql, &values![row.id, text])?;
            }
            change.execute("update outbox set sent = 1 where id = ?1", &values![row.id]).map(drop)
        })
    }
}

/// Refuses a poller that is not the latest.
fn check(database: &dyn Statements, held: &Held) -> Result<()> {
    match database.open("poller", "id", 1, held)? {
        None => Err("there is a later poller".into()),
        Some(_) => Ok(()),
    }
}
