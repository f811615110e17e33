//! The atomic operations on a lease file, inside one transaction at one point in time: rows are read, `decide::lock`
//! decides, rows are written.
//!
//! # Whose turn it is
//! Nobody gives the lock to a waiter here: a release frees it, and the next waiter claims for itself. So that
//! nobody overtakes, a free lock is kept for those who wait. It became free at `closed_until`; the first live
//! waiter may claim from then on, the second one when the first has let its *turn* pass, and so on: the k-th
//! when the turns of all live waiters before it are over. A newcomer stands behind everybody. A turn lasts two
//! near polls, so a waiter that polls as the first should takes its lock even if every hint is lost; one that is
//! stopped costs the others its turn once: when somebody behind it gets the lock, its turn shrinks to nothing
//! until it claims again. It keeps its place as long as it is live, and its next claim makes it the first in
//! line again.

use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

use crate::{
    clock::BootInstant,
    decide::lock::{self, Claimed, Ended, Lease, View},
    engine::{
        Answer, Claim, Cursor, Grant, Hold, Holders, Inspection, Mode, Page, Released, Renewed, Tenure,
        WAITERS_SHOWN, Waiter, liveness,
    },
    fence::Fence,
    name::Name,
    owner::{Holder, Owner, OwnerId},
};

use super::fault::Failure;

/// Longest turn: two polls of a waiter that knows it is near the front.
const TURN_MAX: Duration = Duration::from_secs(2);
const TURN_MIN: Duration = Duration::from_millis(100);
/// How long the row of a free name stays.
pub(super) const KEPT: Duration = Duration::from_secs(86_400);
/// Most waiters that one operation sends a hint to.
const HINTS_MAX: u32 = 16;
/// Most rows that one page of a scan looks at, held or not.
pub(super) const SCAN_ROWS_MAX: u32 = 1000;
/// The place of those who are not in the queue.
const BEHIND_ALL: i64 = i64::MAX;

/// The time of one transaction.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) boot: BootInstant,
    pub(super) wall_us: u64,
}

/// A waiter to be told, after the commit, that it should claim now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    /// The engine that waits.
    pub(super) wake: String,
    /// The random part of its attempt.
    pub(super) owner_id: String,
}

/// A lease file within one transaction.
pub(super) struct Store<'t> {
    db: &'t Connection,
    pub(super) boot: &'t str,
    pub(super) now: Now,
    pub(super) hints: Vec<Hint>,
}

struct Lock {
    fence: u64,
    owner: Option<String>,
    boot: String,
    closed_until: BootInstant,
}

struct Line {
    ahead: u32,
    turns: Duration,
}

/// How long a free lock waits for one waiter.
fn turn(poll_every: Duration) -> Duration {
    poll_every.saturating_mul(2).clamp(TURN_MIN, TURN_MAX)
}

pub(super) fn nanos(at: BootInstant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn instant(row: &Row<'_>, column: usize) -> rusqlite::Result<BootInstant> {
    Ok(BootInstant::from_nanos(row.get::<_, i64>(column)?.max(0).unsigned_abs()))
}

impl Lock {
    /// Reads fence, owner, boot and `closed_until` from the columns that begin at `first`.
    fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            fence: row.get::<_, i64>(first)?.max(0).unsigned_abs(),
            owner: row.get(first + 1)?,
            boot: row.get(first + 2)?,
            closed_until: instant(row, first + 3)?,
        })
    }
}

impl<'t> Store<'t> {
    pub(super) fn new(db: &'t Connection, boot: &'t str, now: Now) -> Self {
        Self { db, boot, now, hints: Vec::new() }
    }

    /// Whom to tell once the transaction is committed.
    pub(super) fn into_hints(self) -> Vec<Hint> {
        self.hints
    }

    /// `since` is the grant's lower bound, read before the claim set out; `wake` is the engine that asks.
    pub(super) fn claim(&mut self, claim: &Claim, since: BootInstant, wake: &str) -> Result<Answer, Failure> {
        let lock = self.lock(&claim.name)?;
        let place = self.place(&claim.name, &claim.owner)?;
        let line = self.line(&claim.name, place.unwrap_or(BEHIND_ALL))?;
        let free_since = lock.as_ref().map_or(BootInstant::from_nanos(0), |lock| self.free_since(lock));
        let view = View {
            holder: lock.as_ref().and_then(|lock| self.lease(lock)),
            free_since,
            ahead: line.ahead,
            turns: Some(line.turns),
            is_queued: place.is_some(),
        };
        let (free_in, queue) = match lock::claim(&view, claim, self.now.boot)? {
            Claimed::Refresh(fence) => {
                self.extend(&claim.hold(fence))?;
                return Ok(Answer::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 }));
            }
            Claimed::Grant | Claimed::HandOver => {
                if line.ahead > 0 {
                    let before = params![claim.name.as_str(), place.unwrap_or(BEHIND_ALL)];
                    self.run(include_str!("pass_over.sql"), before)?;
                }
                return self.grant(claim, lock.as_ref(), since);
            }
            Claimed::Queue { free_in } => (free_in, claim.queue),
            Claimed::Refuse { free_in } => (free_in, None),
        };
        if view.holder.is_none() {
            // Somebody's turn, not ours: it may not have heard of it.
            self.hint_those_in_turn(&claim.name, free_since, Some(&claim.owner))?;
        }
        let tenure = lock.as_ref().and_then(|lock| self.tenure(lock));
        let holders = tenure.map_or_else(|| Holders::none(Some(free_in)), Holders::one);
        let Some(queue) = queue else { return Ok(Answer::Busy { holders }) };
        self.run(
            include_str!("enqueue.sql"),
            params![
                claim.name.as_str(),
                claim.owner.expose(),
                self.boot,
                nanos(self.now.boot),
                nanos(self.now.boot + queue.wait),
                nanos(self.now.boot + liveness(queue.poll_every)),
                turn(queue.poll_every).as_nanos() as i64,
                wake,
            ],
        )?;
        if place.is_none() {
            self.run(include_str!("sweep_waiters.sql"), params![self.boot, nanos(self.now.boot)])?;
        }
        // Nobody is handed a lock here, so nothing is concluded from a fence.
        Ok(Answer::Queued { ahead: line.ahead, holders, last: Fence::new(0), link: 0 })
    }

    pub(super) fn renew(&self, hold: &Hold, since: BootInstant) -> Result<Renewed, Failure> {
        Ok(if self.extend(hold)? { Renewed::Kept { since } } else { Renewed::Gone })
    }

    /// Release and abandon: leaves the queue, and gives back what is held.
    pub(super) fn release(&mut self, name: &Name, owner: &Owner) -> Result<Released, Failure> {
        self.leave_queue(name, owner)?;
        self.end_tenancy(name, |lease| lock::end(lease, owner.id()))
    }

    pub(super) fn force_release(&mut self, name: &Name, seen: Fence) -> Result<Released, Failure> {
        self.end_tenancy(name, |lease| lock::force(lease, seen))
    }

    fn end_tenancy(
        &mut self,
        name: &Name,
        decide: impl FnOnce(Option<&Lease>) -> Ended,
    ) -> Result<Released, Failure> {
        let Some(lock) = self.lock(name)? else { return Ok(Released::Expired) };
        let ended = decide(self.lease(&lock).as_ref());
        let free_since = match ended {
            Ended::Taken(_) => return Ok(ended.outcome(None)),
            Ended::Free => self.free_since(&lock),
            Ended::Ours => {
                self.run(
                    "UPDATE lock SET owner = NULL, closed_until = ?2 WHERE name = ?1",
                    params![name.as_str(), nanos(self.now.boot)],
                )?;
                self.now.boot
            }
        };
        let anybody = self.hint_those_in_turn(name, free_since, None)?;
        Ok(ended.outcome(anybody.then_some(None)))
    }

    pub(super) fn inspect(&self, name: &Name) -> Result<Inspection, Failure> {
        let lock = self.lock(name)?;
        self.inspection(name, lock.as_ref())
    }

    pub(super) fn scan(
        &self,
        prefix: &str,
        from: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Inspection>, Failure> {
        let limit = limit.max(1) as usize;
        let mut names = self.cached(include_str!("names.sql"))?;
        let after = from.map_or("", Cursor::as_str);
        let least = prefix.max(after);
        let mut rows = names.query(params![least, self.boot, nanos(self.now.boot), SCAN_ROWS_MAX])?;
        let mut items = Vec::new();
        let (mut looked_at, mut last) = (0, String::new());
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            if !text.starts_with(prefix) {
                return Ok(Page { items, next: None });
            }
            let lock = Lock::read(row, 1)?;
            let in_use = text != after && (self.tenant(&lock).is_some() || row.get(5)?);
            if in_use && items.len() == limit {
                return Ok(Page { items, next: Some(Cursor::new(last)) });
            }
            if let (true, Ok(name)) = (in_use, Name::new(&text)) {
                items.push(self.inspection(&name, Some(&lock))?);
            }
            looked_at += 1;
            last = text;
        }
        let next = (looked_at == SCAN_ROWS_MAX).then(|| Cursor::new(last));
        Ok(Page { items, next })
    }

    /// How many names are held and how many attempts wait.
    pub(super) fn counts(&self) -> Result<(u64, u64), Failure> {
        let counts = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let (held, waiting) = self
            .cached(include_str!("counts.sql"))?
            .query_row(params![self.boot, nanos(self.now.boot)], counts)?;
        Ok((held.unsigned_abs(), waiting.unsigned_abs()))
    }

    /// SQLite's own word for how it writes.
    pub(super) fn journal_mode(&self) -> Result<String, Failure> {
        Ok(self.db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?)
    }

    /// How much of a commit waits for the disk: 1 is seldom, 2 is each.
    #[cfg(test)]
    pub(super) fn synchronous(&self) -> Result<i64, Failure> {
        Ok(self.db.query_row("PRAGMA synchronous", [], |row| row.get(0))?)
    }

    fn lock(&self, name: &Name) -> Result<Option<Lock>, Failure> {
        let lock = self
            .cached("SELECT fence, owner, boot, closed_until FROM lock WHERE name = ?1")?
            .query_row([name.as_str()], |row| Lock::read(row, 0))
            .optional()?;
        Ok(lock)
    }

    /// The owner value of the one who holds the lock now.
    fn tenant<'l>(&self, lock: &'l Lock) -> Option<&'l str> {
        let closed = lock.boot == self.boot && lock.closed_until > self.now.boot;
        lock.owner.as_deref().filter(|_| closed)
    }

    fn lease(&self, lock: &Lock) -> Option<Lease> {
        let owner = OwnerId::parse(self.tenant(lock)?.get(..32)?)?;
        Some(Lease { owner, fence: Fence::new(lock.fence), closed_until: lock.closed_until })
    }

    fn tenure(&self, lock: &Lock) -> Option<Tenure> {
        self.tenant(lock).map(|owner| Tenure {
            holder: Holder::parse(owner),
            fence: Fence::new(lock.fence),
            mode: Mode::Exclusive,
            expires_in: Some(lock.closed_until.since(self.now.boot)),
        })
    }

    /// Since when the lock is free, or when it will be unless it is renewed.
    fn free_since(&self, lock: &Lock) -> BootInstant {
        if lock.boot == self.boot { lock.closed_until } else { BootInstant::from_nanos(0) }
    }

    fn place(&self, name: &Name, owner: &Owner) -> Result<Option<i64>, Failure> {
        let place = self
            .cached("SELECT place FROM waiter WHERE name = ?1 AND owner = ?2")?
            .query_row([name.as_str(), owner.expose()], |row| row.get(0))
            .optional()?;
        Ok(place)
    }

    fn line(&self, name: &Name, place: i64) -> Result<Line, Failure> {
        let read = |row: &Row<'_>| {
            let turns = Duration::from_nanos(row.get::<_, i64>(1)?.max(0).unsigned_abs());
            Ok(Line { ahead: row.get(0)?, turns })
        };
        let line = self
            .cached(include_str!("line.sql"))?
            .query_row(params![name.as_str(), self.boot, nanos(self.now.boot), place], read)?;
        Ok(line)
    }

    fn grant(&self, claim: &Claim, last: Option<&Lock>, since: BootInstant) -> Result<Answer, Failure> {
        let fence = self.next_fence(last.map_or(0, |last| last.fence))?;
        self.leave_queue(&claim.name, &claim.owner)?;
        self.run(
            include_str!("grant.sql"),
            params![
                claim.name.as_str(),
                fence.cast_signed(),
                claim.owner.expose(),
                self.boot,
                nanos(lock::closed_until(self.now.boot, claim.ttl, claim.lock_delay)),
            ],
        )?;
        if last.is_none() {
            let oldest_kept_us = self.now.wall_us.saturating_sub(KEPT.as_micros() as u64);
            self.run(
                include_str!("sweep_locks.sql"),
                params![oldest_kept_us.cast_signed(), self.boot, nanos(self.now.boot)],
            )?;
        }
        Ok(Answer::Granted(Grant { fence: Fence::new(fence), since, ttl: claim.ttl, acks: 0 }))
    }

    pub(super) fn next_fence(&self, last: u64) -> Result<u64, Failure> {
        Ok(lock::next_fence(last, self.now.wall_us)?.get())
    }

    fn extend(&self, hold: &Hold) -> Result<bool, Failure> {
        let changed = self.run(
            include_str!("extend.sql"),
            params![
                hold.name.as_str(),
                hold.owner.expose(),
                self.boot,
                nanos(self.now.boot),
                nanos(lock::closed_until(self.now.boot, hold.ttl, hold.lock_delay)),
            ],
        )?;
        Ok(changed == 1)
    }

    fn leave_queue(&self, name: &Name, owner: &Owner) -> Result<(), Failure> {
        self.run("DELETE FROM waiter WHERE name = ?1 AND owner = ?2", [name.as_str(), owner.expose()])?;
        Ok(())
    }

    /// Notes a hint for every waiter that may claim a lock free since then; answers whether anybody live waits.
    fn hint_those_in_turn(
        &mut self,
        name: &Name,
        free_since: BootInstant,
        but: Option<&Owner>,
    ) -> Result<bool, Failure> {
        let mut queue = self.cached(include_str!("queue.sql"))?;
        let mut rows = queue.query(params![name.as_str(), self.boot, nanos(self.now.boot), HINTS_MAX])?;
        let (mut anybody, mut turn_begins) = (false, free_since);
        while let Some(row) = rows.next()? {
            anybody = true;
            if turn_begins > self.now.boot {
                break;
            }
            let owner: String = row.get(0)?;
            let turn: i64 = row.get(2)?;
            turn_begins = turn_begins + Duration::from_nanos(turn.max(0).unsigned_abs());
            if let (Some(id), true) = (owner.get(..32), but.is_none_or(|but| but.expose() != owner)) {
                self.hints.push(Hint { wake: row.get(3)?, owner_id: id.into() });
            }
        }
        Ok(anybody)
    }

    fn inspection(&self, name: &Name, lock: Option<&Lock>) -> Result<Inspection, Failure> {
        let show = |row: &Row<'_>| {
            let owner: String = row.get(0)?;
            let arrived = instant(row, 1)?;
            let holder = Holder::parse(&owner);
            Ok(Waiter { holder, mode: Mode::Exclusive, waiting_for: self.now.boot.since(arrived) })
        };
        let waiters = self
            .cached(include_str!("queue.sql"))?
            .query_map(params![name.as_str(), self.boot, nanos(self.now.boot), WAITERS_SHOWN], show)
            .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)?;
        let waiting = match waiters.len() as u32 {
            shown if shown < WAITERS_SHOWN => shown,
            _ => self.line(name, BEHIND_ALL)?.ahead,
        };
        let holders = lock.and_then(|lock| self.tenure(lock)).into();
        Ok(Inspection { name: name.clone(), holders, waiters, waiting })
    }

    pub(super) fn run(&self, sql: &str, params: impl rusqlite::Params) -> Result<usize, Failure> {
        Ok(self.cached(sql)?.execute(params)?)
    }

    pub(super) fn cached(&self, sql: &str) -> Result<CachedStatement<'t>, Failure> {
        Ok(self.db.prepare_cached(sql)?)
    }
}

#[cfg(test)]
mod tests;
