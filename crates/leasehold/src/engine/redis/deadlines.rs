//! Deadlines: a sorted set per bucket, and beside it what is known of those that were claimed.
//!
//! Each operation is one script ([`bucket`]). On one server a single call claims from all buckets of a pool, and mostly ends
//! at a side key that exists while nothing is due. In a cluster each bucket has its own call; all calls of a shard leave in
//! one write, and shards are asked at the same time. All times are the server's.

mod bucket;
mod claim;
mod inspect;
mod reply;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use redis::{Cmd, Value};

use super::{Redis, fan_out::ScriptCall, script::Script};
use crate::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Fut, Page,
        deadlines::{
            Batch, Dead, Deadline, DeadlineId, Deadlines, DueTime, Pending, Placement, Pool, PoolLayout,
            PoolStats, Receipt, Settle,
        },
    },
    name::Name,
};
use bucket::{ALL, Bucket, ScriptKeys};

/// Deadlines in one call; bounds how long the server is busy with one, and what Lua unpacks.
const ITEMS_PER_CALL: usize = 500;
/// Latest time that scores are exact for.
const LATEST_MS: u64 = 1 << 52;

type Result<T> = std::result::Result<T, EngineError>;

impl Redis {
    /// One call on some buckets of a pool.
    fn script_call<'a>(
        &self,
        keys: ScriptKeys<'a>,
        arguments: usize,
        write: impl Fn(&mut Cmd) + Send + Sync + 'a,
    ) -> ScriptCall<'a> {
        let slot = self.topology.slot(|| keys.buckets.first().map_or(0, Bucket::slot));
        ScriptCall::new(slot, move |script: &Script, by_hash| {
            let mut cmd = bucket::call(script, by_hash, keys, arguments);
            write(&mut cmd);
            cmd
        })
    }

    /// Whether one call can reach all buckets; otherwise it reaches one.
    fn reaches_all(&self, pool: &Pool) -> bool {
        !self.topology.in_cluster || pool.layout.placement != Placement::Spread
    }

    /// The key that exists while nothing of the pool is due, if a claim is one call.
    fn quiet_key(&self, pool: &Pool) -> Option<String> {
        self.reaches_all(pool).then(|| bucket::quiet_key(pool))
    }

    /// The buckets of a pool, as many at a time as one call can reach.
    fn at_once<'a>(&self, pool: &Pool, buckets: &'a [Bucket<'a>]) -> std::slice::Chunks<'a, Bucket<'a>> {
        buckets.chunks(if self.reaches_all(pool) { buckets.len() } else { 1 })
    }

    /// Sends items to their buckets; returns which items each call had, and its answer.
    async fn per_bucket<'a>(
        &self,
        pool: &Pool,
        script: &Script,
        ids: impl Iterator<Item = &'a str>,
        write: impl Fn(usize, &mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<(Vec<usize>, Value)>> {
        let (buckets, quiet) = (bucket::all(pool)?, self.quiet_key(pool));
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, id) in ids.enumerate() {
            groups.entry(pool.bucket_of(id)).or_default().push(at);
        }
        let parts: Vec<(usize, &[usize])> = groups
            .iter()
            .flat_map(|(bucket, places)| {
                places.chunks(ITEMS_PER_CALL).map(|some| (usize::from(*bucket), some))
            })
            .collect();
        let write = &write;
        let calls = parts.iter().map(|(bucket, places)| {
            let buckets = &buckets[*bucket..=*bucket];
            let keys = ScriptKeys { buckets, of_each: &ALL, quiet: quiet.as_deref() };
            self.script_call(keys, 3 * places.len(), move |cmd| {
                places.iter().for_each(|at| write(*at, cmd));
            })
        });
        let answers = self.call_each(Some(&pool.name), script, calls.collect(), until).await;
        parts
            .iter()
            .zip(answers)
            .map(|((_, places), answer)| Ok((places.to_vec(), named(&pool.name, answer)?)))
            .collect()
    }

    /// The same for scripts that answer a digit per item.
    async fn digit_per_item<'a>(
        &self,
        pool: &Pool,
        script: &Script,
        ids: impl ExactSizeIterator<Item = &'a str>,
        write: impl Fn(usize, &mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<bool>> {
        let mut found = vec![false; ids.len()];
        for (places, value) in self.per_bucket(pool, script, ids, write, until).await? {
            let digits = reply::digits(value, places.len())?;
            places.into_iter().zip(digits).for_each(|(at, digit)| found[at] = digit);
        }
        Ok(found)
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
        self.per_bucket(pool, &bucket::SET, ids, write, until).await.map(drop)
    }
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
    ) -> Fut<'a, Batch> {
        Box::pin(self.claim_deadlines(pool, limit, visibility, until))
    }

    fn settle<'a>(
        &'a self,
        pool: &'a Pool,
        settlements: &'a [(Receipt, Settle)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            let (receipt, settle) = &settlements[at];
            cmd.arg(&*receipt.id).arg(receipt.number);
            match settle {
                Settle::Done => cmd.arg(""),
                Settle::Postpone(by) => cmd.arg(format!("+{}", millis(*by))),
                Settle::GiveBack => cmd.arg("-"),
                Settle::Bury(why) => cmd.arg(format!("={why}")),
            };
        };
        let ids = settlements.iter().map(|(receipt, _)| &*receipt.id);
        Box::pin(self.digit_per_item(pool, &bucket::SETTLE, ids, write, until))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            cmd.arg(&*ids[at]);
        };
        let each = ids.iter().map(|id| &**id);
        Box::pin(self.digit_per_item(pool, &bucket::CANCEL, each, write, until))
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
