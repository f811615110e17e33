//! The deadlines behind `memory:` and their atomic operations. Pure: the time comes with each call.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;

use super::{Memory, store::Now};
use crate::{
    clock::{BootInstant, Until},
    engine::{
        Cursor, Fut, Page,
        deadlines::{
            Claimed, Dead, Deadline, DeadlineId, Deadlines, Due, DueTime, Pending, Pool, PoolLayout,
            PoolStats, Receipt,
        },
    },
    name::Name,
};

#[derive(Default)]
pub(super) struct Pools(BTreeMap<Name, PoolState>);

#[derive(Default)]
struct PoolState {
    layout: Option<PoolLayout>,
    buckets: BTreeMap<u16, Bucket>,
    // Ordered, so that pages have a cursor.
    dead: BTreeMap<DeadlineId, Dead>,
}

#[derive(Default)]
struct Bucket {
    deadlines: HashMap<DeadlineId, Entry>,
    /// Every deadline by when it is due, and among those of one millisecond by its id.
    order: BTreeSet<(u64, DeadlineId)>,
    last_receipt: u64,
}

struct Entry {
    /// By the wall clock.
    due_ms: u64,
    /// By the boot clock, once it was claimed: a step of the wall clock shows nothing too early.
    hidden_until: Option<BootInstant>,
    attempts: u32,
    receipt: Option<u64>,
    context: Option<Bytes>,
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
            let due_ms = match deadline.due {
                DueTime::In(after) => later(now, after),
                DueTime::AtMs(at) => at,
            };
            let context = deadline.context.clone();
            let entry = Entry { due_ms, hidden_until: None, attempts: 0, receipt: None, context };
            state.bucket(pool, &deadline.id).put(deadline.id.clone(), entry);
        }
    }

    pub(super) fn claim_due(&mut self, pool: &Pool, limit: u32, visibility: Duration, now: Now) -> Claimed {
        let mut claimed = Claimed::default();
        for bucket in self.pool(pool).buckets.values_mut() {
            bucket.claim_due(limit, visibility, now, &mut claimed);
        }
        claimed
    }

    pub(super) fn acknowledge(&mut self, pool: &Pool, done: &[Receipt]) -> Vec<bool> {
        let state = self.pool(pool);
        done.iter().map(|receipt| state.bucket(pool, &receipt.id).take_claimed(receipt).is_some()).collect()
    }

    pub(super) fn postpone(&mut self, pool: &Pool, again: &[(Receipt, Duration)], now: Now) -> Vec<bool> {
        let state = self.pool(pool);
        let postponed = again.iter().map(|(receipt, by)| {
            let bucket = state.bucket(pool, &receipt.id);
            let entry = bucket.take_claimed(receipt);
            let held = entry.is_some();
            if let Some(entry) = entry {
                bucket.put(receipt.id.clone(), entry.hidden_for(*by, now));
            }
            held
        });
        postponed.collect()
    }

    pub(super) fn bury(&mut self, pool: &Pool, dead: &[(Receipt, String)], now: Now) -> Vec<bool> {
        let state = self.pool(pool);
        let buried = dead.iter().map(|(receipt, why)| {
            let entry = state.bucket(pool, &receipt.id).take_claimed(receipt);
            let held = entry.is_some();
            if let Some(entry) = entry {
                let dead = Dead {
                    id: receipt.id.clone(),
                    attempts: entry.attempts,
                    buried_at_ms: now.wall_us / 1_000,
                    why: why.clone(),
                    context: entry.context,
                };
                state.dead.insert(receipt.id.clone(), dead);
            }
            held
        });
        buried.collect()
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

impl Entry {
    fn hidden_for(self, time: Duration, now: Now) -> Self {
        Self { due_ms: later(now, time), hidden_until: Some(now.boot + time), ..self }
    }
}

impl Bucket {
    fn due(&self, now: Now) -> impl Iterator<Item = &(u64, DeadlineId)> {
        let come = self.order.iter().take_while(move |(due_ms, _)| *due_ms <= now.wall_us / 1_000);
        come.filter(move |(_, id)| self.deadlines[id].hidden_until.is_none_or(|until| until <= now.boot))
    }

    fn put(&mut self, id: DeadlineId, entry: Entry) {
        self.order.insert((entry.due_ms, id.clone()));
        if let Some(old) = self.deadlines.insert(id.clone(), entry)
            && old.due_ms != self.deadlines[&id].due_ms
        {
            self.order.remove(&(old.due_ms, id));
        }
    }

    fn take(&mut self, id: &DeadlineId) -> Option<Entry> {
        let entry = self.deadlines.remove(id)?;
        self.order.remove(&(entry.due_ms, id.clone()));
        Some(entry)
    }

    /// Takes a deadline out if it is still claimed under this receipt.
    fn take_claimed(&mut self, receipt: &Receipt) -> Option<Entry> {
        let good = self.deadlines.get(&receipt.id)?.receipt == Some(receipt.number);
        if good { self.take(&receipt.id) } else { None }
    }

    fn claim_due(&mut self, limit: u32, visibility: Duration, now: Now, claimed: &mut Claimed) {
        let now_ms = now.wall_us / 1_000;
        let mut due: Vec<_> = self.due(now).take(limit as usize + 1).cloned().collect();
        if due.len() > limit as usize {
            due.pop();
            claimed.more = true;
        }
        for (due_ms, id) in due {
            let Some(entry) = self.take(&id) else { continue };
            self.last_receipt = (self.last_receipt + 1).max(now.wall_us);
            let attempt = entry.attempts.saturating_add(1);
            claimed.due.push(Due {
                receipt: Receipt { id: id.clone(), number: self.last_receipt },
                attempt,
                overdue: Duration::from_millis(now_ms - due_ms),
                context: entry.context.clone(),
            });
            let receipt = Some(self.last_receipt);
            self.put(id, Entry { attempts: attempt, receipt, ..entry }.hidden_for(visibility, now));
        }
    }
}

fn later(now: Now, by: Duration) -> u64 {
    (now.wall_us / 1_000).saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
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

    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        _: Until,
    ) -> Fut<'a, Claimed> {
        self.atomic(|store, now| store.pools.claim_due(pool, limit, visibility, now))
    }

    fn acknowledge<'a>(&'a self, pool: &'a Pool, done: &'a [Receipt], _: Until) -> Fut<'a, Vec<bool>> {
        self.atomic(|store, _| store.pools.acknowledge(pool, done))
    }

    fn postpone<'a>(
        &'a self,
        pool: &'a Pool,
        again: &'a [(Receipt, Duration)],
        _: Until,
    ) -> Fut<'a, Vec<bool>> {
        self.atomic(|store, now| store.pools.postpone(pool, again, now))
    }

    fn bury<'a>(&'a self, pool: &'a Pool, dead: &'a [(Receipt, String)], _: Until) -> Fut<'a, Vec<bool>> {
        self.atomic(|store, now| store.pools.bury(pool, dead, now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::deadlines::Placement;

    fn at(ms: u64) -> Now {
        Now { boot: BootInstant::from_nanos(ms * 1_000_000), wall_us: ms * 1_000 }
    }

    fn pool() -> Pool {
        let layout = PoolLayout { buckets: 4, placement: Placement::Spread };
        Pool { name: Name::new("payments").unwrap(), layout }
    }

    fn due_at(id: &str, ms: u64) -> Deadline {
        Deadline { id: id.into(), due: DueTime::AtMs(ms), context: Some(Bytes::from(id.to_owned())) }
    }

    fn ids(claimed: &Claimed) -> Vec<&str> {
        claimed.due.iter().map(|due| &*due.receipt.id).collect()
    }

    const VISIBILITY: Duration = Duration::from_millis(100);

    #[test]
    fn what_is_due_is_claimed_oldest_first_and_hidden_for_its_visibility() {
        let (mut pools, mut pool) = (Pools::default(), pool());
        pool.layout.buckets = 1;
        pools.set(&pool, &[due_at("late", 30), due_at("early", 10), due_at("next", 51)], at(0));
        assert_eq!(ids(&pools.claim_due(&pool, 10, VISIBILITY, at(50))), ["early", "late"]);
        assert_eq!(ids(&pools.claim_due(&pool, 10, VISIBILITY, at(149))), ["next"]);
        let again = pools.claim_due(&pool, 10, VISIBILITY, at(150));
        assert_eq!(ids(&again), ["early", "late"]);
        assert!(again.due.iter().all(|due| due.attempt == 2 && due.overdue.is_zero()));
    }

    #[test]
    fn a_step_of_the_wall_clock_shows_no_claimed_deadline_too_early() {
        let (mut pools, pool) = (Pools::default(), pool());
        let stepped = |ms| Now { wall_us: (ms + 3_600_000) * 1_000, ..at(ms) };
        pools.set(&pool, &[due_at("a", 0)], at(0));
        let claimed = pools.claim_due(&pool, 10, VISIBILITY, at(0)).due.remove(0);
        let nobodys = |pools: &mut Pools, ms| {
            assert!(pools.claim_due(&pool, 10, VISIBILITY, stepped(ms)).due.is_empty());
            assert!(pools.peek(&pool, 10, stepped(ms)).is_empty());
            let stats = PoolStats { pending: 1, tried: 1, ..PoolStats::default() };
            assert_eq!(pools.stats(&pool, stepped(ms)), stats);
        };
        nobodys(&mut pools, 99);
        assert_eq!(pools.postpone(&pool, &[(claimed.receipt, VISIBILITY)], at(99)), [true]);
        nobodys(&mut pools, 198);
        assert_eq!(pools.claim_due(&pool, 10, VISIBILITY, stepped(199)).due[0].attempt, 2);
    }

    #[test]
    fn a_limit_counts_per_bucket_and_more_is_told() {
        let (mut pools, pool) = (Pools::default(), pool());
        let many: Vec<_> = (0..40).map(|n| due_at(&format!("tx:{n}"), n)).collect();
        pools.set(&pool, &many, at(0));
        let first = pools.claim_due(&pool, 3, VISIBILITY, at(50));
        assert_eq!((first.due.len(), first.more), (12, true));
        let rest = pools.claim_due(&pool, 100, VISIBILITY, at(50));
        assert_eq!((rest.due.len(), rest.more), (28, false));
    }

    #[test]
    fn an_old_receipt_is_good_for_nothing() {
        let (mut pools, pool) = (Pools::default(), pool());
        let claim =
            |pools: &mut Pools, ms| pools.claim_due(&pool, 10, VISIBILITY, at(ms)).due.remove(0).receipt;
        pools.set(&pool, &[due_at("a", 0)], at(0));
        let claimed_again_since = claim(&mut pools, 0);
        let set_again_since = claim(&mut pools, 100);
        pools.set(&pool, &[due_at("a", 0)], at(150));
        for old in [claimed_again_since, set_again_since] {
            assert_eq!(pools.acknowledge(&pool, std::slice::from_ref(&old)), [false]);
            assert_eq!(pools.postpone(&pool, &[(old.clone(), VISIBILITY)], at(150)), [false]);
            assert_eq!(pools.bury(&pool, &[(old, "why".into())], at(150)), [false]);
        }
        let good = claim(&mut pools, 150);
        assert_eq!(pools.postpone(&pool, &[(good.clone(), VISIBILITY)], at(150)), [true]);
        assert_eq!(pools.postpone(&pool, &[(good, VISIBILITY)], at(150)), [true], "sent again");
        assert_eq!(pools.stats(&pool, at(150)), PoolStats { pending: 1, tried: 1, ..PoolStats::default() });
        let good = claim(&mut pools, 250);
        assert_eq!(pools.acknowledge(&pool, &[good.clone(), good]), [true, false]);
        assert_eq!(pools.stats(&pool, at(999)), PoolStats::default());
    }

    #[test]
    fn the_dead_keep_their_context_until_they_are_set_again_or_cancelled() {
        let (mut pools, pool) = (Pools::default(), pool());
        pools.set(&pool, &[due_at("a", 0), due_at("b", 0), due_at("c", 0)], at(0));
        let claimed = pools.claim_due(&pool, 10, VISIBILITY, at(7));
        let dead: Vec<_> = claimed.due.iter().map(|due| (due.receipt.clone(), "gave up".into())).collect();
        assert_eq!(pools.bury(&pool, &dead, at(8)), [true; 3]);
        let first = pools.dead(&pool, None, 2);
        let last = pools.dead(&pool, first.next.as_ref(), 2);
        assert_eq!((first.items.len(), last.items.len(), last.next), (2, 1, None));
        let c = &last.items[0];
        assert_eq!((&*c.id, c.attempts, c.buried_at_ms, &*c.why), ("c", 1, 8, "gave up"));
        assert_eq!(c.context.as_deref(), Some(b"c".as_slice()));
        pools.set(&pool, &[due_at("a", 500)], at(9));
        assert_eq!(pools.cancel(&pool, &["b".into(), "a".into(), "x".into()]), [true, true, false]);
        assert_eq!(pools.stats(&pool, at(999)), PoolStats { dead: 1, ..PoolStats::default() });
    }

    #[test]
    fn peeking_claims_nothing_and_orders_over_all_buckets() {
        let (mut pools, pool) = (Pools::default(), pool());
        let many: Vec<_> = (0..20).map(|n| due_at(&format!("tx:{n}"), 100 - n)).collect();
        pools.set(&pool, &many, at(0));
        let seen = pools.peek(&pool, 3, at(90));
        let seen: Vec<_> = seen.iter().map(|pending| (&*pending.id, pending.overdue.as_millis())).collect();
        assert_eq!(seen, [("tx:19", 9), ("tx:18", 8), ("tx:17", 7)]);
        assert_eq!(pools.stats(&pool, at(90)).due, 10);
        assert_eq!(pools.stats(&pool, at(90)).overdue, Duration::from_millis(9));
    }

    #[test]
    fn the_first_layout_of_a_pool_stays() {
        let (mut pools, mut pool) = (Pools::default(), pool());
        let first = pools.layout(&pool);
        pool.layout = PoolLayout { buckets: 8, placement: Placement::Together };
        assert_eq!((first.buckets, pools.layout(&pool)), (4, first));
    }
}
