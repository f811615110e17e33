//! One of the pods that refund timed-out transactions.

use std::{sync::Arc, time::Duration};

use leasehold::{Leasehold, deadlines::Scans};
use rusqlite::OptionalExtension;

use super::{Order, now_us, pool, scan_lock};
use crate::{
    Result,
    protection::{Late, Plan},
    worker::Worker,
    writer::Writer,
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
    writer: Writer,
}

/// An attempt to refund a transaction. It also ends when its handler is cut off, but not when the pod is killed.
struct Attempt<'a> {
    pod: &'a Pod,
    row: i64,
    is_open: bool,
    has_ended: bool,
}

pub(super) async fn recover(worker: Worker) -> Result<()> {
    let protection = worker.protection().await?;
    let timeouts = protection.timeouts(&worker, &pool(&worker))?;
    let pod = Arc::new(Pod { name: worker.name(), writer: Writer::start(worker.database()?) });
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
    let name = pod.name.clone();
    let sql = "insert into scans (pod, life, done, skipped) values (?, ?, 0, 0)";
    pod.writer.write(move |change| change.execute(sql, (name, life))).await?;
    loop {
        tokio::time::sleep(NOTE_EVERY).await;
        let (stats, name) = (leases.stats(), pod.name.clone());
        let noted = pod.writer.write(move |change| {
            let sql = "update scans set done = ?, skipped = ? where pod = ? and life = ?";
            change.execute(sql, (stats.recovery_scans, stats.recovery_skipped, name, life))
        });
        noted.await?;
    }
}

impl Pod {
    async fn refund_late(&self, late: Late) -> Result<()> {
        let order: Order = late.context()?;
        let attempt = self.begin(&late).await?;
        // Before the store is told how it went: from then on another pod may begin.
        let (outcome, result) = match self.ask_and_refund(&attempt, &late, &order).await {
            Ok(outcome) => (outcome, Ok(())),
            Err(error) => ("refused", Err(error)),
        };
        attempt.end(outcome).await?;
        result
    }

    async fn ask_and_refund(
        &self,
        attempt: &Attempt<'_>,
        late: &Late,
        order: &Order,
    ) -> Result<&'static str> {
        if !attempt.is_open {
            // A pod refunded it and died before it acknowledged, or it completed at the last moment.
            return Ok("nothing to do");
        }
        ask_bank(order, late.attempt).await?;
        Ok(if self.refund(late, order).await? { "refunded" } else { "too late" })
    }

    /// Reads the transaction and raises its fence: earlier holders can no longer write.
    async fn begin(&self, late: &Late) -> Result<Attempt<'_>> {
        let began_us = now_us();
        let hidden_until_us = began_us + late.hidden_for.as_micros() as i64;
        let claimed_us = hidden_until_us - VISIBILITY.as_micros() as i64;
        let (name, id, number, fence) = (self.name.clone(), late.id.clone(), late.attempt, late.fence);
        let begun = self.writer.write(move |change| {
            let sql = "update transactions set fence = max(fence, ?) where id = ?";
            change.prepare_cached(sql)?.execute((fence, &id))?;
            let sql = "select state = 'open' from transactions where id = ?";
            let is_open = change.prepare_cached(sql)?.query_row([&id], |row| row.get(0)).optional()?;
            change
                .prepare_cached(
                    "insert into attempts (tx, pod, attempt, claimed_us, hidden_until_us, began_us)
                     values (?, ?, ?, ?, ?, ?)",
                )?
                .execute((&id, name, number, claimed_us, hidden_until_us, began_us))?;
            Ok((change.last_insert_rowid(), is_open.unwrap_or(false)))
        });
        let (row, is_open) = begun.await?;
        Ok(Attempt { pod: self, row, is_open, has_ended: false })
    }

    /// False if it was completed meanwhile, or belongs to another pod by now.
    async fn refund(&self, late: &Late, order: &Order) -> Result<bool> {
        let (name, id, fence, euros) = (self.name.clone(), late.id.clone(), late.fence, order.euros);
        let refunded = self.writer.write(move |change| {
            let sql = "update transactions set state = 'refunded'
                       where id = ? and fence <= ? and state <> 'completed'";
            if change.prepare_cached(sql)?.execute((&id, fence))? == 0 {
                return Ok(false);
            }
            let sql = "insert into refunds (tx, pod, euros, at_us) values (?, ?, ?, ?)";
            change.prepare_cached(sql)?.execute((&id, name, euros, now_us()))?;
            Ok(true)
        });
        refunded.await
    }
}

const END: &str = "update attempts set ended_us = ?, outcome = ? where id = ?";

impl Attempt<'_> {
    async fn end(mut self, outcome: &'static str) -> Result<()> {
        let (ended_us, row) = (now_us(), self.row);
        let ended = self
            .pod
            .writer
            .write(move |change| change.prepare_cached(END)?.execute((ended_us, outcome, row)));
        ended.await?;
        self.has_ended = true;
        Ok(())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let (ended_us, row) = (now_us(), self.row);
            let ended =
                self.pod.writer.write_blocking(move |change| change.execute(END, (ended_us, "failed", row)));
            let _judged_as_unended = ended;
        }
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
