//! Looks at a pool without changing it.

use redis::{Cmd, Value};

use super::{
    Result,
    bucket::{self, ALL, BucketKey, ScriptKeys},
    named, reply,
};
use crate::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Page,
        deadlines::{Dead, Pending, Pool, PoolLayout, PoolStats},
        redis::{
            Redis, answer,
            fan_out::ScriptCall,
            script::{self, Script},
            slots,
        },
    },
    name::Name,
};

/// Calls of one page of dead deadlines.
const SCANS_PER_PAGE: usize = 50;

impl Redis {
    /// How a pool is laid out; what is wanted is stored if it is new.
    pub(super) async fn layout_of(
        &self,
        pool: &Name,
        wanted: Option<PoolLayout>,
        until: Until,
    ) -> Result<Option<PoolLayout>> {
        bucket::check_name(pool)?;
        let key = bucket::layout_key(pool);
        let call = ScriptCall::new(slots::slot(&key), |script: &Script, by_hash| {
            let mut cmd = script::begin(script, by_hash, 2 * key.len());
            cmd.arg(1).arg(&key).arg(wanted.map(bucket::write_layout));
            cmd
        });
        let mut answers = self.call_each(Some(pool), &bucket::LAYOUT, vec![call], until).await;
        match named(pool, answers.pop().unwrap_or_else(|| Err(EngineError::no_answer())))? {
            Value::Nil => Ok(None),
            stored => answer::text(&stored).and_then(bucket::read_layout).map(Some).ok_or_else(|| {
                let words = format!("the layout of the pool {pool} cannot be read: see the key {key}");
                EngineError::new(Fault::Corrupt, words)
            }),
        }
    }

    pub(super) async fn lay_out(&self, pool: &Pool, until: Until) -> Result<PoolLayout> {
        bucket::all(pool)?;
        let stored = self.layout_of(&pool.name, Some(pool.layout), until).await?;
        stored.ok_or_else(EngineError::no_answer)
    }

    /// Asks all buckets of a pool.
    async fn ask_all(
        &self,
        pool: &Pool,
        script: &Script,
        of_each: &[BucketKey],
        write: impl Fn(&mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<Value>> {
        let buckets = bucket::all(pool)?;
        let call = |some| self.script_call(ScriptKeys { buckets: some, of_each, quiet: None }, 2, &write);
        let calls = self.at_once(pool, &buckets).map(call).collect();
        let answers = self.call_each(Some(&pool.name), script, calls, until).await;
        answers.into_iter().map(|answer| named(&pool.name, answer)).collect()
    }

    pub(super) async fn peek_deadlines(&self, pool: &Pool, limit: u32, until: Until) -> Result<Vec<Pending>> {
        let mut found = Vec::new();
        let write = |cmd: &mut Cmd| {
            cmd.arg(limit);
        };
        for answer in self.ask_all(pool, &bucket::PEEK, &ALL[..2], write, until).await? {
            reply::peeked(answer, &mut found)?;
        }
        found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Ok(found.into_iter().take(limit as usize).map(|(_, pending)| pending).collect())
    }

    pub(super) async fn pool_stats(&self, pool: &Pool, until: Until) -> Result<PoolStats> {
        let mut stats = PoolStats::default();
        let of_each = [BucketKey::Due, BucketKey::Tries, BucketKey::Dead];
        for answer in self.ask_all(pool, &bucket::STATS, &of_each, |_| {}, until).await? {
            reply::stats(answer, &mut stats)?;
        }
        Ok(stats)
    }

    /// One bucket after the other. The cursor is the bucket and the server's own.
    pub(super) async fn page_of_dead(
        &self,
        pool: &Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Result<Page<Dead>> {
        let buckets = bucket::all(pool)?;
        let (mut number, mut at) = position(from.as_ref().map_or("", Cursor::as_str));
        let mut items: Vec<Dead> = Vec::new();
        for _ in 0..SCANS_PER_PAGE {
            let Some(bucket) = buckets.get(number..=number) else {
                return Ok(Page { items, next: None });
            };
            let keys = ScriptKeys { buckets: bucket, of_each: &[BucketKey::Dead], quiet: None };
            let call = self.script_call(keys, 2, |cmd: &mut Cmd| {
                cmd.arg(&at).arg(limit.clamp(10, 100));
            });
            let mut answers = self.call_each(Some(&pool.name), &bucket::DEAD, vec![call], until).await;
            let answer = answers.pop().unwrap_or_else(|| Err(EngineError::no_answer()));
            let (next, found) = reply::dead(named(&pool.name, answer)?)?;
            items.extend(found);
            at = next;
            number += usize::from(at == "0");
            if items.len() >= limit as usize {
                break;
            }
        }
        let next = (number < buckets.len()).then(|| Cursor::new(format!("{number} {at}")));
        Ok(Page { items, next })
    }
}

fn position(from: &str) -> (usize, String) {
    let mut words = from.split(' ');
    let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    (number, words.next().unwrap_or("0").to_owned())
}
