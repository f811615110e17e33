//! Timeouts of transactions: deadlines of the store, each claimed by one pod at a time; or, with `--unsafe`, a plain table
//! from which every pod reads what is due.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{StreamExt, stream};
use leasehold::{
    Deadline, Deadlines, Due, Lock,
    deadlines::{DueTime, Scans},
};
use rusqlite::Connection;
use serde::de::DeserializeOwned;

use super::Protection;
use crate::{Result, worker::Worker};

/// For the table that stands in for claims with `--unsafe`.
pub(crate) const TABLE: &str =
    "create table timeouts (id text, due_ms integer, attempt integer, context blob);";
/// The most rows of one poll.
const ROWS_MAX: u32 = 100;
/// Claims of one deadline, those of pods that were killed included.
const ATTEMPTS: u32 = 100;

#[derive(Clone)]
pub(crate) enum Timeouts {
    Claimed(Deadlines),
    Read(Arc<Mutex<Connection>>),
}

/// How a pool is recovered.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) every: Duration,
    pub(crate) parallelism: usize,
    pub(crate) visibility: Duration,
    /// The first and the longest pause after a failure.
    pub(crate) backoff: (Duration, Duration),
    pub(crate) scans: Scans,
    /// Of single scans; `None` with `--unsafe`.
    pub(crate) lock: Option<Lock>,
}

/// A timed-out transaction, claimed by one pod.
pub(crate) struct Late {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    /// Grows with every claim. Without a claim it is the highest, which no check refuses.
    pub(crate) fence: i64,
    /// How long no other pod can claim it.
    pub(crate) hidden_for: Duration,
    context: Vec<u8>,
}

impl Late {
    /// The context of the deadline.
    pub(crate) fn context<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_slice(&self.context)?)
    }

    fn claimed(due: &Due) -> Self {
        Self {
            id: due.id().into(),
            attempt: due.attempt(),
            fence: due.receipt().number.cast_signed(),
            hidden_for: due.hidden_for(),
            context: due.context().map(|context| context.to_vec()).unwrap_or_default(),
        }
    }
}

impl Protection {
    /// The timeouts of a pool.
    pub(crate) fn timeouts(&self, worker: &Worker, pool: &str) -> Result<Timeouts> {
        Ok(match self.leases() {
            Some(leases) => Timeouts::Claimed(leases.deadlines(pool)),
            None => Timeouts::Read(Arc::new(Mutex::new(worker.database()?))),
        })
    }
}

impl Timeouts {
    pub(crate) async fn set(&self, deadlines: &[Deadline]) -> Result<()> {
        match self {
            Self::Claimed(pool) => Ok(pool.set_many(deadlines).await?),
            Self::Read(table) => {
                let mut table = open(table);
                let change = table.transaction()?;
                for Deadline { id, due, context } in deadlines {
                    let due_ms = match due {
                        DueTime::In(after) => now_ms()? + after.as_millis() as u64,
                        DueTime::AtMs(at) => *at,
                    };
                    let sql = "insert into timeouts (id, due_ms, attempt, context) values (?, ?, 1, ?)";
                    change.execute(sql, (&**id, due_ms, context.as_deref()))?;
                }
                Ok(change.commit()?)
            }
        }
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<()> {
        match self {
            Self::Claimed(pool) => {
                pool.cancel(id).await?;
            }
            Self::Read(table) => {
                open(table).execute("delete from timeouts where id = ?", [id])?;
            }
        }
        Ok(())
    }

    /// Passes everything that is due to the handler, until the process ends.
    pub(crate) async fn recover<F>(
        self,
        plan: Plan,
        handler: impl Fn(Late) -> F + Send + Sync + 'static,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        match self {
            Self::Claimed(pool) => {
                let recovery = pool
                    .recover(move |due: Due| handler(Late::claimed(&due)))
                    .every(plan.every)
                    .parallelism(plan.parallelism)
                    .visibility(plan.visibility)
                    .attempts(ATTEMPTS)
                    .backoff(plan.backoff.0, plan.backoff.1)
                    .scans(plan.scans);
                let recovery = match plan.lock {
                    Some(lock) => recovery.lock(lock),
                    None => recovery,
                };
                recovery.start().await?.ended().await;
                Ok(())
            }
            Self::Read(table) => loop {
                let late = due(&table, plan.visibility)?;
                let handled = stream::iter(late).map(|late| {
                    let (id, attempt) = (late.id.clone(), late.attempt);
                    let handled = handler(late);
                    async move { (id, attempt, handled.await.is_ok()) }
                });
                let mut handled = handled.buffer_unordered(plan.parallelism);
                while let Some((id, attempt, done)) = handled.next().await {
                    settle(&table, &plan, &id, attempt, done)?;
                }
                tokio::time::sleep(plan.every).await;
            },
        }
    }
}

fn open(table: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}

/// All due rows, hidden from nobody.
fn due(table: &Mutex<Connection>, visibility: Duration) -> Result<Vec<Late>> {
    let table = open(table);
    let mut found = table
        .prepare("select id, attempt, context from timeouts where due_ms <= ? order by due_ms limit ?")?;
    let late = found.query_map((now_ms()?, ROWS_MAX), |row| {
        Ok(Late {
            id: row.get(0)?,
            attempt: row.get(1)?,
            fence: i64::MAX,
            hidden_for: visibility,
            context: row.get(2)?,
        })
    })?;
    Ok(late.collect::<Result<_, _>>()?)
}

fn settle(table: &Mutex<Connection>, plan: &Plan, id: &str, attempt: u32, done: bool) -> Result<()> {
    let table = open(table);
    if done {
        table.execute("delete from timeouts where id = ?", [id])?;
    } else {
        let (first, most) = plan.backoff;
        let pause = first.saturating_mul(1 << attempt.min(16)).min(most);
        let sql = "update timeouts set due_ms = ?, attempt = ? where id = ?";
        table.execute(sql, (now_ms()? + pause.as_millis() as u64, attempt + 1, id))?;
    }
    Ok(())
}
