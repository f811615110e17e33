//! The deadlines behind `memory:` and their atomic operations. Pure: the time comes with each call.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

use super::Memory;
use crate::{
    clock::{BootInstant, Now, Until},
    engine::{
        Cursor, Fut, Page,
        deadlines::{
            Batch, Dead, Deadline, DeadlineId, Deadlines, Delivery, DueTime, Pending, Pool, PoolLayout,
            PoolStats, Receipt, Settle,
        },
    },
    name::Name,
};

pub(super) type Pools = BTreeMap<Name, PoolState>;

#[derive(Default)]
pub(super) struct PoolState {
    layout: Option<PoolLayout>,
    deadlines: HashMap<DeadlineId, Entry>,
    /// Every deadline by its bucket, by when it is due, and by its id.
    order: BTreeSet<(u16, u64, DeadlineId)>,
    // Ordered, so that pages have a cursor.
    dead: BTreeMap<DeadlineId, Dead>,
    last_receipt: u64,
}

struct Entry {
    bucket: u16,
    /// By the wall clock.
    due_ms: u64,
    /// By the boot clock, once it was claimed: a step of the wall clock shows nothing too early.
    hidden_until: Option<BootInstant>,
    attempts: u32,
    receipt: Option<u64>,
    context: Option<Bytes>,
}

impl Entry {
    fn hidden_for(self, time: Duration, now: Now) -> Self {
        Self { due_ms: later(now, time), hidden_until: Some(now.boot + time), ..self }
    }

    fn overdue(&self, now: Now) -> Duration {
        Duration::from_millis(now_ms(now).saturating_sub(self.due_ms))
    }
}

impl PoolState {
    /// What may be claimed from a bucket, oldest first.
    fn due(&self, bucket: u16, now: Now) -> impl Iterator<Item = (&DeadlineId, &Entry)> {
        let end = (bucket, now_ms(now) + 1, DeadlineId::from(""));
        let come = self.order.range((bucket, 0, DeadlineId::from(""))..end);
        let come = come.map(|(_, _, id)| (id, &self.deadlines[id]));
        come.filter(move |(_, entry)| entry.hidden_until.is_none_or(|until| until <= now.boot))
    }

    fn put(&mut self, id: &DeadlineId, entry: Entry) {
        self.take(id);
        self.order.insert((entry.bucket, entry.due_ms, id.clone()));
        self.deadlines.insert(id.clone(), entry);
    }

    fn take(&mut self, id: &DeadlineId) -> Option<Entry> {
        let entry = self.deadlines.remove(id)?;
        self.order.remove(&(entry.bucket, entry.due_ms, id.clone()));
        Some(entry)
    }

    fn claim(&mut self, id: &DeadlineId, visibility: Duration, now: Now) -> Option<Delivery> {
        let entry = self.take(id)?;
        self.last_receipt = (self.last_receipt + 1).max(now.wall_us);
        let (number, attempt) = (self.last_receipt, entry.attempts.saturating_add(1));
        let delivery = Delivery {
            receipt: Receipt { id: id.clone(), number },
            attempt,
            overdue: entry.overdue(now),
            context: entry.context.clone(),
        };
        let entry = Entry { attempts: attempt, receipt: Some(number), ..entry };
        self.put(id, entry.hidden_for(visibility, now));
        Some(delivery)
    }

    fn settle(&mut self, Receipt { id, number }: &Receipt, settle: &Settle, now: Now) -> bool {
        if self.deadlines.get(id).and_then(|entry| entry.receipt) != Some(*number) {
            return false;
        }
        let Some(entry) = self.take(id) else { return false };
        match settle {
            Settle::Done => {}
            Settle::Postpone(by) => self.put(id, entry.hidden_for(*by, now)),
            Settle::GiveBack => {
                let (due_ms, attempts) = (now_ms(now), entry.attempts.saturating_sub(1));
                self.put(id, Entry { due_ms, hidden_until: None, attempts, receipt: None, ..entry });
            }
            Settle::Bury(why) => {
                let Entry { attempts, context, .. } = entry;
                let (why, buried_at_ms) = (why.clone(), now_ms(now));
                self.dead.insert(id.clone(), Dead { id: id.clone(), attempts, buried_at_ms, why, context });
            }
        }
        true
    }

    fn layout(&mut self, pool: &Pool) -> PoolLayout {
        *self.layout.get_or_insert(pool.layout)
    }

    fn set(&mut self, pool: &Pool, deadlines: &[Deadline], now: Now) {
        for Deadline { id, due, context } in deadlines {
            self.dead.remove(id);
            let due_ms = match due {
                DueTime::In(after) => later(now, *after),
                DueTime::AtMs(at) => *at,
            };
            let (bucket, context) = (pool.bucket_of(id), context.clone());
            let entry = Entry { bucket, due_ms, hidden_until: None, attempts: 0, receipt: None, context };
            self.put(id, entry);
        }
    }

    fn claim_due(&mut self, pool: &Pool, limit: u32, visibility: Duration, now: Now) -> Batch {
        let mut batch = Batch::default();
        for bucket in 0..pool.layout.buckets {
            let mut due = self.due(bucket, now).map(|(id, _)| id.clone());
            let ids: Vec<_> = due.by_ref().take(limit as usize).collect();
            batch.more |= due.next().is_some();
            drop(due);
            batch.due.extend(ids.iter().filter_map(|id| self.claim(id, visibility, now)));
        }
        batch
    }

    fn cancel(&mut self, id: &DeadlineId) -> bool {
        self.dead.remove(id).is_some() | self.take(id).is_some()
    }

    fn peek(&self, pool: &Pool, limit: u32, now: Now) -> Vec<Pending> {
        let mut due: Vec<_> = (0..pool.layout.buckets).flat_map(|bucket| self.due(bucket, now)).collect();
        due.sort_unstable_by_key(|(id, entry)| (entry.due_ms, *id));
        let show = |(id, entry): (&DeadlineId, &Entry)| Pending {
            id: id.clone(),
            attempts: entry.attempts,
            overdue: entry.overdue(now),
        };
        due.into_iter().take(limit as usize).map(show).collect()
    }

    fn dead(&self, from: Option<&Cursor>, limit: u32) -> Page<Dead> {
        let after = from.map_or("", Cursor::as_str);
        let dead = self.dead.values().filter(|dead| *dead.id > *after);
        Page::first(dead.cloned(), limit, |dead| &*dead.id)
    }

    fn stats(&self, pool: &Pool, now: Now) -> PoolStats {
        let due: Vec<_> = (0..pool.layout.buckets).flat_map(|bucket| self.due(bucket, now)).collect();
        PoolStats {
            pending: self.deadlines.len() as u64,
            due: due.len() as u64,
            tried: self.deadlines.values().filter(|entry| entry.attempts > 0).count() as u64,
            overdue: due.iter().map(|(_, entry)| entry.overdue(now)).max().unwrap_or_default(),
            dead: self.dead.len() as u64,
        }
    }
}

fn now_ms(now: Now) -> u64 {
    now.wall_us / 1_000
}

fn later(now: Now, by: Duration) -> u64 {
    now_ms(now).saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
}

impl Memory {
    fn on_pool<T: Send + 'static>(
        &self,
        pool: &Pool,
        operation: impl FnOnce(&mut PoolState, Now) -> T,
    ) -> Fut<'static, T> {
        self.atomic(|store, now| operation(store.pools.entry(pool.name.clone()).or_default(), now))
    }
}

impl Deadlines for Memory {
    fn layout<'a>(&'a self, pool: &'a Pool, _: Until) -> Fut<'a, PoolLayout> {
        self.on_pool(pool, |state, _| state.layout(pool))
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, _: Until) -> Fut<'a, Option<PoolLayout>> {
        self.atomic(|store, _| store.pools.get(pool)?.layout)
    }

    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], _: Until) -> Fut<'a, ()> {
        self.on_pool(pool, |state, now| state.set(pool, deadlines, now))
    }

    fn claim_due<'a>(&'a self, pool: &'a Pool, limit: u32, visibility: Duration, _: Until) -> Fut<'a, Batch> {
        self.on_pool(pool, |state, now| state.claim_due(pool, limit, visibility, now))
    }

    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        _: Until,
    ) -> Fut<'a, Vec<bool>> {
        self.on_pool(pool, |state, now| {
            settlements.iter().map(|(receipt, settle)| state.settle(receipt, settle, now)).collect()
        })
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], _: Until) -> Fut<'a, Vec<bool>> {
        self.on_pool(pool, |state, _| ids.iter().map(|id| state.cancel(id)).collect())
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, _: Until) -> Fut<'a, Vec<Pending>> {
        self.on_pool(pool, |state, now| state.peek(pool, limit, now))
    }

    fn dead<'a>(&'a self, pool: &'a Pool, from: Option<Cursor>, limit: u32, _: Until) -> Fut<'a, Page<Dead>> {
        self.on_pool(pool, |state, _| state.dead(from.as_ref(), limit))
    }

    fn stats<'a>(&'a self, pool: &'a Pool, _: Until) -> Fut<'a, PoolStats> {
        self.on_pool(pool, |state, now| state.stats(pool, now))
    }
}
