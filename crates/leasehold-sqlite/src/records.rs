//! Records and marks of a lease file.
//!
//! One row per key, and one transaction per call: what is there is read, [`decide`](leasehold_core::engine::records::decide)
//! decides, and the outcome is written. A record that ran out keeps its row for a day, so that the last fence is known.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};

use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{
        Cursor, Fut, Grant, Hold, Page, Renewed, WAITERS_MAX,
        records::{
            Begin, Begun, MARK, MarkOp, Outcome, Record, Records, Settle, Settled,
            decide::{self, Beginning},
        },
    },
    fence::Fence,
    name::Name,
};

use super::{
    Sqlite,
    fault::Failure,
    store::{Hint, KEPT, SCAN_ROWS_MAX, Store, instant, nanos},
    worker::Purpose,
};

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
    fence: u64,
    /// What has not run out, and when it will.
    live: Option<(Vec<u8>, Duration)>,
}

impl Found {
    fn text(&self) -> Option<&[u8]> {
        self.live.as_ref().map(|(text, _)| text.as_slice())
    }

    fn last(&self) -> Option<Fence> {
        (self.fence > 0).then(|| Fence::new(self.fence))
    }
}

impl Records for Sqlite {
    fn begin<'a>(&'a self, begin: &'a Begin, until: Until) -> Fut<'a, Begun> {
        Box::pin(async move {
            if begin.wake {
                self.wakes.listen();
            }
            let (since, asked, wake) = (self.clock.now(), begin.clone(), self.wakes.id().to_owned());
            self.worker
                .write(until, Purpose::Ask, move |store| store.begin_record(&asked, since, &wake))
                .await
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        let (settle, leaves_nothing) = (settle.clone(), settle.outcome == Outcome::Retry);
        let end = move |store: &mut Store<'_>| store.settle_record(&settle);
        if leaves_nothing {
            return Box::pin(self.worker.write(until, Purpose::End, end));
        }
        Box::pin(self.worker.write_to_last(until, Purpose::End, end))
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, until: Until) -> Fut<'a, Vec<bool>> {
        let keys = keys.to_vec();
        let all = move |store: &mut Store<'_>| keys.iter().map(|key| store.on_mark(key, op)).collect();
        match op {
            MarkOp::Test => Box::pin(self.worker.read(until, all)),
            MarkOp::Clear => Box::pin(self.worker.write_to_last(until, Purpose::End, all)),
            MarkOp::Set(_) | MarkOp::SetIfAbsent(_) => {
                Box::pin(self.worker.write_to_last(until, Purpose::Ask, all))
            }
        }
    }

    fn read<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, Option<Record>> {
        let key = key.clone();
        Box::pin(self.worker.read(until, move |store| Ok(show(&key, store.found(&key)?))))
    }

    fn remove<'a>(&'a self, key: &'a Name, until: Until) -> Fut<'a, bool> {
        let key = key.clone();
        Box::pin(self.worker.write_to_last(until, Purpose::Ask, move |store| store.remove_record(&key)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Record>> {
        let prefix = prefix.to_owned();
        Box::pin(self.worker.read(until, move |store| store.scan_records(&prefix, from.as_ref(), limit)))
    }
}

impl Store<'_> {
    /// `since` is the grant's lower bound, read before the request left; `wake` is the engine that asks.
    fn begin_record(&mut self, begin: &Begin, since: BootInstant, wake: &str) -> Result<Begun, Failure> {
        let found = self.found(&begin.key)?;
        let expires_in = found.live.as_ref().map_or(Duration::ZERO, |(_, left)| *left);
        let fence = match decide::begin(found.text(), expires_in, begin)? {
            Beginning::Take => {
                let fence = Fence::new(self.next_fence(found.fence)?);
                let found = Found { fence: fence.get(), ..found };
                self.write_record(&begin.key, &found, &begin.text(fence), begin.lease, false)?;
                fence
            }
            Beginning::Refresh(fence) => {
                self.extend_record(&begin.key, begin.lease)?;
                fence
            }
            Beginning::Answer(answer) => {
                if begin.wake && matches!(answer, Begun::Running { .. }) {
                    self.watch(begin, expires_in, wake)?;
                }
                return Ok(answer);
            }
        };
        Ok(Begun::Yours(Grant { fence, since, ttl: begin.lease, acks: 0 }))
    }

    pub(super) fn renew_record(&self, hold: &Hold, since: BootInstant) -> Result<Renewed, Failure> {
        if !decide::is_run_by(self.found(&hold.name)?.text(), &hold.owner) {
            return Ok(Renewed::Gone);
        }
        self.extend_record(&hold.name, hold.ttl)?;
        Ok(Renewed::Kept { since })
    }

    fn settle_record(&mut self, settle: &Settle) -> Result<Settled, Failure> {
        let key = &settle.hold.name;
        let found = self.found(key)?;
        if let Some(answer) = decide::settle(found.text(), found.last(), settle)? {
            return Ok(answer);
        }
        match settle.text() {
            Some(text) => {
                let found = Found { fence: settle.hold.fence.get(), ..found };
                self.write_record(key, &found, &text, settle.keep, true)?;
            }
            None => self.take_away(key, &found)?,
        }
        self.tell_watchers(key)?;
        Ok(Settled::Stored)
    }

    fn on_mark(&self, key: &Name, op: MarkOp) -> Result<bool, Failure> {
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

    fn remove_record(&mut self, key: &Name) -> Result<bool, Failure> {
        let found = self.found(key)?;
        if found.live.is_none() {
            return Ok(false);
        }
        self.take_away(key, &found)?;
        self.tell_watchers(key)?;
        Ok(true)
    }

    fn scan_records(&self, prefix: &str, from: Option<&Cursor>, limit: u32) -> Result<Page<Record>, Failure> {
        let limit = limit.max(1) as usize;
        let after = from.map_or("", Cursor::as_str);
        let mut keys = self.cached(include_str!("records/keys.sql"))?;
        let mut rows = keys.query(params![prefix.max(after), SCAN_ROWS_MAX])?;
        let mut items = Vec::new();
        let (mut looked_at, mut last) = (0, String::new());
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            if !text.starts_with(prefix) {
                return Ok(Page { items, next: None });
            }
            if items.len() == limit {
                return Ok(Page { items, next: Some(Cursor::new(last)) });
            }
            if let (true, Ok(key)) = (text != after, Name::new(&text)) {
                items.extend(show(&key, self.read_row(row, 1)?));
            }
            looked_at += 1;
            last = text;
        }
        let next = (looked_at == SCAN_ROWS_MAX).then(|| Cursor::new(last));
        Ok(Page { items, next })
    }

    fn found(&self, key: &Name) -> Result<Found, Failure> {
        let found = self
            .cached("SELECT fence, text, boot, ends, ends_us FROM record WHERE key = ?1")?
            .query_row([key.as_str()], |row| self.read_row(row, 0))
            .optional()?;
        Ok(found.unwrap_or_default())
    }

    /// Reads fence, text, boot and both ends from the columns that begin at `first`.
    fn read_row(&self, row: &Row<'_>, first: usize) -> rusqlite::Result<Found> {
        let fence = row.get::<_, i64>(first)?.max(0).unsigned_abs();
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
    ) -> Result<(), Failure> {
        let ends_us = outlives_boot.then(|| self.wall_us_in(time));
        // A mark has no fence that somebody could still ask for.
        let kept = if found.fence == 0 { Duration::ZERO } else { KEPT };
        self.run(
            include_str!("records/write.sql"),
            params![
                key.as_str(),
                found.fence.cast_signed(),
                text,
                self.boot,
                nanos(self.now.boot + time),
                ends_us,
                self.wall_us_in(time.saturating_add(kept)),
            ],
        )?;
        if !found.is_kept {
            self.run(
                include_str!("records/sweep.sql"),
                params![self.now.wall_us.cast_signed(), self.boot, nanos(self.now.boot), SWEEP_ROWS],
            )?;
        }
        Ok(())
    }

    /// A running record, which the caller has found in the same transaction, runs for this long from now.
    fn extend_record(&self, key: &Name, lease: Duration) -> Result<(), Failure> {
        self.run(
            "UPDATE record SET ends = ?2, sweep_us = ?3 WHERE key = ?1",
            params![key.as_str(), nanos(self.now.boot + lease), self.wall_us_in(lease + KEPT)],
        )?;
        Ok(())
    }

    /// Leaves nothing under a key but the last fence.
    fn take_away(&self, key: &Name, found: &Found) -> Result<(), Failure> {
        if found.fence == 0 {
            self.run("DELETE FROM record WHERE key = ?1", [key.as_str()])?;
        } else {
            self.run(
                "UPDATE record SET text = NULL, sweep_us = ?2 WHERE key = ?1",
                params![key.as_str(), self.wall_us_in(KEPT)],
            )?;
        }
        Ok(())
    }

    /// Remembers a watcher, up to a bound: hints may be lost, and it asks again anyway.
    fn watch(&self, begin: &Begin, expires_in: Duration, wake: &str) -> Result<(), Failure> {
        let live_until = nanos(self.now.boot + expires_in + WATCHED_AFTER);
        let (key, owner_id) = (begin.key.as_str(), begin.owner.id_text());
        let again = self.run(
            "UPDATE watcher SET boot = ?3, live_until = ?4, wake = ?5 WHERE key = ?1 AND owner_id = ?2",
            params![key, owner_id, self.boot, live_until, wake],
        )?;
        if again == 0 {
            self.run(
                include_str!("records/watch.sql"),
                params![key, owner_id, self.boot, live_until, wake, WAITERS_MAX],
            )?;
            self.run(include_str!("records/sweep_watchers.sql"), params![self.boot, nanos(self.now.boot)])?;
        }
        Ok(())
    }

    /// Notes a hint for all who wait for a key, and forgets them: who still waits asks again.
    fn tell_watchers(&mut self, key: &Name) -> Result<(), Failure> {
        let mut watchers =
            self.cached("DELETE FROM watcher WHERE key = ?1 RETURNING wake, owner_id, boot = ?2")?;
        let mut rows = watchers.query(params![key.as_str(), self.boot])?;
        while let Some(row) = rows.next()? {
            if row.get(2)? {
                self.hints.push(Hint { wake: row.get(0)?, owner_id: row.get(1)? });
            }
        }
        Ok(())
    }

    fn wall_us_in(&self, time: Duration) -> i64 {
        let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        i64::try_from(self.now.wall_us.saturating_add(time)).unwrap_or(i64::MAX)
    }
}

fn show(key: &Name, found: Found) -> Option<Record> {
    let (text, left) = found.live?;
    Some(Record { key: key.clone(), content: decide::content(&text), expires_in: Some(left) })
}
