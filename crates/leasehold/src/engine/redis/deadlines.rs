//! Deadlines: a sorted set per bucket, and beside it what is known of those that were claimed.
//!
//! Each operation is one script ([`bucket`]). On one server all buckets of a pool are claimed from by a single call; in
//! a cluster each bucket has its own, all of a shard leave in one write and shards are asked at the same time. All times
//! are the server's.

mod answer;
mod bucket;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use redis::{Cmd, Value};

use super::{Redis, Servers, errands::Errand, script::Script, slots};
use crate::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Fut, Page,
        deadlines::{
            Claimed, Dead, Deadline, DeadlineId, Deadlines, DueTime, Pending, Placement, Pool, PoolLayout,
            PoolStats, Receipt,
        },
    },
};
use bucket::{ALL, Bucket, Side};

/// Deadlines in one call; bounds how long the server is busy with one, and what Lua unpacks.
const ITEMS_PER_CALL: usize = 500;
/// Latest time that scores are exact for.
const LATEST_MS: u64 = 1 << 52;
/// Calls of one page of dead deadlines.
const SCANS_PER_PAGE: usize = 50;

/// Whether a bucket whose keys are on two nodes is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Some,
    /// It keeps back what was claimed from the others, whose time is running.
    None,
}

type Result<T> = std::result::Result<T, EngineError>;

impl Redis {
    /// One call on some buckets of a pool.
    fn errand<'a>(
        &self,
        buckets: &'a [Bucket<'a>],
        sides: &'a [Side],
        arguments: usize,
        write: impl Fn(&mut Cmd) + Send + Sync + 'a,
    ) -> Errand<'a> {
        let slot = match (&self.servers, buckets.first()) {
            (Servers::Cluster(_), Some(bucket)) => bucket.slot(),
            _ => 0,
        };
        Errand::new(slot, move |script: &Script, by_hash| {
            let mut cmd = bucket::call(script, by_hash, buckets, sides, arguments);
            write(&mut cmd);
            cmd
        })
    }

    /// How many buckets one call can reach.
    fn buckets_per_call(&self, pool: &Pool) -> usize {
        match (&self.servers, pool.layout.placement) {
            (Servers::Cluster(_), Placement::Spread) => 1,
            _ => usize::from(pool.layout.buckets),
        }
    }

    /// Asks all buckets of a pool.
    async fn ask_all(
        &self,
        pool: &Pool,
        (script, patience): (&Script, Patience),
        sides: &[Side],
        write: impl Fn(&mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<Result<Value>>> {
        let buckets = bucket::all(pool)?;
        let errand = |some| {
            let errand = self.errand(some, sides, 4, &write);
            if patience == Patience::None { errand.impatient() } else { errand }
        };
        let errands = buckets.chunks(self.buckets_per_call(pool)).map(errand).collect();
        let answers = self.run_errands(Some(&pool.name), script, errands, until).await;
        Ok(answers.into_iter().map(|answer| named(pool, answer)).collect())
    }

    /// Deals items out to their buckets; answers which items each call had, and what it answered.
    async fn deal<'a>(
        &self,
        pool: &Pool,
        script: &Script,
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
            self.errand(&buckets[*bucket..=*bucket], &ALL, 3 * places.len(), move |cmd| {
                places.iter().for_each(|at| write(*at, cmd));
            })
        });
        let answers = self.run_errands(Some(&pool.name), script, errands.collect(), until).await;
        calls
            .iter()
            .zip(answers)
            .map(|((_, places), answer)| Ok((places.to_vec(), named(pool, answer)?)))
            .collect()
    }

    /// The same for scripts that answer a digit per item.
    async fn deal_for_digits<'a>(
        &self,
        pool: &Pool,
        script: &Script,
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

    async fn lay_out(&self, pool: &Pool, until: Until) -> Result<PoolLayout> {
        bucket::all(pool)?;
        let key = bucket::layout_key(pool);
        let errand = Errand::new(slots::slot(&key), |script: &Script, by_hash| {
            let mut cmd = super::script::begin(script, by_hash, 2 * key.len());
            cmd.arg(1).arg(&key).arg(bucket::write_layout(pool.layout));
            cmd
        });
        let mut answers = self.run_errands(Some(&pool.name), &bucket::LAYOUT, vec![errand], until).await;
        let stored = named(pool, answers.pop().unwrap_or_else(|| Err(EngineError::no_answer())))?;
        super::answer::text(&stored).and_then(bucket::read_layout).ok_or_else(|| {
            let words = format!("the layout of the pool {} cannot be read: see the key {key}", pool.name);
            EngineError::new(Fault::Corrupt, words)
        })
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
        self.deal(pool, &bucket::SET, ids, write, until).await.map(drop)
    }

    async fn claim_deadlines(
        &self,
        pool: &Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Result<Claimed> {
        // On one server a call names as few keys as possible: most find nothing due.
        let sides: &[Side] = match &self.servers {
            Servers::One(..) => &ALL[..1],
            Servers::Cluster(_) => &ALL[..3],
        };
        let write = |cmd: &mut Cmd| {
            cmd.arg(limit.max(1)).arg(millis(visibility)).arg(sides.len());
        };
        let claim = (&*bucket::CLAIM, Patience::None);
        let answers = self.ask_all(pool, claim, sides, write, until).await?;
        let (mut claimed, mut failed) = (Claimed::default(), None);
        for answer in answers {
            if let Err(error) = answer.and_then(|value| answer::claimed(value, &mut claimed)) {
                failed.get_or_insert(error);
            }
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
        for answer in self.ask_all(pool, (&bucket::PEEK, Patience::Some), &ALL[..2], write, until).await? {
            answer::peeked(answer?, &mut found)?;
        }
        found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Ok(found.into_iter().take(limit as usize).map(|(_, pending)| pending).collect())
    }

    async fn pool_stats(&self, pool: &Pool, until: Until) -> Result<PoolStats> {
        let mut stats = PoolStats::default();
        let sides = [Side::Due, Side::Tries, Side::Dead];
        for answer in self.ask_all(pool, (&bucket::STATS, Patience::Some), &sides, |_| {}, until).await? {
            answer::stats(answer?, &mut stats)?;
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
        let (mut number, mut at, mut given) = position(from.as_ref().map_or("", Cursor::as_str));
        let mut items: Vec<Dead> = Vec::new();
        for _ in 0..SCANS_PER_PAGE {
            let Some(bucket) = buckets.get(number..=number) else {
                return Ok(Page { items, next: None });
            };
            let errand = self.errand(bucket, &[Side::Dead], 2, |cmd: &mut Cmd| {
                cmd.arg(&at).arg(limit.clamp(10, 100));
            });
            let mut answers = self.run_errands(Some(&pool.name), &bucket::DEAD, vec![errand], until).await;
            let answer = answers.pop().unwrap_or_else(|| Err(EngineError::no_answer()));
            let (next, found) = answer::dead(named(pool, answer)?)?;
            let room = (limit as usize).saturating_sub(items.len());
            let fresh = found.len().saturating_sub(given);
            items.extend(found.into_iter().skip(given).take(room));
            if fresh > room {
                given += room;
                break;
            }
            (at, given) = (next, 0);
            if at == "0" {
                number += 1;
            }
            if items.len() == limit as usize {
                break;
            }
        }
        let next = (number < buckets.len()).then(|| Cursor::new(format!("{number} {at} {given}")));
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
fn named<T>(pool: &Pool, answer: Result<T>) -> Result<T> {
    answer.map_err(|error| match error.fault {
        Fault::WrongKind => {
            let words = format!("a key of the pool {} is of another type", pool.name);
            EngineError::new(Fault::WrongKind, words)
        }
        _ => error,
    })
}

impl Deadlines for Redis {
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout> {
        Box::pin(self.lay_out(pool, until))
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
        Box::pin(self.deal_for_digits(pool, &bucket::ACKNOWLEDGE, ids, write, until))
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
        Box::pin(self.deal_for_digits(pool, &bucket::POSTPONE, ids, write, until))
    }

    fn bury<'a>(&'a self, pool: &'a Pool, dead: &'a [(Receipt, String)], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            let (receipt, why) = &dead[at];
            write_receipt(receipt, cmd);
            cmd.arg(why);
        };
        let ids = dead.iter().map(|(receipt, _)| &*receipt.id);
        Box::pin(self.deal_for_digits(pool, &bucket::BURY, ids, write, until))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            cmd.arg(&*ids[at]);
        };
        Box::pin(self.deal_for_digits(pool, &bucket::CANCEL, ids.iter().map(|id| &**id), write, until))
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
