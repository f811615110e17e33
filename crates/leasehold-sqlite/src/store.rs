//! The atomic operations on a lease file, inside one transaction at one point in time: rows are read, `decide::lock`
//! decides, rows are written.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use rusqlite::{CachedStatement, Connection, Params, Row, params};

pub(super) use leasehold_core::clock::Now;
use leasehold_core::decide::lock::{self, Lease, Limit, Waiter};
use leasehold_core::engine::{
    Answer, AnswerAll, Claim, Converted, Cursor, HandedTo, Handover, Hold, Inspection, Mode, Page, Released,
    Renewed,
};
use leasehold_core::{BootInstant, Fence, Holder, Name, owner::Owner};

use super::fault::Result;

/// How long the row of a free name stays.
pub(super) const KEPT: Duration = Duration::from_secs(86_400);
/// Most waiters that one operation sends a hint to, as one of them at most gets the lock.
const HINTS_MAX: u32 = 16;
/// Most of those that can have it together.
const RUN_MAX: usize = 1000;
/// Most rows that one page of a scan looks at, held or not.
const SCAN_ROWS_MAX: u32 = 1000;

/// A name, and for each waiter the engine that a hint goes to.
type Lock = lock::Lock<String>;

/// Whom to tell, after the commit, to claim now: the random parts of their attempts, one after another, by the engine that
/// waits.
pub(super) type Hints = BTreeMap<String, String>;

/// A lease file within one transaction.
pub(super) struct Store<'t> {
    db: &'t Connection,
    pub(super) boot: &'t str,
    pub(super) now: Now,
    pub(super) hints: Hints,
}

pub(super) fn nanos(at: BootInstant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn instant(row: &Row<'_>, column: usize) -> rusqlite::Result<BootInstant> {
    unsigned(row, column).map(BootInstant::from_nanos)
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.max(0).unsigned_abs())
}

/// An owner value that cannot be read is nobody's.
fn owner(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Owner>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.and_then(Owner::from_exposed))
}

/// What cannot be read keeps everybody else out.
fn mode(row: &Row<'_>, column: usize) -> rusqlite::Result<Mode> {
    Ok(row.get_ref(column)?.as_str()?.parse().unwrap_or_default())
}

fn limit(row: &Row<'_>) -> rusqlite::Result<Option<Limit>> {
    let number =
        |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<u32>>(column)?.and_then(NonZeroU32::new));
    let (now, first) = (number(5)?, number(6)?);
    Ok(now.zip(first).map(|(now, first)| Limit { now, first }))
}

impl<'t> Store<'t> {
    pub(super) fn new(db: &'t Connection, boot: &'t str, now: Now) -> Self {
        Self { db, boot, now, hints: Hints::new() }
    }

    /// `since` is the grant's lower bound, read before the claim set out; `wake` is the engine that asks.
    pub(super) fn claim(&mut self, claim: &Claim, since: BootInstant, wake: &str) -> Result<Answer> {
        let name = &claim.name;
        let mut lock = self.load(name, Some(&claim.owner), None)?;
        let last = lock.last;
        let answer = lock.claim(claim, since, wake.to_owned(), self.now)?;
        match answer {
            Answer::Granted(_) => self.write(name, &lock, &claim.owner, claim.mode)?,
            Answer::Queued { .. } => self.enqueue(claim, &lock)?,
            Answer::Busy { .. } | Answer::Spent => (),
        }
        if lock.last > last {
            self.leave_queue(name, &claim.owner)?;
            for passed_over in lock.queue.iter().filter(|waiter| waiter.turn.is_zero()) {
                let row = [name.as_str(), passed_over.owner.expose()];
                self.run("UPDATE waiter SET turn = 0 WHERE name = ?1 AND owner = ?2", row)?;
            }
            if last == Fence::default() {
                let oldest_kept_us = self.now.wall_us.saturating_sub(KEPT.as_micros() as u64).cast_signed();
                let now = params![oldest_kept_us, self.boot, nanos(self.now.boot)];
                self.run(include_str!("sweep_locks.sql"), now)?;
            }
        }
        self.hint_those_in_turn(&lock, Some(&claim.owner));
        Ok(answer)
    }

    /// All of them or none, each name once.
    pub(super) fn claim_all(
        &mut self,
        claims: &[Claim],
        since: BootInstant,
        wake: &str,
    ) -> Result<AnswerAll> {
        for (place, claim) in claims.iter().enumerate() {
            let mut lock = self.load(&claim.name, Some(&claim.owner), None)?;
            match lock.refuses(claim, self.now) {
                Ok(None) => {}
                Ok(Some(holders)) => {
                    self.hint_those_in_turn(&lock, Some(&claim.owner));
                    return Ok(AnswerAll::Busy { claim: place, holders });
                }
                Err(error) => return Ok(AnswerAll::Refused { claim: place, error }),
            }
        }
        let mut grants = Vec::with_capacity(claims.len());
        for claim in claims {
            let Answer::Granted(grant) = self.claim(claim, since, wake)? else {
                unreachable!("nothing came in between")
            };
            grants.push(grant);
        }
        Ok(AnswerAll::Granted(grants))
    }

    pub(super) fn renew(&self, hold: &Hold, since: BootInstant) -> Result<Renewed> {
        let mut lock = self.row(&hold.name)?;
        if !lock.renew(hold, self.now.boot) {
            return Ok(Renewed::Gone);
        }
        self.write(&hold.name, &lock, &hold.owner, hold.mode)?;
        Ok(Renewed::Kept { since, link: None })
    }

    /// Release and abandon.
    pub(super) fn release(&mut self, name: &Name, mode: Mode, owner: &Owner) -> Result<Released> {
        self.leave_queue(name, owner)?;
        let mut lock = self.load_first(name)?;
        let was_ours = lock.end(owner.id(), self.now.boot);
        if was_ours {
            self.write(name, &lock, owner, mode)?;
        }
        self.hint_those_in_turn(&lock, None);
        Ok(lock.released(was_ours, mode, &[], self.now.boot))
    }

    pub(super) fn force_release(&mut self, name: &Name, seen: Fence) -> Result<Released> {
        let lock = self.row(name)?;
        let holder = lock.holders(self.now.boot).find(|lease| lease.fence == seen);
        match holder {
            Some(lease) => self.release(name, lease.mode, &lease.owner),
            None => Ok(lock.released(false, Mode::Exclusive, &[], self.now.boot)),
        }
    }

    pub(super) fn convert(&mut self, hold: &Hold, to: Mode, since: BootInstant) -> Result<Converted> {
        let mut lock = self.load_first(&hold.name)?;
        let converted = lock.convert(hold, to, since, self.now)?;
        if let Converted::Done { .. } = converted {
            self.write(&hold.name, &lock, &hold.owner, hold.mode)?;
        }
        self.hint_those_in_turn(&lock, None);
        Ok(converted)
    }

    pub(super) fn hand_to(&mut self, hold: &Hold, next: &Holder) -> Result<HandedTo> {
        let mut lock = self.load(&hold.name, None, None)?;
        let (handed, waiter) = lock.hand_to(hold, next, self.now)?;
        if let Some(waiter) = waiter {
            self.leave_queue(&hold.name, &waiter.owner)?;
            self.write(&hold.name, &lock, &waiter.owner, hold.mode)?;
            // It holds the lock already, and learns of it when it claims.
            self.hints.entry(waiter.wake).or_default().push_str(waiter.owner.id_text());
        }
        Ok(handed)
    }

    pub(super) fn set_limit(&mut self, name: &Name, limit: NonZeroU32) -> Result<()> {
        let mut lock = self.load_first(name)?;
        lock.set_limit(limit, self.now)?;
        self.write_row(name, &lock)?;
        self.hint_those_in_turn(&lock, None);
        Ok(())
    }

    pub(super) fn inspect(&self, name: &Name) -> Result<Inspection> {
        Ok(self.load(name, None, None)?.inspect(name, self.now.boot))
    }

    pub(super) fn scan(&self, prefix: &str, from: Option<Cursor>, limit: u32) -> Result<Page<Inspection>> {
        let inspect = |name: &Name, _: &Row<'_>| Ok(Some(self.inspect(name)?).filter(Inspection::is_in_use));
        self.page(include_str!("names.sql"), prefix, from, limit, inspect)
    }

    /// A page of what `read` makes of rows that come in the order of their names, which are their first column.
    pub(super) fn page<T>(
        &self,
        sql: &str,
        prefix: &str,
        from: Option<Cursor>,
        limit: u32,
        read: impl Fn(&Name, &Row<'_>) -> Result<Option<T>>,
    ) -> Result<Page<T>> {
        let after = from.as_ref().map_or("", Cursor::as_str);
        let mut names = self.cached(sql)?;
        let mut rows = names.query(params![prefix.max(after), SCAN_ROWS_MAX])?;
        let (mut items, mut looked_at, mut last) = (Vec::new(), 0, String::new());
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            if !text.starts_with(prefix) {
                return Ok(Page { items, next: None });
            }
            if items.len() >= limit.max(1) as usize {
                return Ok(Page { items, next: Some(Cursor::new(last)) });
            }
            if let (true, Ok(name)) = (text != after, Name::new(&text)) {
                items.extend(read(&name, row)?);
            }
            looked_at += 1;
            last = text;
        }
        let next = (looked_at == SCAN_ROWS_MAX).then(|| Cursor::new(last));
        Ok(Page { items, next })
    }

    /// How many names are held and how many attempts wait.
    pub(super) fn counts(&self) -> Result<(u32, u32)> {
        let counts = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let now = params![self.boot, nanos(self.now.boot)];
        Ok(self.cached(include_str!("counts.sql"))?.query_row(now, counts)?)
    }

    /// A setting of the connection, in SQLite's own words.
    pub(super) fn pragma<T: rusqlite::types::FromSql>(&self, name: &str) -> Result<T> {
        Ok(self.db.pragma_query_value(None, name, |row| row.get(0))?)
    }

    /// A name with its live waiters, or the first of them. For one that asks: with itself and those before it only, so
    /// that polls of the first waiters cost the same however many wait.
    fn load(&self, name: &Name, asks: Option<&Owner>, most: Option<u32>) -> Result<Lock> {
        let mut lock = self.row(name)?;
        let asks = asks.map_or("", Owner::expose);
        let most = most.map_or(-1, i64::from);
        let read = |row: &Row<'_>| {
            let Some(owner) = owner(row, 0)? else { return Ok(None) };
            Ok(Some(Waiter {
                owner,
                arrived: instant(row, 1)?,
                gives_up: instant(row, 2)?,
                live_until: instant(row, 3)?,
                turn: Duration::from_nanos(unsigned(row, 4)?),
                lasts: Duration::ZERO,
                wake: row.get(5)?,
                mode: mode(row, 6)?,
            }))
        };
        let params = params![name.as_str(), self.boot, nanos(self.now.boot), asks, most];
        lock.queue.extend(self.all(include_str!("queue.sql"), params, read)?.into_iter().flatten());
        Ok(lock)
    }

    /// A name with the waiters that a change of its holders may concern: the first few, or all if those can come in together.
    fn load_first(&self, name: &Name) -> Result<Lock> {
        let lock = self.load(name, None, Some(HINTS_MAX))?;
        let more =
            lock.queue.len() == HINTS_MAX as usize && lock.queue.iter().all(|w| w.mode != Mode::Exclusive);
        if more { self.load(name, None, None) } else { Ok(lock) }
    }

    /// A name without its waiters. What another boot wrote has expired, except the fence and the limit.
    fn row(&self, name: &Name) -> Result<Lock> {
        let read = |row: &Row<'_>| {
            let fence = Fence::new(unsigned(row, 0)?);
            let mut lock = Lock::new(Handover::Pull, fence);
            lock.limit = limit(row)?;
            if row.get_ref(2)?.as_str()? != self.boot {
                return Ok((lock, false));
            }
            let (closed_until, free_since) = (instant(row, 3)?, instant(row, 4)?);
            let Some(owner) = owner(row, 1)? else {
                let has_members = closed_until > self.now.boot;
                lock.free_since = if has_members { free_since } else { free_since.max(closed_until) };
                return Ok((lock, has_members));
            };
            lock.free_since = free_since;
            lock.held.push(Lease { owner, fence, mode: Mode::Exclusive, closed_until });
            Ok((lock, false))
        };
        let sql = "SELECT fence, owner, boot, closed_until, free_since, permits, permits_first FROM lock WHERE name = ?1";
        let Some((mut lock, has_members)) = self.all(sql, [name.as_str()], read)?.pop() else {
            return Ok(Lock::new(Handover::Pull, Fence::default()));
        };
        if has_members {
            lock.held = self.members(name)?;
        }
        Ok(lock)
    }

    fn members(&self, name: &Name) -> Result<Vec<Lease>> {
        let read = |row: &Row<'_>| {
            let (fence, mode, closed_until) =
                (Fence::new(unsigned(row, 1)?), mode(row, 2)?, instant(row, 3)?);
            Ok(owner(row, 0)?.map(|owner| Lease { owner, fence, mode, closed_until }))
        };
        let sql = "SELECT owner, fence, mode, closed_until FROM member WHERE name = ?1 AND boot = ?2 ORDER BY fence";
        Ok(self.all(sql, params![name.as_str(), self.boot], read)?.into_iter().flatten().collect())
    }

    /// Writes a name after the lease of one attempt was granted, renewed, converted or ended. `was` is how it was held before.
    fn write(&self, name: &Name, lock: &Lock, of: &Owner, was: Mode) -> Result<()> {
        self.write_row(name, lock)?;
        let lease = lock.held.iter().find(|lease| lease.owner == *of);
        match lease.filter(|lease| lease.mode != Mode::Exclusive) {
            Some(Lease { owner, fence, mode, closed_until }) => {
                let (mode, closed_until) = (mode.to_string(), nanos(*closed_until));
                let row =
                    params![name.as_str(), owner.expose(), self.boot, fence.as_i64(), mode, closed_until];
                self.run(include_str!("write_member.sql"), row)?;
                let now = params![self.boot, nanos(self.now.boot)];
                self.run(include_str!("sweep_members.sql"), now).map(drop)
            }
            None if was == Mode::Exclusive => Ok(()),
            None => {
                let row = [name.as_str(), of.expose()];
                self.run("DELETE FROM member WHERE name = ?1 AND owner = ?2", row).map(drop)
            }
        }
    }

    fn write_row(&self, name: &Name, lock: &Lock) -> Result<()> {
        let exclusive = lock.held.iter().find(|lease| lease.mode == Mode::Exclusive);
        let owner = exclusive.map(|lease| lease.owner.expose());
        let ends = lock.held.iter().map(|lease| lease.closed_until);
        let closed_until = ends.max().unwrap_or(lock.free_since);
        let limit = lock.limit.map(|Limit { now, first }| (now.get(), first.get()));
        let (permits, first) = (limit.map(|(now, _)| now), limit.map(|(_, first)| first));
        let (closed_until, free_since) = (nanos(closed_until), nanos(lock.free_since));
        let row = params![
            name.as_str(),
            lock.last.as_i64(),
            owner,
            self.boot,
            closed_until,
            free_since,
            permits,
            first
        ];
        self.run(include_str!("write.sql"), row).map(drop)
    }

    /// Writes the entry of the one that asks.
    fn enqueue(&self, claim: &Claim, lock: &Lock) -> Result<()> {
        for waiter in lock.queue.iter().filter(|waiter| waiter.owner == claim.owner) {
            let [arrived, gives_up, live_until] =
                [waiter.arrived, waiter.gives_up, waiter.live_until].map(nanos);
            let (name, owner, turn) =
                (claim.name.as_str(), waiter.owner.expose(), waiter.turn.as_nanos() as i64);
            let (wake, mode) = (&waiter.wake, waiter.mode.to_string());
            let row = params![name, owner, self.boot, arrived, gives_up, live_until, turn, wake, mode];
            self.run(include_str!("enqueue.sql"), row)?;
        }
        self.run(include_str!("sweep_waiters.sql"), params![self.boot, nanos(self.now.boot)]).map(drop)
    }

    fn leave_queue(&self, name: &Name, owner: &Owner) -> Result<()> {
        let row = [name.as_str(), owner.expose()];
        self.run("DELETE FROM waiter WHERE name = ?1 AND owner = ?2", row).map(drop)
    }

    /// Notes a hint for the waiters whose turn it is. They may not have heard of it.
    fn hint_those_in_turn(&mut self, lock: &Lock, asks: Option<&Owner>) {
        let mut others = lock.in_turn(self.now.boot).filter(|waiter| Some(&waiter.owner) != asks).peekable();
        let is_run = others.peek().is_some_and(|first| first.mode != Mode::Exclusive);
        for waiter in others.take(if is_run { RUN_MAX } else { HINTS_MAX as usize }) {
            self.hints.entry(waiter.wake.clone()).or_default().push_str(waiter.owner.id_text());
        }
    }

    pub(super) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.cached(sql)?.execute(params)?)
    }

    pub(super) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>> {
        Ok(self.cached(sql)?.query_map(params, read)?.collect::<Result<_, _>>()?)
    }

    pub(super) fn cached(&self, sql: &str) -> Result<CachedStatement<'t>> {
        Ok(self.db.prepare_cached(sql)?)
    }
}

#[cfg(test)]
mod tests;
