//! Starts transactions. Some complete in time, a few at the last moment, some never.

use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::Deadline;
use rusqlite::Connection;
use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::{Order, RATE, TIMEOUT, TRANSACTIONS, now_us, pool};
use crate::{Result, protection::Timeouts, worker::Worker};

/// Transactions that begin together.
const BATCH: usize = 50;
const AGAIN: Duration = Duration::from_millis(50);

struct Payments {
    database: Mutex<Connection>,
    timeouts: Timeouts,
}

pub(super) async fn pay(worker: Worker) -> Result<()> {
    let protection = worker.protection().await?;
    let database = worker.database()?;
    let timeouts = protection.timeouts(&worker, &pool(&worker))?;
    let payments = Arc::new(Payments { database: Mutex::new(database), timeouts });
    let numbers: Vec<_> = (0..worker.options.scaled(TRANSACTIONS)).collect();
    let mut completing = JoinSet::new();
    // Late batches follow at once: the rate stays what it is.
    let mut pace = tokio::time::interval(Duration::from_millis(1000 * BATCH as u64 / RATE));
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for batch in numbers.chunks(BATCH) {
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
    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(&self, batch: &[u64]) -> Result<()> {
        let deadlines = self.write_down(batch)?;
        // Setting it again replaces the deadline.
        while let Err(error) = self.timeouts.set(&deadlines).await {
            pause(error).await;
        }
        Ok(())
    }

    fn write_down(&self, batch: &[u64]) -> Result<Vec<Deadline>> {
        let mut database = self.database();
        let change = database.transaction()?;
        let mut deadlines = Vec::new();
        for number in batch {
            let (id, order) = (id(*number), order(*number));
            let due_us = now_us() + TIMEOUT.as_micros() as i64;
            change.execute(
                "insert into transactions (id, account, euros, state, fence, due_us) values (?, ?, ?, 'open', 0, ?)",
                (&id, order.account, order.euros, due_us),
            )?;
            deadlines.push(Deadline::new(id, TIMEOUT).json(&order)?);
        }
        change.commit()?;
        Ok(deadlines)
    }

    /// The database decides: a refunded transaction cannot complete, and a completed one cannot be refunded.
    async fn complete(&self, number: u64) -> Result<()> {
        let id = id(number);
        let sql = "update transactions set state = 'completed' where id = ? and state = 'open'";
        if self.database().execute(sql, [&id])? == 0 {
            return Ok(());
        }
        while let Err(error) = self.timeouts.cancel(&id).await {
            pause(error).await;
        }
        let sql = "update transactions set cancelled_us = ? where id = ?";
        self.database().execute(sql, (now_us(), &id))?;
        Ok(())
    }
}

/// The store may be unreachable for a while: keep trying.
async fn pause(error: Box<dyn std::error::Error + Send + Sync>) {
    let _nobody_reads = writeln!(std::io::stderr(), "{error}");
    tokio::time::sleep(AGAIN).await;
}
