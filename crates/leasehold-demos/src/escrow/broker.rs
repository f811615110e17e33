//! The message broker, which is a table: at least once, never lost, sometimes twice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension};

use crate::Result;

/// A message that was taken and not settled is delivered again after this time.
const VISIBLE_AGAIN: Duration = Duration::from_secs(1);
/// The same, for a message that was given back.
const REQUEUED: Duration = Duration::from_millis(40);

/// A message, as its sender wrote it.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) id: u64,
    pub(super) kind: String,
    pub(super) deal: u64,
    /// Of a deposit: the bank's number of it.
    pub(super) tx_hash: String,
    /// Of an order: the fence of the lock under which it was given.
    pub(super) fence: i64,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It had been done before.
    Again,
    /// A later order had been given.
    Stale,
    /// Not now: deliver it again.
    Requeue,
}

pub(super) fn send(broker: &Connection, kind: &str, deal: u64, tx_hash: &str, fence: i64) -> Result<()> {
    let sql = "insert into messages (kind, deal, tx_hash, fence) values (?, ?, ?, ?)";
    broker.execute(sql, (kind, deal, tx_hash, fence))?;
    Ok(())
}

/// Takes the next message, if there is one, and hides it from others for a while.
pub(super) fn take(broker: &Connection) -> Result<Option<Message>> {
    let now = now_ms()?;
    let next =
        "select id from messages where outcome is null and visible_ms <= ?1 order by visible_ms, id limit 1";
    // A read first: writers wait for each other, and most of the time there is no message.
    if broker.query_row(next, [now], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let sql = format!(
        "update messages set visible_ms = ?2, deliveries = deliveries + 1 where id = ({next})
         returning id, kind, deal, tx_hash, fence"
    );
    let message = |row: &rusqlite::Row<'_>| {
        Ok(Message {
            id: row.get(0)?,
            kind: row.get(1)?,
            deal: row.get(2)?,
            tx_hash: row.get(3)?,
            fence: row.get(4)?,
        })
    };
    Ok(broker.query_row(&sql, (now, now + VISIBLE_AGAIN.as_millis() as i64), message).optional()?)
}

/// Records the outcome of a message.
pub(super) fn settle(broker: &Connection, message: u64, outcome: Outcome) -> Result<()> {
    let word = match outcome {
        Outcome::Done => "done",
        Outcome::Again => "again",
        Outcome::Stale => "stale",
        Outcome::Requeue => {
            let visible = now_ms()? + REQUEUED.as_millis() as i64;
            broker.execute("update messages set visible_ms = ? where id = ?", (visible, message))?;
            return Ok(());
        }
    };
    broker.execute("update messages set outcome = ? where id = ?", (word, message))?;
    Ok(())
}

fn now_ms() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}
