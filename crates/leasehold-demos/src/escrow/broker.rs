//! The message broker, which is a table: at least once, never lost, sometimes twice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::database::{Database, Statements, values};
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

pub(super) fn send(broker: &dyn Statements, kind: &str, deal: u64, tx_hash: &str, fence: i64) -> Result<()> {
    let sql = "insert into messages (kind, deal, tx_hash, fence) values (?1, ?2, ?3, ?4)";
    broker.execute(sql, &values![kind, deal, tx_hash, fence]).map(drop)
}

/// Takes the next message, if there is one, and hides it from others for a while.
pub(super) fn take(broker: &Database) -> Result<Option<Message>> {
    let now = now_ms()?;
    let next =
        "select id from messages where outcome is null and visible_ms <= ?1 order by visible_ms, id limit 1";
    // A read first: writers wait for each other, and most of the time there is no message.
    let Some(next) = broker.row(next, &values![now])? else { return Ok(None) };
    let sql = "update messages set visible_ms = ?3, deliveries = deliveries + 1
               where id = ?1 and outcome is null and visible_ms <= ?2 returning kind, deal, tx_hash, fence";
    let id = next.count(0)?;
    // Another cashier may have been faster.
    let Some(row) = broker.row(sql, &values![id, now, now + VISIBLE_AGAIN.as_millis() as i64])? else {
        return Ok(None);
    };
    let (kind, deal, tx_hash) = (row.text(0)?, row.count(1)?, row.text(2)?);
    Ok(Some(Message { id, kind, deal, tx_hash, fence: row.number(3)? }))
}

/// Records the outcome of a message.
pub(super) fn settle(broker: &Database, message: u64, outcome: Outcome) -> Result<()> {
    let word = match outcome {
        Outcome::Done => "done",
        Outcome::Again => "again",
        Outcome::Stale => "stale",
        Outcome::Requeue => {
            let visible = now_ms()? + REQUEUED.as_millis() as i64;
            let sql = "update messages set visible_ms = ?2 where id = ?1";
            return broker.execute(sql, &values![message, visible]).map(drop);
        }
    };
    broker.execute("update messages set outcome = ?2 where id = ?1", &values![message, word]).map(drop)
}

fn now_ms() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64)
}
