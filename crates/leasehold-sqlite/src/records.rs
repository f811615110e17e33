//! Records and marks of a lease file.
//!
//! One row per key, and one transaction per call: what is there is read, [`decide`](leasehold_core::engine::records::decide)
//! decides, and the outcome is written. A record that ran out keeps its row for a day, so that the last fence is known.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rusqlite::{Row, params};

use leasehold_core::clock::{BootInstant, Until};
use leasehold_core::decide::lock::next_fence;
use leasehold_core::engine::records::decide::{self, Beginning};
use leasehold_core::engine::records::{
    Begin, Begun, MARK, MarkOp, Outcome, Record, Records, Settle, Settled,
};
use leasehold_core::engine::{Cursor, Fut, Grant, Hold, Page, Renewed, WAITERS_MAX};
use leasehold_core::{Fence, Name};

use super::store::{KEPT, Store, instant, nanos, unsigned};
use super::wake::ID_BYTES;
use super::worker::{Access, Purpose, on_thread};
use super::{Sqlite, fault::Result};

/// How long a watcher is remembered after the lease that it saw: it asks again by then.
const WATCHED_AFTER: Duration = Duration::from_secs(10);
/// Rows looked at by one sweep.
const SWEEP_ROWS: u32 = 16;

/// What is under a key.
#[derive(Default)]
struct Found {
    /// Whether there is a row.
    is_kept: bool,
    /// The fence of the last execution; 0 if there was none.
    fence: Fence,
    /// What has not run out, and when it will.
    live: Option<(Vec<u8>, Duration)>,
}

impl Found {
    fn text(&self) -> Option<&[u8]> {
        self.live.as_ref().map(|(text, _)| text.as_slice())
    }

    fn last(&self) -> Option<Fence> {
        Some(self.fence).filter(|fence| *fence > Fence::default())
    }
}

impl Records for Sqlite {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        if begin.wake {
            self.wakes.listen();
        }
        let (since, begin, wake) = (self.clock.now(), begin.clone(), self.wakes.id.clone());
        let begin = move |store: &mut Store<'_>| store.begin_record(&begin, since, &wake);
        self.worker.call(until, Purpose::Ask, Access::Write, begin)
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        let leaves_nothing = settle.outcome == Outcome::Retry;
        let access = if leaves_nothing { Access::Write } else { Access::WriteToLast };
        let settle = settle.clone();
        self.worker.call(until, Purpose::End, access, move |store| store.settle_record(&settle))
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>> {
        let keys = keys.to_vec();
        let (purpose, access) = match op {
            MarkOp::Test => (Purpose::Ask, Access::Read),
            MarkOp::Clear => (Purpose::End, Access::WriteToLast),
            MarkOp::Set(_) | MarkOp::SetIfAbsent(_) => (Purpose::Ask, Access::WriteToLast),
        };
        let all = move |store: &mut Store<'_>| keys.iter().map(|key| store.on_mark(key, op)).collect();
        self.worker.call(until, purpose, access, all)
    }

    on_thread! {
        read(&key: Name) -> Option<Record> => Ask Read read_record;
        remove(&key: Name) -> bool => Ask WriteToLast remove_record;
        scan(&prefix: str; from: Option<Cursor>, limit: u32) -> Page<Record> => Ask Read scan_records;
    }
}

impl Store<'_> {
    /// `since` is the grant's lower bound, read before the request left; `wake` is the engine that asks.
    fn begin_record(&mut self, begin: &Begin, since: BootInstant, wake: &str) -> Result<Begun> {
        let found = self.found(&begin.key)?;
        let expires_in = found.live.as_ref().map_or(Duration::ZERO, |(_, left)| *left);
        let fence = match decide::begin(found.text(), expires_in, begin)? {
            Beginning::Take => {
                let fence = next_fence(found.fence, self.now.wall_us)?;
                let found = Found { fence, ..found };
                self.write_record(&begin.key, &found, &begin.text(fence), begin.lease, false)?;
                fence
            }
            Beginning::Refresh(fence) => {
                self.extend_record(&begin.key, begin.lease)?;
                fence
            }
            Beginning::Answer(answer) => {
                if begin.wake && matches!(answer, Begun::Running { .. }) {
                    self.watch(begin.key.as_str(), begin.owner.id_text(), expires_in, wake)?;
                }
                return Ok(answer);
            }
        };
        Ok(Begun::Yours(Grant { fence, since, ttl: begin.lease, acks: 0 }))
    }

    pub(super) fn renew_record(&self, hold: &Hold, since: BootInstant) -> Result<Renewed> {
        if !decide::is_run_by(self.found(&hold.name)?.text(), &hold.owner) {
            return Ok(Renewed::Gone);
        }
        self.extend_record(&hold.name, hold.ttl)?;
        Ok(Renewed::Kept { since, link: None })
    }

    fn settle_record(&mut self, settle: &Settle) -> Result<Settled> {
        let key = &settle.hold.name;
        let found = self.found(key)?;
        if let Some(answer) = decide::settle(found.text(), found.last(), settle)? {
            return Ok(answer);
        }
        match settle.text() {
            Some(text) => {
                let found = Found { fence: settle.hold.fence, ..found };
                self.write_record(key, &found, &text, settle.keep, true)?;
            }
            None => self.take_away(key, &found)?,
        }
        self.tell_watchers(key.as_str())?;
        Ok(Settled::Stored)
    }

    fn on_mark(&self, key: &Name, op: MarkOp) -> Result<bool> {
        let found = self.found(key)?;
        let answer = decide::mark(found.text(), op);
        match op {
            MarkOp::Set(ttl) | MarkOp::SetIfAbsent(ttl) if answer => {
                self.write_record(key, &found, MARK, ttl, true)?;
            }
            MarkOp::Clear if answer => self.take_away(key, &found)?,
            _ => {}
        }
        Ok(answer)
    }

    fn remove_record(&mut self, key: &Name) -> Result<bool> {
        let found = self.found(key)?;
        if found.live.is_none() {
            return Ok(false);
        }
        self.take_away(key, &found)?;
        self.tell_watchers(key.as_str())?;
        Ok(true)
    }

    fn scan_records(&self, prefix: &str, from: Option<Cursor>, limit: u32) -> Result<Page<Record>> {
        let show = |key: &Name, row: &Row<'_>| Ok(show(key, self.read_row(row, 1)?));
        self.page(include_str!("records/keys.sql"), prefix, from, limit, show)
    }

    fn read_record(&self, key: &Name) -> Result<Option<Record>> {
        Ok(show(key, self.found(key)?))
    }

    fn found(&self, key: &Name) -> Result<Found> {
        let sql = "SELECT fence, text, boot, ends, ends_us FROM record WHERE key = ?1";
        Ok(self.all(sql, [key.as_str()], |row| self.read_row(row, 0))?.pop().unwrap_or_default())
    }

    /// Reads fence, text, boot and both ends from the columns that begin at `first`.
    fn read_row(&self, row: &Row<'_>, first: usize) -> rusqlite::Result<Found> {
        let fence = Fence::new(unsigned(row, first)?);
        let boot = row.get_ref(first + 2)?.as_str()?;
        let left = if boot == self.boot {
            instant(row, first + 3)?.since(self.now.boot)
        } else {
            let ends_us = row.get::<_, Option<i64>>(first + 4)?.unwrap_or(0).max(0).unsigned_abs();
            Duration::from_micros(ends_us.saturating_sub(self.now.wall_us))
        };
        let text: Option<Vec<u8>> = if left.is_zero() { None } else { row.get(first + 1)? };
        Ok(Found { is_kept: true, fence, live: text.map(|text| (text, left)) })
    }

    /// Writes what stays for this long: at the latest until the host restarts, unless it is to outlive that.
    fn write_record(
        &self,
        key: &Name,
        found: &Found,
        text: &[u8],
        time: Duration,
        outlives_boot: bool,
    ) -> Result<()> {
        let ends_us = outlives_boot.then(|| self.wall_us_in(time));
        // A mark has no fence that somebody could still ask for.
        let kept = if found.fence == Fence::default() { Duration::ZERO } else { KEPT };
        let (ends, sweep_us) = (nanos(self.now.boot + time), self.wall_us_in(time.saturating_add(kept)));
        let row = params![key.as_str(), found.fence.as_i64(), text, self.boot, ends, ends_us, sweep_us];
        self.run(include_str!("records/write.sql"), row)?;
        if !found.is_kept {
            let now = params![self.now.wall_us.cast_signed(), self.boot, nanos(self.now.boot), SWEEP_ROWS];
            self.run(include_str!("records/sweep.sql"), now)?;
        }
        Ok(())
    }

    /// A running record, which the caller has found in the same transaction, runs for this long from now.
    fn extend_record(&self, key: &Name, lease: Duration) -> Result<()> {
        let row = params![key.as_str(), nanos(self.now.boot + lease), self.wall_us_in(lease + KEPT)];
        self.run("UPDATE record SET ends = ?2, sweep_us = ?3 WHERE key = ?1", row).map(drop)
    }

    /// Leaves nothing under a key but the last fence.
    fn take_away(&self, key: &Name, found: &Found) -> Result<()> {
        if found.last().is_none() {
            return self.run("DELETE FROM record WHERE key = ?1", [key.as_str()]).map(drop);
        }
        let row = params![key.as_str(), self.wall_us_in(KEPT)];
        self.run("UPDATE record SET text = NULL, sweep_us = ?2 WHERE key = ?1", row).map(drop)
    }

    /// Remembers a watcher, up to a bound: hints may be lost, and it asks again anyway.
    pub(super) fn watch(&self, key: &str, owner_id: &str, expires_in: Duration, wake: &str) -> Result<()> {
        let live_until = nanos(self.now.boot + expires_in + WATCHED_AFTER);
        let sql = "UPDATE watcher SET boot = ?3, live_until = ?4, wake = ?5 WHERE key = ?1 AND owner_id = ?2";
        if self.run(sql, params![key, owner_id, self.boot, live_until, wake])? == 0 {
            let row = params![key, owner_id, self.boot, live_until, wake, WAITERS_MAX];
            self.run(include_str!("records/watch.sql"), row)?;
            self.run(include_str!("records/sweep_watchers.sql"), params![self.boot, nanos(self.now.boot)])?;
        }
        Ok(())
    }

    /// Notes a hint for all who wait for a key, and forgets them: who still waits asks again.
    pub(super) fn tell_watchers(&mut self, key: &str) -> Result<()> {
        let sql = "DELETE FROM watcher WHERE key = ?1 RETURNING wake, owner_id, boot = ?2";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?));
        for (wake, owner_id, is_alive) in self.all(sql, params![key, self.boot], read)? {
            if is_alive && owner_id.len() == ID_BYTES {
                self.hints.entry(wake).or_default().push_str(&owner_id);
            }
        }
        Ok(())
    }

    pub(super) fn wall_us_in(&self, time: Duration) -> i64 {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        i64::try_from(self.now.wall_us.saturating_add(time)).unwrap_or(i64::MAX)
    }
}

fn show(key: &Name, found: Found) -> Option<Record> {
    let (text, left) = found.live?;
    Some(Record { key: key.clone(), content: decide::content(&text), expires_in: Some(left) })
}
