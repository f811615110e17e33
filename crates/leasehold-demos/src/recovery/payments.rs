//! Starts transactions. Some complete in time, a few at the last moment, some never.

use std::{io::Write, sync::Arc, time::Duration};

use leasehold::Deadline;
use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::{BATCH, Order, RATE, TIMEOUT, TRANSACTIONS, now_us, pool};
use crate::{Result, protection::Timeouts, worker::Worker, writer::Writer};

const AGAIN: Duration = Duration::from_millis(50);

struct Payments {
    writer: Writer,
    timeouts: Timeouts,
}

pub(super) async fn pay(worker: Worker) -> Result<()> {
    let protection = worker.protection().await?;
    let timeouts = protection.timeouts(&worker, &pool(&worker))?;
    let payments = Arc::new(Payments { writer: Writer::start(worker.database()?), timeouts });
    let numbers: Vec<_> = (0..worker.options.scaled(TRANSACTIONS)).collect();
    let mut completing = JoinSet::new();
    // Late batches follow at once: the rate stays what it is.
    let mut pace = tokio::time::interval(Duration::from_millis(1000 * BATCH / RATE));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for batch in numbers.chunks(BATCH as usize) {
        pace.tick().await;
        payments.begin(batch).await?;
        for number in batch {
            if let Some(after) = completes_after(*number) {
                let (payments, number) = (payments.clone(), *number);
                completing.spawn(async move {
                    tokio::time::sleep(after).await;
                    payments.complete(number).await
                });
            }
        }
    }
    while let Some(completed) = completing.join_next().await {
        completed??;
    }
    Ok(())
}

/// When a transaction completes, if it ever does.
fn completes_after(number: u64) -> Option<Duration> {
    match number % 10 {
        // About when a pod finds that it is due.
        5 => Some(TIMEOUT * 5 / 4),
        early @ 0..5 => Some(TIMEOUT * (1 + early as u32) / 12),
        _ => None,
    }
}

fn order(number: u64) -> Order {
    let bank_refuses = match number % 10 {
        8 => 1,
        9 => 2,
        _ => 0,
    };
    Order { account: number % 97, euros: 1 + number % 500, bank_refuses }
}

fn id(number: u64) -> String {
    format!("tx:{number}")
}

impl Payments {
    async fn begin(&self, batch: &[u64]) -> Result<()> {
        let orders: Vec<_> = batch.iter().map(|number| (id(*number), order(*number))).collect();
        let deadlines = orders.iter().map(|(id, order)| Deadline::new(id.clone(), TIMEOUT).json(order));
        let deadlines: Vec<_> = deadlines.collect::<leasehold::Result<_>>()?;
        let due_us = now_us() + TIMEOUT.as_micros() as i64;
        let write_down = self.writer.write(move |change| {
            let mut insert = change.prepare_cached(
                "insert into transactions (id, account, euros, state, fence, due_us)
                 values (?, ?, ?, 'open', 0, ?)",
            )?;
            for (id, order) in orders {
                insert.execute((id, order.account, order.euros, due_us))?;
            }
            Ok(())
        });
        write_down.await?;
        // Setting it again replaces the deadline.
        while let Err(error) = self.timeouts.set(&deadlines).await {
            pause(error).await;
        }
        Ok(())
    }

    /// The database decides: a refunded transaction cannot complete, and a completed one cannot be refunded.
    async fn complete(&self, number: u64) -> Result<()> {
        let id = id(number);
        let ours = id.clone();
        let completed = self.writer.write(move |change| {
            let sql = "update transactions set state = 'completed' where id = ? and state = 'open'";
            change.prepare_cached(sql)?.execute([ours])
        });
        if completed.await? == 0 {
            return Ok(());
        }
        while let Err(error) = self.timeouts.cancel(&id).await {
            pause(error).await;
        }
        let cancelled_us = now_us();
        let cancelled = self.writer.write(move |change| {
            let sql = "update transactions set cancelled_us = ? where id = ?";
            change.prepare_cached(sql)?.execute((cancelled_us, id))
        });
        cancelled.await.map(drop)
    }
}

/// The store may be unreachable for a while: keep trying.
async fn pause(error: Box<dyn std::error::Error + Send + Sync>) {
    let _nobody_reads = writeln!(std::io::stderr(), "{error}");
    tokio::time::sleep(AGAIN).await;
}
