//! One of the pods that refund timed-out transactions.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{Leasehold, deadlines::Scans};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior::Immediate};

use super::{Order, now_us, pool, scan_lock};
use crate::{
    Result,
    protection::{Late, Plan},
    worker::Worker,
};

/// How long a transaction waits for another pod when the one that claimed it was killed.
const VISIBILITY: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(200);
/// Refunds that a pod asks the bank for at the same time.
const PARALLELISM: usize = 32;
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(400));
/// How often a pod stores its number of scans.
const NOTE_EVERY: Duration = Duration::from_millis(100);

struct Pod {
    name: String,
    database: Mutex<Connection>,
}

/// An attempt to refund a transaction. It ends when it is dropped, also by a timeout, but not if the pod is killed.
struct Attempt<'a> {
    pod: &'a Pod,
    row: i64,
    is_open: bool,
    outcome: &'static str,
}

pub(super) async fn recover(worker: Worker) -> Result<()> {
    let protection = worker.protection().await?;
    let timeouts = protection.timeouts(&worker, &pool(&worker))?;
    let pod = Arc::new(Pod { name: worker.name(), database: Mutex::new(worker.database()?) });
    if let Some(leases) = protection.leases() {
        tokio::spawn(note_scans(leases.clone(), pod.clone(), worker.life));
    }
    let scans = match worker.options.variant.as_deref() {
        Some("shared") => Scans::Shared,
        _ => Scans::SingleWinner,
    };
    let lock = protection.leases().map(scan_lock).transpose()?;
    let plan = Plan {
        every: EVERY,
        parallelism: PARALLELISM,
        visibility: VISIBILITY,
        backoff: BACKOFF,
        scans,
        lock,
    };
    let handler = move |late| {
        let pod = pod.clone();
        async move { pod.refund_late(late).await }
    };
    timeouts.recover(plan, handler).await
}

async fn note_scans(leases: Leasehold, pod: Arc<Pod>, life: u32) -> Result<()> {
    let sql = "insert into scans (pod, life, done, skipped) values (?, ?, 0, 0)";
    pod.database().execute(sql, (&pod.name, life))?;
    loop {
        tokio::time::sleep(NOTE_EVERY).await;
        let stats = leases.stats();
        pod.database().execute(
            "update scans set done = ?, skipped = ? where pod = ? and life = ?",
            (stats.recovery_scans, stats.recovery_skipped, &pod.name, life),
        )?;
    }
}

impl Pod {
    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn refund_late(&self, late: Late) -> Result<()> {
        let order: Order = late.context()?;
        let mut attempt = self.begin(&late)?;
        if !attempt.is_open {
            // A pod refunded it and died before it acknowledged, or it completed at the last moment.
            attempt.outcome = "nothing to do";
            return Ok(());
        }
        attempt.outcome = "refused";
        ask_bank(&order, late.attempt).await?;
        attempt.outcome = if self.refund(&late, &order)? { "refunded" } else { "too late" };
        Ok(())
    }

    /// Reads the transaction and raises its fence: earlier holders can no longer write.
    fn begin(&self, late: &Late) -> Result<Attempt<'_>> {
        let began_us = now_us();
        let hidden_until_us = began_us + late.hidden_for.as_micros() as i64;
        let claimed_us = hidden_until_us - VISIBILITY.as_micros() as i64;
        let mut database = self.database();
        let change = database.transaction_with_behavior(Immediate)?;
        change
            .execute("update transactions set fence = max(fence, ?) where id = ?", (late.fence, &late.id))?;
        let sql = "select state = 'open' from transactions where id = ?";
        let is_open = change.query_row(sql, [&late.id], |row| row.get(0)).optional()?;
        change.execute(
            "insert into attempts (tx, pod, attempt, claimed_us, hidden_until_us, began_us) values (?, ?, ?, ?, ?, ?)",
            (&late.id, &self.name, late.attempt, claimed_us, hidden_until_us, began_us),
        )?;
        let row = change.last_insert_rowid();
        change.commit()?;
        Ok(Attempt { pod: self, row, is_open: is_open.unwrap_or(false), outcome: "failed" })
    }

    /// False if it was completed meanwhile, or belongs to another pod by now.
    fn refund(&self, late: &Late, order: &Order) -> Result<bool> {
        let mut database = self.database();
        let change = database.transaction_with_behavior(Immediate)?;
        let ours = change.execute(
            "update transactions set state = 'refunded' where id = ? and fence <= ? and state <> 'completed'",
            (&late.id, late.fence),
        )?;
        if ours == 0 {
            return Ok(false);
        }
        change.execute(
            "insert into refunds (tx, pod, euros, at_us) values (?, ?, ?, ?)",
            (&late.id, &self.name, order.euros, now_us()),
        )?;
        change.commit()?;
        Ok(true)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let sql = "update attempts set ended_us = ?, outcome = ? where id = ?";
        let _judged_as_unended = self.pod.database().execute(sql, (now_us(), self.outcome, self.row));
    }
}

/// The bank is slow, and sometimes refuses.
async fn ask_bank(order: &Order, attempt: u32) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(10 + order.account % 10)).await;
    if attempt <= order.bank_refuses {
        return Err(format!("the bank refuses to refund account {} now", order.account).into());
    }
    Ok(())
}
