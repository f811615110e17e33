//! The deadlines behind `memory:` and their atomic operations. Pure: the time comes with each call.

mod bucket;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use super::{Memory, store::Now};
use crate::{
    clock::Until,
    engine::{
        Cursor, Fut, Page,
        deadlines::{
            Batch, Dead, Deadline, DeadlineId, Deadlines, Pending, Pool, PoolLayout, PoolStats, Receipt,
            Settle,
        },
    },
    name::Name,
};
use bucket::{Bucket, Entry};

#[derive(Default)]
pub(super) struct Pools(BTreeMap<Name, PoolState>);

#[derive(Default)]
struct PoolState {
    layout: Option<PoolLayout>,
    buckets: BTreeMap<u16, Bucket>,
    // Ordered, so that pages have a cursor.
    dead: BTreeMap<DeadlineId, Dead>,
}

impl Pools {
    fn pool(&mut self, pool: &Pool) -> &mut PoolState {
        self.0.entry(pool.name.clone()).or_default()
    }

    pub(super) fn layout(&mut self, pool: &Pool) -> PoolLayout {
        *self.pool(pool).layout.get_or_insert(pool.layout)
    }

    pub(super) fn known_layout(&self, pool: &Name) -> Option<PoolLayout> {
        self.0.get(pool)?.layout
    }

    pub(super) fn set(&mut self, pool: &Pool, deadlines: &[Deadline], now: Now) {
        let state = self.pool(pool);
        for deadline in deadlines {
            state.dead.remove(&deadline.id);
            state.bucket(pool, &deadline.id).put(deadline.id.clone(), Entry::new(deadline, now));
        }
    }

    pub(super) fn claim_due(&mut self, pool: &Pool, limit: u32, visibility: Duration, now: Now) -> Batch {
        let mut batch = Batch::default();
        for bucket in self.pool(pool).buckets.values_mut() {
            bucket.claim_due(limit, visibility, now, &mut batch);
        }
        batch
    }

    pub(super) fn settle(&mut self, pool: &Pool, settlements: &[(Receipt, Settle)], now: Now) -> Vec<bool> {
        let state = self.pool(pool);
        let settled = settlements.iter().map(|(receipt, settle)| {
            let bucket = state.bucket(pool, &receipt.id);
            let Some(entry) = bucket.take_claimed(receipt) else { return false };
            match settle {
                Settle::Done => {}
                Settle::Postpone(by) => bucket.put(receipt.id.clone(), entry.hidden_for(*by, now)),
                Settle::GiveBack => bucket.put(receipt.id.clone(), entry.given_back(now)),
                Settle::Bury(why) => {
                    let dead = Dead {
                        id: receipt.id.clone(),
                        attempts: entry.attempts,
                        buried_at_ms: now.wall_us / 1_000,
                        why: why.clone(),
                        context: entry.context,
                    };
                    state.dead.insert(receipt.id.clone(), dead);
                }
            }
            true
        });
        settled.collect()
    }

    pub(super) fn cancel(&mut self, pool: &Pool, ids: &[DeadlineId]) -> Vec<bool> {
        let state = self.pool(pool);
        let cancelled = ids.iter().map(|id| {
            let dead = state.dead.remove(id).is_some();
            state.bucket(pool, id).take(id).is_some() || dead
        });
        cancelled.collect()
    }

    pub(super) fn peek(&mut self, pool: &Pool, limit: u32, now: Now) -> Vec<Pending> {
        let now_ms = now.wall_us / 1_000;
        let mut due: Vec<_> = self
            .pool(pool)
            .buckets
            .values()
            .flat_map(|bucket| bucket.due(now).take(limit as usize).map(move |key| (key, bucket)))
            .collect();
        due.sort_unstable_by_key(|(key, _)| *key);
        let show = |((due_ms, id), bucket): (&(u64, DeadlineId), &Bucket)| Pending {
            id: id.clone(),
            attempts: bucket.deadlines[id].attempts,
            overdue: Duration::from_millis(now_ms - due_ms),
        };
        due.into_iter().take(limit as usize).map(show).collect()
    }

    pub(super) fn dead(&mut self, pool: &Pool, from: Option<&Cursor>, limit: u32) -> Page<Dead> {
        let after = from.map(Cursor::as_str);
        let rest = self.pool(pool).dead.values().filter(|dead| after.is_none_or(|after| *dead.id > *after));
        let mut items: Vec<_> = rest.take(limit as usize + 1).cloned().collect();
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items.last().filter(|_| more).map(|last| Cursor::new(&*last.id));
        Page { items, next }
    }

    pub(super) fn stats(&mut self, pool: &Pool, now: Now) -> PoolStats {
        let now_ms = now.wall_us / 1_000;
        let state = self.pool(pool);
        let mut stats = PoolStats { dead: state.dead.len() as u64, ..PoolStats::default() };
        for bucket in state.buckets.values() {
            stats.pending += bucket.deadlines.len() as u64;
            stats.due += bucket.due(now).count() as u64;
            stats.tried += bucket.deadlines.values().filter(|entry| entry.attempts > 0).count() as u64;
            if let Some((oldest, _)) = bucket.due(now).next() {
                stats.overdue = stats.overdue.max(Duration::from_millis(now_ms - oldest));
            }
        }
        stats
    }
}

impl PoolState {
    fn bucket(&mut self, pool: &Pool, id: &str) -> &mut Bucket {
        self.buckets.entry(pool.bucket_of(id)).or_default()
    }
}

impl Deadlines for Memory {
    fn layout<'a>(&'a self, pool: &'a Pool, _: Until) -> Fut<'a, PoolLayout> {
        self.atomic(|store, _| store.pools.layout(pool))
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, _: Until) -> Fut<'a, Option<PoolLayout>> {
        self.atomic(|store, _| store.pools.known_layout(pool))
    }

    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], _: Until) -> Fut<'a, ()> {
        self.atomic(|store, now| store.pools.set(pool, deadlines, now))
    }

    fn claim_due<'a>(&'a self, pool: &'a Pool, limit: u32, visibility: Duration, _: Until) -> Fut<'a, Batch> {
        self.atomic(|store, now| store.pools.claim_due(pool, limit, visibility, now))
    }

    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        _: Until,
    ) -> Fut<'a, Vec<bool>> {
        self.atomic(|store, now| store.pools.settle(pool, settlements, now))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], _: Until) -> Fut<'a, Vec<bool>> {
        self.atomic(|store, _| store.pools.cancel(pool, ids))
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, _: Until) -> Fut<'a, Vec<Pending>> {
        self.atomic(|store, now| store.pools.peek(pool, limit, now))
    }

    fn dead<'a>(&'a self, pool: &'a Pool, from: Option<Cursor>, limit: u32, _: Until) -> Fut<'a, Page<Dead>> {
        self.atomic(|store, _| store.pools.dead(pool, from.as_ref(), limit))
    }

    fn stats<'a>(&'a self, pool: &'a Pool, _: Until) -> Fut<'a, PoolStats> {
        self.atomic(|store, now| store.pools.stats(pool, now))
    }
}
