//! Deadlines: a sorted set per bucket, and beside it what is known of those that were claimed.
//!
//! Each operation is one script ([`bucket`]). On one server all buckets of a pool are claimed from by a single call, which
//! mostly ends at a side key that exists while nothing is due; in a cluster each bucket has its own, all of a shard leave
//! in one write and shards are asked at the same time. All times are the server's.

mod answer;
mod bucket;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{Cmd, Value};

use super::{Redis, Servers, errands::Errand, script::Script, slots};
use crate::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Fut, Page, Told,
        deadlines::{
            Claimed, Dead, Deadline, DeadlineId, Deadlines, DueTime, Pending, Placement, Pool, PoolLayout,
            PoolStats, Receipt,
        },
    },
    name::Name,
};
use bucket::{ALL, Bucket, Side, Touched};

/// Deadlines in one call; bounds how long the server is busy with one, and what Lua unpacks.
const ITEMS_PER_CALL: usize = 500;
/// Latest time that scores are exact for.
const LATEST_MS: u64 = 1 << 52;
/// How far the clock of a node may be ahead of ours before quiet pools are not recognized as such.
const CLOCKS_APART_MS: u64 = 1000;
/// Calls of one page of dead deadlines.
const SCANS_PER_PAGE: usize = 50;

/// Pools of a cluster whose last claim found nothing due. The next one asks first whether anything is, which costs another
/// round trip if so, and much less if not.
#[derive(Default)]
pub(super) struct Quiet(Mutex<HashSet<Name>>);

impl Quiet {
    fn has(&self, pool: &Name) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(pool)
    }

    fn note(&self, pool: &Name, quiet: bool) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !quiet {
            pools.remove(pool);
        } else if !pools.contains(pool) {
            pools.insert(pool.clone());
        }
    }
}

type Result<T> = std::result::Result<T, EngineError>;

impl Redis {
    /// One call on some buckets of a pool.
    fn errand<'a>(
        &self,
        touched: Touched<'a>,
        arguments: usize,
        write: impl Fn(&mut Cmd) + Send + Sync + 'a,
    ) -> Errand<'a> {
        let slot = match (&self.servers, touched.buckets.first()) {
            (Servers::Cluster(_), Some(bucket)) => bucket.slot(),
            _ => 0,
        };
        Errand::new(slot, move |script: &Script, by_hash| {
            let mut cmd = bucket::call(script, by_hash, touched, arguments);
            write(&mut cmd);
            cmd
        })
    }

    /// Whether one call can reach all buckets; otherwise it reaches one.
    fn reaches_all(&self, pool: &Pool) -> bool {
        !matches!((&self.servers, pool.layout.placement), (Servers::Cluster(_), Placement::Spread))
    }

    /// What exists while nothing of the pool is due, if a claim is one call.
    fn quiet_key(&self, pool: &Pool) -> Option<String> {
        self.reaches_all(pool).then(|| bucket::quiet_key(pool))
    }

    /// The buckets of a pool, as many at a time as one call can reach.
    fn at_once<'a>(&self, pool: &Pool, buckets: &'a [Bucket<'a>]) -> std::slice::Chunks<'a, Bucket<'a>> {
        buckets.chunks(if self.reaches_all(pool) { buckets.len() } else { 1 })
    }

    /// Asks all buckets of a pool.
    async fn ask_all(
        &self,
        pool: &Pool,
        script: &Script,
        sides: &[Side],
        write: impl Fn(&mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<Value>> {
        let buckets = bucket::all(pool)?;
        let errand = |some| self.errand(Touched { buckets: some, sides, quiet: None }, 2, &write);
        let errands = self.at_once(pool, &buckets).map(errand).collect();
        let answers = self.run_errands(Some(&pool.name), script, errands, until).await;
        answers.into_iter().map(|answer| named(&pool.name, answer)).collect()
    }

    /// Deals items out to their buckets; answers which items each call had, and what it answered.
    async fn deal<'a>(
        &self,
        pool: &Pool,
        (script, quiet): (&Script, Option<&str>),
        ids: impl Iterator<Item = &'a str>,
        write: impl Fn(usize, &mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<(Vec<usize>, Value)>> {
        let buckets = bucket::all(pool)?;
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, id) in ids.enumerate() {
            groups.entry(pool.bucket_of(id)).or_default().push(at);
        }
        let calls: Vec<(usize, &[usize])> = groups
            .iter()
            .flat_map(|(bucket, places)| {
                places.chunks(ITEMS_PER_CALL).map(|some| (usize::from(*bucket), some))
            })
            .collect();
        let write = &write;
        let errands = calls.iter().map(|(bucket, places)| {
            let touched = Touched { buckets: &buckets[*bucket..=*bucket], sides: &ALL, quiet };
            self.errand(touched, 3 * places.len(), move |cmd| {
                places.iter().for_each(|at| write(*at, cmd));
            })
        });
        let answers = self.run_errands(Some(&pool.name), script, errands.collect(), until).await;
        calls
            .iter()
            .zip(answers)
            .map(|((_, places), answer)| Ok((places.to_vec(), named(&pool.name, answer)?)))
            .collect()
    }

    /// The same for scripts that answer a digit per item.
    async fn deal_for_digits<'a>(
        &self,
        pool: &Pool,
        script: (&Script, Option<&str>),
        ids: impl ExactSizeIterator<Item = &'a str>,
        write: impl Fn(usize, &mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<bool>> {
        let mut found = vec![false; ids.len()];
        for (places, value) in self.deal(pool, script, ids, write, until).await? {
            let digits = answer::digits(value, places.len())?;
            places.into_iter().zip(digits).for_each(|(at, digit)| found[at] = digit);
        }
        Ok(found)
    }

    /// How a pool is laid out; what is wanted is stored if it is new.
    async fn layout_of(
        &self,
        pool: &Name,
        wanted: Option<PoolLayout>,
        until: Until,
    ) -> Result<Option<PoolLayout>> {
        bucket::check_name(pool)?;
        let key = bucket::layout_key(pool);
        let errand = Errand::new(slots::slot(&key), |script: &Script, by_hash| {
            let mut cmd = super::script::begin(script, by_hash, 2 * key.len());
            cmd.arg(1).arg(&key).arg(wanted.map(bucket::write_layout));
            cmd
        });
        let mut answers = self.run_errands(Some(pool), &bucket::LAYOUT, vec![errand], until).await;
        match named(pool, answers.pop().unwrap_or_else(|| Err(EngineError::no_answer())))? {
            Value::Nil => Ok(None),
            stored => super::answer::text(&stored).and_then(bucket::read_layout).map(Some).ok_or_else(|| {
                let words = format!("the layout of the pool {pool} cannot be read: see the key {key}");
                EngineError::new(Fault::Corrupt, words)
            }),
        }
    }

    async fn lay_out(&self, pool: &Pool, until: Until) -> Result<PoolLayout> {
        bucket::all(pool)?;
        let stored = self.layout_of(&pool.name, Some(pool.layout), until).await?;
        stored.ok_or_else(EngineError::no_answer)
    }

    async fn set_deadlines(&self, pool: &Pool, deadlines: &[Deadline], until: Until) -> Result<()> {
        // Of two with one id the last counts.
        let last: HashMap<&str, usize> =
            deadlines.iter().enumerate().map(|(at, deadline)| (&*deadline.id, at)).collect();
        let mut places: Vec<_> = last.into_values().collect();
        places.sort_unstable();
        let write = |at: usize, cmd: &mut Cmd| {
            let Deadline { id, due, context } = &deadlines[places[at]];
            cmd.arg(&**id);
            match due {
                DueTime::In(after) => cmd.arg(format!("+{}", millis(*after))),
                DueTime::AtMs(at) => cmd.arg((*at).min(LATEST_MS)),
            };
            match context {
                Some(context) => cmd.arg([b"=", &context[..]].concat()),
                None => cmd.arg("-"),
            };
        };
        let ids = places.iter().map(|at| &*deadlines[*at].id);
        let quiet = self.quiet_key(pool);
        self.deal(pool, (&bucket::SET, quiet.as_deref()), ids, write, until).await.map(drop)
    }

    async fn claim_deadlines(
        &self,
        pool: &Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Result<Claimed> {
        // A node that is about to get a slot and has not all of its keys must not answer; one server has them all.
        let sides: &[Side] = match &self.servers {
            Servers::One(..) => &[],
            Servers::Cluster(_) => &ALL[..3],
        };
        let quiet = self.quiet_key(pool);
        let script = if quiet.is_some() { &*bucket::CLAIM_ALL } else { &*bucket::CLAIM_ONE };
        let soon = self.clock.wall_us() / 1000 + CLOCKS_APART_MS;
        let looks_first = quiet.is_none() && self.quiet.has(&pool.name);
        let write = |cmd: &mut Cmd| {
            cmd.arg(limit.max(1)).arg(millis(visibility));
            if quiet.is_some() {
                let (before, after) = bucket::around_number(pool);
                cmd.arg(pool.layout.buckets).arg(before).arg(after);
            }
        };
        let buckets = bucket::all(pool)?;
        let errand = |some| {
            // A bucket whose keys are on two nodes is not waited for: it would keep back what was claimed from the
            // others, whose time is running.
            let touched = Touched { buckets: some, sides, quiet: quiet.as_deref() };
            let errand = self.errand(touched, 5, write).impatient();
            match some {
                [bucket] if looks_first => errand.if_due(bucket.key(Side::Due), soon),
                _ => errand,
            }
        };
        let errands = self.at_once(pool, &buckets).map(errand).collect();
        let answers = self.run_errands(Some(&pool.name), script, errands, until).await;
        let (mut claimed, mut failed) = (Claimed::default(), None);
        for answer in answers {
            let read = named(&pool.name, answer).and_then(|value| answer::claimed(value, &mut claimed));
            if let Err(error) = read {
                failed.get_or_insert(error);
            }
        }
        if quiet.is_none() {
            self.quiet.note(&pool.name, claimed.due.is_empty() && failed.is_none());
        }
        match failed {
            // What was claimed is not lost because of a shard that is.
            Some(error) if claimed.due.is_empty() => Err(error),
            _ => Ok(claimed),
        }
    }

    async fn peek_deadlines(&self, pool: &Pool, limit: u32, until: Until) -> Result<Vec<Pending>> {
        let mut found = Vec::new();
        let write = |cmd: &mut Cmd| {
            cmd.arg(limit);
        };
        for answer in self.ask_all(pool, &bucket::PEEK, &ALL[..2], write, until).await? {
            answer::peeked(answer, &mut found)?;
        }
        found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Ok(found.into_iter().take(limit as usize).map(|(_, pending)| pending).collect())
    }

    async fn pool_stats(&self, pool: &Pool, until: Until) -> Result<PoolStats> {
        let mut stats = PoolStats::default();
        let sides = [Side::Due, Side::Tries, Side::Dead];
        for answer in self.ask_all(pool, &bucket::STATS, &sides, |_| {}, until).await? {
            answer::stats(answer, &mut stats)?;
        }
        Ok(stats)
    }

    /// One bucket after the other. The cursor is the bucket, the server's own, and how many of what it leads to were given
    /// already.
    async fn page_of_dead(
        &self,
        pool: &Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Dead>> {
        let buckets = bucket::all(pool)?;
        let mut told = Told::before(from.as_ref());
        let (mut number, mut at, mut given) = position(from.as_ref().map_or("", Cursor::as_str));
        let mut items: Vec<Dead> = Vec::new();
        for _ in 0..SCANS_PER_PAGE {
            let Some(bucket) = buckets.get(number..=number) else {
                return Ok(Page { items, next: None });
            };
            let touched = Touched { buckets: bucket, sides: &[Side::Dead], quiet: None };
            let errand = self.errand(touched, 2, |cmd: &mut Cmd| {
                cmd.arg(&at).arg(limit.clamp(10, 100));
            });
            let mut answers = self.run_errands(Some(&pool.name), &bucket::DEAD, vec![errand], until).await;
            let answer = answers.pop().unwrap_or_else(|| Err(EngineError::no_answer()));
            let (next, found) = answer::dead(named(&pool.name, answer)?)?;
            let (fresh, left) = told.take(found, given, limit as usize - items.len(), |dead| &dead.id);
            items.extend(fresh);
            given = left.unwrap_or(0);
            if left.is_none() {
                at = next;
                number += usize::from(at == "0");
            }
            if items.len() == limit as usize {
                break;
            }
        }
        let next = (number < buckets.len()).then(|| Cursor::telling(format!("{number} {at} {given}"), told));
        Ok(Page { items, next })
    }
}

fn position(from: &str) -> (usize, String, usize) {
    let mut words = from.split(' ');
    let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let at = words.next().unwrap_or("0").to_owned();
    (number, at, words.next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

/// A time as scripts count it; longer ones than scores are exact for are as good as for ever.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(LATEST_MS)
}

/// An error about a key of another type says whose it is.
fn named<T>(pool: &Name, answer: Result<T>) -> Result<T> {
    answer.map_err(|error| match error.fault {
        Fault::WrongType => {
            let words = format!("a key of the pool {pool} is of another type");
            EngineError::new(Fault::WrongType, words)
        }
        _ => error,
    })
}

impl Deadlines for Redis {
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout> {
        Box::pin(self.lay_out(pool, until))
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, until: Until) -> Fut<'a, Option<PoolLayout>> {
        Box::pin(self.layout_of(pool, None, until))
    }

    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], until: Until) -> Fut<'a, ()> {
        Box::pin(self.set_deadlines(pool, deadlines, until))
    }

    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Fut<'a, Claimed> {
        Box::pin(self.claim_deadlines(pool, limit, visibility, until))
    }

    fn acknowledge<'a>(&'a self, pool: &'a Pool, done: &'a [Receipt], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| write_receipt(&done[at], cmd);
        let ids = done.iter().map(|receipt| &*receipt.id);
        Box::pin(self.deal_for_digits(pool, (&bucket::ACKNOWLEDGE, None), ids, write, until))
    }

    fn postpone<'a>(
        &'a self,
        pool: &'a Pool,
        again: &'a [(Receipt, Duration)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            let (receipt, after) = &again[at];
            write_receipt(receipt, cmd);
            cmd.arg(millis(*after));
        };
        let ids = again.iter().map(|(receipt, _)| &*receipt.id);
        Box::pin(async move {
            let quiet = self.quiet_key(pool);
            self.deal_for_digits(pool, (&bucket::POSTPONE, quiet.as_deref()), ids, write, until).await
        })
    }

    fn bury<'a>(&'a self, pool: &'a Pool, dead: &'a [(Receipt, String)], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            let (receipt, why) = &dead[at];
            write_receipt(receipt, cmd);
            cmd.arg(why);
        };
        let ids = dead.iter().map(|(receipt, _)| &*receipt.id);
        Box::pin(self.deal_for_digits(pool, (&bucket::BURY, None), ids, write, until))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            cmd.arg(&*ids[at]);
        };
        Box::pin(self.deal_for_digits(
            pool,
            (&bucket::CANCEL, None),
            ids.iter().map(|id| &**id),
            write,
            until,
        ))
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, until: Until) -> Fut<'a, Vec<Pending>> {
        Box::pin(self.peek_deadlines(pool, limit, until))
    }

    fn dead<'a>(
        &'a self,
        pool: &'a Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Dead>> {
        Box::pin(self.page_of_dead(pool, from, limit, until))
    }

    fn stats<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolStats> {
        Box::pin(self.pool_stats(pool, until))
    }
}

fn write_receipt(receipt: &Receipt, cmd: &mut Cmd) {
    cmd.arg(&*receipt.id).arg(receipt.number);
}
