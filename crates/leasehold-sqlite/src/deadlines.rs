//! Deadlines of a lease file.
//!
//! Due times are those of the wall clock: they were given as such, or have to outlive a restart of the host. How long a
//! claim hides its deadline is counted by the boot clock too, so that a step of the wall clock shows it to nobody too
//! early; a step back makes deadlines late.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, time::Duration};

use bytes::Bytes;
use rusqlite::{Row, params};

use leasehold_core::engine::deadlines::{
    Batch, Dead, Deadline, DeadlineId, Deadlines, Delivery, DueTime, Pending, Placement, Pool, PoolLayout,
    PoolStats, Receipt, Settle,
};
use leasehold_core::engine::{Cursor, Fut, Page};
use leasehold_core::{Name, clock::Until};

use super::store::{Store, nanos, unsigned};
use super::worker::{Access, Purpose, on_thread};
use super::{Sqlite, fault::Result};

/// A deadline that may be claimed: its row, what is known of it, and its context.
type Visible = (i64, Pending, Option<Bytes>);

/// The number of a pool that is not there: no row has it.
const NO_POOL: i64 = -1;

impl Deadlines for Sqlite {
    on_thread! {
        layout(&pool: Pool) -> PoolLayout => Ask WriteToLast pool_layout;
        known_layout(&pool: Name) -> Option<PoolLayout> => Ask Read known_layout;
        set(&pool: Pool, deadlines: [Deadline]) -> () => Ask WriteToLast set_deadlines;
        // Not synced: a power loss ends the claimer, and only shows its deadlines earlier.
        claim_due(&pool: Pool; limit: u32, visibility: Duration) -> Batch => Ask Write claim_due;
        settle(&pool: Pool, settlements: [(Receipt, Settle)]) -> Vec<bool> => End WriteToLast settle_deadlines;
        cancel(&pool: Pool, ids: [DeadlineId]) -> Vec<bool> => End WriteToLast cancel_deadlines;
        peek(&pool: Pool; limit: u32) -> Vec<Pending> => Ask Read peek;
        dead(&pool: Pool; from: Option<Cursor>, limit: u32) -> Page<Dead> => Ask Read dead;
        stats(&pool: Pool) -> PoolStats => Ask Read pool_stats;
    }
}

impl Store<'_> {
    fn pool_layout(&self, pool: &Pool) -> Result<PoolLayout> {
        let PoolLayout { buckets, placement } = pool.layout;
        let sql = "INSERT OR IGNORE INTO pool (name, buckets, placement, receipt) VALUES (?1, ?2, ?3, 0)";
        self.run(sql, params![pool.name.as_str(), buckets, placement.to_string()])?;
        Ok(self.known_layout(&pool.name)?.unwrap_or(pool.layout))
    }

    fn known_layout(&self, pool: &Name) -> Result<Option<PoolLayout>> {
        let read = |row: &Row<'_>| {
            let placement = if row.get(1)? { Placement::Together } else { Placement::Spread };
            Ok(PoolLayout { buckets: row.get(0)?, placement })
        };
        let sql = "SELECT buckets, placement = 'together' FROM pool WHERE name = ?1";
        Ok(self.all(sql, [pool.as_str()], read)?.pop())
    }

    fn set_deadlines(&self, pool: &Pool, deadlines: &[Deadline]) -> Result<()> {
        self.pool_layout(pool)?;
        let number = self.pool(pool)?;
        let mut set = self.cached(include_str!("deadlines/set.sql"))?;
        let mut revive = self.cached("DELETE FROM dead WHERE pool = ?1 AND id = ?2")?;
        for Deadline { id, due, context } in deadlines {
            let due = match due {
                DueTime::In(time) => self.ms_in(*time),
                DueTime::AtMs(at) => i64::try_from(*at).unwrap_or(i64::MAX),
            };
            set.execute(params![number, &**id, pool.bucket_of(id), due, context.as_deref()])?;
            revive.execute(params![number, &**id])?;
        }
        Ok(())
    }

    fn claim_due(&self, pool: &Pool, limit: u32, visibility: Duration) -> Result<Batch> {
        let number = self.pool(pool)?;
        let (mut more, mut claimed) = (false, Vec::new());
        for bucket in 0..pool.layout.buckets {
            let mut visible = self.visible(number, bucket, limit.saturating_add(1))?;
            more |= visible.len() > limit as usize;
            visible.truncate(limit as usize);
            claimed.extend(visible);
        }
        if claimed.is_empty() {
            return Ok(Batch { more, ..Batch::default() });
        }
        // Later claims have higher ones, also of an id that was removed meanwhile.
        let sql = "UPDATE pool SET receipt = max(receipt + 1, ?2) WHERE place = ?1 RETURNING receipt";
        let now = params![number, self.now.wall_us.cast_signed()];
        let receipt: i64 = self.cached(sql)?.query_row(now, |row| row.get(0))?;
        let (visible_at, hidden_until) = (self.ms_in(visibility), nanos(self.now.boot + visibility));
        let deliver = |(place, Pending { id, attempts, overdue }, context): Visible| {
            let row = params![place, visible_at, receipt, self.boot, hidden_until];
            self.run(include_str!("deadlines/hide.sql"), row)?;
            let receipt = Receipt { id, number: receipt.unsigned_abs() };
            Ok(Delivery { receipt, attempt: attempts.saturating_add(1), overdue, context })
        };
        Ok(Batch { due: claimed.into_iter().map(deliver).collect::<Result<_>>()?, more })
    }

    fn settle_deadlines(&self, pool: &Pool, settlements: &[(Receipt, Settle)]) -> Result<Vec<bool>> {
        let number = self.pool(pool)?;
        let settled = settlements.iter().map(|(receipt, settle)| {
            // A number that was never given fits no row.
            let (id, receipt) = (&*receipt.id, i64::try_from(receipt.number).ok());
            let remove = || {
                let sql = "DELETE FROM deadline WHERE pool = ?1 AND id = ?2 AND receipt = ?3";
                self.run(sql, params![number, id, receipt])
            };
            // One that is given back has the attempt of its claim again.
            let show_after = |time, given_back: bool| {
                let (due, hidden_until) = (self.ms_in(time), nanos(self.now.boot + time));
                let row = params![number, id, receipt, due, self.boot, hidden_until, given_back];
                self.run(include_str!("deadlines/show.sql"), row)
            };
            let changed = match settle {
                Settle::Done => remove()?,
                Settle::Postpone(time) => show_after(*time, false)?,
                Settle::GiveBack => show_after(Duration::ZERO, true)?,
                Settle::Bury(why) => {
                    let row = params![number, id, receipt, self.now_ms(), why];
                    self.run(include_str!("deadlines/bury.sql"), row)?;
                    remove()?
                }
            };
            Ok(changed == 1)
        });
        settled.collect()
    }

    fn cancel_deadlines(&self, pool: &Pool, ids: &[DeadlineId]) -> Result<Vec<bool>> {
        let number = self.pool(pool)?;
        let remove = |sql, id: &DeadlineId| self.run(sql, params![number, &**id]);
        let cancelled = ids.iter().map(|id| {
            let pending = remove("DELETE FROM deadline WHERE pool = ?1 AND id = ?2", id)?;
            let dead = remove("DELETE FROM dead WHERE pool = ?1 AND id = ?2", id)?;
            Ok(pending + dead > 0)
        });
        cancelled.collect()
    }

    fn peek(&self, pool: &Pool, limit: u32) -> Result<Vec<Pending>> {
        let number = self.pool(pool)?;
        let mut due = Vec::new();
        for bucket in 0..pool.layout.buckets {
            due.extend(self.visible(number, bucket, limit)?);
        }
        due.sort_by_key(|(_, pending, _)| Reverse(pending.overdue));
        Ok(due.into_iter().take(limit as usize).map(|(_, pending, _)| pending).collect())
    }

    fn dead(&self, pool: &Pool, from: Option<Cursor>, limit: u32) -> Result<Page<Dead>> {
        let number = self.pool(pool)?;
        let after = from.as_ref().map_or("", Cursor::as_str);
        let read = |row: &Row<'_>| {
            Ok(Dead {
                id: row.get::<_, String>(0)?.into(),
                attempts: row.get(1)?,
                buried_at_ms: unsigned(row, 2)?,
                why: row.get(3)?,
                context: row.get::<_, Option<Vec<u8>>>(4)?.map(Bytes::from),
            })
        };
        let limit = limit.max(1);
        let params = params![number, after, limit.saturating_add(1)];
        let items = self.all(include_str!("deadlines/dead.sql"), params, read)?;
        Ok(Page::first(items.into_iter(), limit, |dead| &*dead.id))
    }

    fn pool_stats(&self, pool: &Pool) -> Result<PoolStats> {
        let read = |row: &Row<'_>| {
            let oldest: Option<i64> = row.get(4)?;
            Ok(PoolStats {
                pending: unsigned(row, 0)?,
                tried: unsigned(row, 1)?,
                dead: unsigned(row, 2)?,
                due: unsigned(row, 3)?,
                overdue: oldest.map_or(Duration::ZERO, |oldest| self.overdue(oldest)),
            })
        };
        let params = params![self.pool(pool)?, self.now_ms(), self.boot, nanos(self.now.boot)];
        Ok(self.cached(include_str!("deadlines/stats.sql"))?.query_row(params, read)?)
    }

    /// The pool's number in the file.
    fn pool(&self, pool: &Pool) -> Result<i64> {
        let sql = "SELECT place FROM pool WHERE name = ?1";
        Ok(self.all(sql, [pool.name.as_str()], |row| row.get(0))?.pop().unwrap_or(NO_POOL))
    }

    /// What may be claimed of a bucket, oldest first.
    fn visible(&self, pool: i64, bucket: u16, limit: u32) -> Result<Vec<Visible>> {
        let read = |row: &Row<'_>| {
            let (id, overdue) = (row.get::<_, String>(1)?.into(), self.overdue(row.get(2)?));
            let context = row.get::<_, Option<Vec<u8>>>(4)?.map(Bytes::from);
            Ok((row.get(0)?, Pending { id, attempts: row.get(3)?, overdue }, context))
        };
        let params = params![pool, bucket, self.now_ms(), self.boot, nanos(self.now.boot), limit];
        self.all(include_str!("deadlines/visible.sql"), params, read)
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.now.wall_us / 1000).unwrap_or(i64::MAX)
    }

    /// Never earlier than asked for, but for the part of a millisecond that has passed already.
    fn ms_in(&self, time: Duration) -> i64 {
        let time = i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
        self.now_ms().saturating_add(time)
    }

    fn overdue(&self, due: i64) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(due).max(0).unsigned_abs())
    }
}
