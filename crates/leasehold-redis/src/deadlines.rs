//! Deadlines: a sorted set per bucket, and beside it what is known of those that were claimed.
//!
//! Each operation is one script ([`bucket`]). On one server a single call claims from all buckets of a pool. In a cluster each
//! bucket has its own call; all calls of a shard leave in one write, and shards are asked at the same time. All times are the
//! server's.

mod bucket;

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use redis::{Cmd, FromRedisValue, Value};

use super::{
    Redis,
    fan_out::{self, ScriptCall},
    reply::{read, text, unexpected},
    script::{self, Script},
    slots,
    topology::outcome::Resend,
};
use bucket::KEYS;
use leasehold_core::{
    clock::Until,
    engine::{
        Cursor, EngineError, Fault, Fut, Page,
        deadlines::{
            Batch, Dead, Deadline, DeadlineId, Deadlines, Delivery, DueTime, Pending, Placement, Pool,
            PoolLayout, PoolStats, Receipt, Settle,
        },
    },
    name::Name,
};

/// Deadlines in one call; bounds how long the server is busy with one, and what Lua unpacks.
const ITEMS_PER_CALL: usize = 500;
/// Latest time that scores are exact for.
const LATEST_MS: u64 = 1 << 52;
/// Calls of one page of dead deadlines.
const SCANS_PER_PAGE: usize = 50;

type Result<T> = std::result::Result<T, EngineError>;

impl Redis {
    /// Makes calls about one pool; one answer each. An error about a key of another type says whose it is.
    async fn call_pool<'a>(
        &self,
        pool: &Name,
        resend: Resend,
        calls: impl Iterator<Item = ScriptCall<'a>>,
        until: Until,
    ) -> Vec<Result<Value>> {
        let mut answers = self.call_each(Some(pool), resend, calls, until).await;
        for error in answers.iter_mut().filter_map(|answer| answer.as_mut().err()) {
            if error.fault == Fault::WrongType {
                error.why = format!("a key of the pool {pool} is of another type");
            }
        }
        answers
    }

    /// Calls a script on all buckets of a pool, as many at a time as one call can reach: all of them where one server, or one
    /// slot, has them, otherwise one. A claim does not wait for a bucket whose keys are on two nodes: it would keep back what
    /// was claimed from the others, whose time is running.
    async fn call_all<T: FromRedisValue>(
        &self,
        pool: &Pool,
        script: &Script,
        kinds: &[&str],
        is_claim: bool,
        args: &[u64],
        until: Until,
    ) -> Result<Vec<Result<T>>> {
        let buckets = bucket::all(pool)?;
        let apart = self.topology.in_cluster && pool.layout.placement == Placement::Spread;
        let resend = if is_claim { Resend::NotWhileMigrating } else { Resend::AwaitMigration };
        let calls = buckets.chunks(if apart { 1 } else { buckets.len() }).map(|some| ScriptCall {
            only_if_due: (is_claim && apart).then(|| some[0].key("due")),
            ..ScriptCall::new(script, some[0].slot(), move |cmd| {
                bucket::write_keys(some, kinds, cmd);
                cmd.arg(args);
            })
        });
        let answers = self.call_pool(&pool.name, resend, calls, until).await;
        Ok(answers.into_iter().map(|answer| read(answer?)).collect())
    }

    /// Sends items to their buckets; the script answers a digit for each.
    async fn per_bucket<'a>(
        &self,
        pool: &Pool,
        script: &Script,
        ids: impl ExactSizeIterator<Item = &'a str>,
        write: impl Fn(usize, &mut Cmd) + Send + Sync,
        until: Until,
    ) -> Result<Vec<bool>> {
        let (buckets, write) = (bucket::all(pool)?, &write);
        let mut found = vec![false; ids.len()];
        let mut order: Vec<_> = ids.enumerate().map(|(at, id)| (pool.bucket_of(id), at)).collect();
        order.sort_unstable();
        let per_bucket = order.chunk_by(|(one, _), (other, _)| one == other);
        let parts: Vec<_> = per_bucket.flat_map(|items| items.chunks(ITEMS_PER_CALL)).collect();
        let calls = parts.iter().map(|items| {
            let bucket = &buckets[usize::from(items[0].0)];
            ScriptCall::new(script, bucket.slot(), move |cmd| {
                bucket::write_keys(std::slice::from_ref(bucket), &KEYS, cmd);
                items.iter().for_each(|(_, at)| write(*at, cmd));
            })
        });
        let answers = self.call_pool(&pool.name, Resend::AwaitMigration, calls, until).await;
        for (items, answer) in parts.iter().zip(answers) {
            let digits = fan_out::digits(answer?, items.len())?;
            items.iter().zip(digits).for_each(|((_, at), digit)| found[*at] = digit == b'1');
        }
        Ok(found)
    }

    async fn call_one(&self, pool: &Name, call: ScriptCall<'_>, until: Until) -> Result<Value> {
        let answer = self.call_pool(pool, Resend::AwaitMigration, [call].into_iter(), until).await.pop();
        answer.unwrap_or_else(|| Err(unexpected(&Value::Nil)))
    }

    /// How a pool is laid out; what is wanted is stored if it is new.
    async fn layout_of(
        &self,
        pool: &Name,
        wanted: Option<PoolLayout>,
        until: Until,
    ) -> Result<Option<PoolLayout>> {
        bucket::check_name(pool)?;
        let key = &bucket::layout_key(pool);
        let call = ScriptCall::new(&script::DEADLINES_LAYOUT, slots::slot(key), move |cmd| {
            cmd.arg(1).arg(key).arg(wanted.map(bucket::write_layout));
        });
        match self.call_one(pool, call, until).await? {
            Value::Nil => Ok(None),
            stored => text(&stored).and_then(bucket::read_layout).map(Some).ok_or_else(|| {
                let words = format!("the layout of the pool {pool} cannot be read: see the key {key}");
                EngineError::new(Fault::Corrupt, words)
            }),
        }
    }
}

/// A time as scripts count it; longer ones than scores are exact for are as good as for ever.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(LATEST_MS)
}

fn id(bytes: Vec<u8>) -> DeadlineId {
    String::from_utf8_lossy(&bytes).into()
}

/// Others may have written scores that are no whole numbers, or endless ones.
fn overdue(now: f64, score: f64) -> Duration {
    Duration::from_millis((now - score).max(0.0) as u64)
}

impl Deadlines for Redis {
    fn layout<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolLayout> {
        Box::pin(async move {
            bucket::all(pool)?;
            let stored = self.layout_of(&pool.name, Some(pool.layout), until).await?;
            stored.ok_or_else(EngineError::no_answer)
        })
    }

    fn known_layout<'a>(&'a self, pool: &'a Name, until: Until) -> Fut<'a, Option<PoolLayout>> {
        Box::pin(self.layout_of(pool, None, until))
    }

    fn set<'a>(&'a self, pool: &'a Pool, deadlines: &'a [Deadline], until: Until) -> Fut<'a, ()> {
        Box::pin(async move {
            // Of two with one id the last counts.
            let last: HashMap<&str, &Deadline> = deadlines.iter().map(|one| (&*one.id, one)).collect();
            let deadlines: Vec<_> = last.into_values().collect();
            let write = |at: usize, cmd: &mut Cmd| {
                let Deadline { id, due, context } = deadlines[at];
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
            let ids = deadlines.iter().map(|deadline| &*deadline.id);
            self.per_bucket(pool, &script::DEADLINES_SET, ids, write, until).await.map(drop)
        })
    }

    fn claim_due<'a>(
        &'a self,
        pool: &'a Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Fut<'a, Batch> {
        type Items = Vec<(Vec<u8>, f64, u32, Option<Vec<u8>>)>;
        type Claimed = Option<(f64, Vec<(u64, bool, Items)>)>;
        Box::pin(async move {
            let kinds = if self.topology.in_cluster { &KEYS[..3] } else { &KEYS[..1] };
            let args = [limit.max(1).into(), millis(visibility), kinds.len() as u64];
            let (mut batch, mut failed) = (Batch::default(), None);
            for answer in self.call_all(pool, &script::DEADLINES_CLAIM, kinds, true, &args, until).await? {
                let (now, buckets) = match answer {
                    Ok(claimed) => Claimed::unwrap_or_default(claimed),
                    Err(error) => {
                        failed.get_or_insert(error);
                        continue;
                    }
                };
                for (number, more, items) in buckets {
                    batch.more |= more;
                    batch.due.extend(items.into_iter().map(|(name, score, attempt, context)| Delivery {
                        receipt: Receipt { id: id(name), number },
                        attempt,
                        overdue: overdue(now, score),
                        context: context.map(Bytes::from),
                    }));
                }
            }
            match failed {
                // What was claimed is not lost because of a shard that is.
                Some(error) if batch.due.is_empty() => Err(error),
                _ => Ok(batch),
            }
        })
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
        Box::pin(self.per_bucket(pool, &script::DEADLINES_SETTLE, ids, write, until))
    }

    fn cancel<'a>(&'a self, pool: &'a Pool, ids: &'a [DeadlineId], until: Until) -> Fut<'a, Vec<bool>> {
        let write = |at: usize, cmd: &mut Cmd| {
            cmd.arg(&*ids[at]);
        };
        Box::pin(self.per_bucket(pool, &script::DEADLINES_CANCEL, ids.iter().map(|id| &**id), write, until))
    }

    fn peek<'a>(&'a self, pool: &'a Pool, limit: u32, until: Until) -> Fut<'a, Vec<Pending>> {
        Box::pin(async move {
            let (kinds, args) = (&KEYS[..2], [limit.into()]);
            let mut found = Vec::new();
            for answer in self.call_all(pool, &script::DEADLINES_PEEK, kinds, false, &args, until).await? {
                let (now, items): (f64, Vec<(Vec<u8>, f64, u32)>) = answer?;
                found.extend(items.into_iter().map(|(name, score, attempts)| {
                    (score, Pending { id: id(name), attempts, overdue: overdue(now, score) })
                }));
            }
            // By their times: servers that are asked at once do not have quite the same.
            found.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            Ok(found.into_iter().take(limit as usize).map(|(_, pending)| pending).collect())
        })
    }

    /// One bucket after the other. The cursor is the bucket and the server's own.
    fn dead<'a>(
        &'a self,
        pool: &'a Pool,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Dead>> {
        type Buried = (Vec<u8>, Vec<u8>);
        Box::pin(async move {
            let buckets = bucket::all(pool)?;
            let (number, at) =
                from.as_ref().and_then(|from| from.as_str().split_once(' ')).unwrap_or(("0", "0"));
            let (mut number, mut at) = (number.parse().unwrap_or(0), at.to_owned());
            let mut items: Vec<Dead> = Vec::new();
            for _ in 0..SCANS_PER_PAGE {
                let Some(bucket) = buckets.get(number).filter(|_| items.len() < limit as usize) else {
                    break;
                };
                let call = ScriptCall::new(&script::DEADLINES_DEAD, bucket.slot(), |cmd| {
                    bucket::write_keys(&[*bucket], &["dead"], cmd);
                    cmd.arg(&at).arg(limit.clamp(10, 100));
                });
                let (next, found) =
                    read::<(String, Vec<Buried>)>(self.call_one(&pool.name, call, until).await?)?;
                items.extend(found.into_iter().map(|(name, text)| buried(id(name), &text)));
                at = next;
                number += usize::from(at == "0");
            }
            let next = (number < buckets.len()).then(|| Cursor::new(format!("{number} {at}")));
            Ok(Page { items, next })
        })
    }

    fn stats<'a>(&'a self, pool: &'a Pool, until: Until) -> Fut<'a, PoolStats> {
        type Standing = (u64, u64, u64, Option<f64>, u64);
        Box::pin(async move {
            let kinds = ["due", "tries", "dead"];
            let mut stats = PoolStats::default();
            for answer in self.call_all(pool, &script::DEADLINES_STATS, &kinds, false, &[], until).await? {
                let (now, buckets): (f64, Vec<Standing>) = answer?;
                for (pending, due, tried, oldest, dead) in buckets {
                    stats.pending += pending;
                    stats.due += due;
                    stats.tried += tried;
                    stats.dead += dead;
                    stats.overdue = stats.overdue.max(oldest.map_or(Duration::ZERO, |at| overdue(now, at)));
                }
            }
            Ok(stats)
        })
    }
}

/// What `settle.lua` wrote.
fn buried(id: DeadlineId, text: &[u8]) -> Dead {
    let (attempts, buried_at_ms, why, context) =
        read_buried(text).unwrap_or_else(|| (0, 0, "what is stored cannot be read".into(), None));
    Dead { id, attempts, buried_at_ms, why, context }
}

fn read_buried(text: &[u8]) -> Option<(u32, u64, String, Option<Bytes>)> {
    let mut words = text.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (attempts, buried_at_ms, why_bytes) = (number()?, number()?, number()?);
    let (why, rest) = words.next()?.split_at_checked(usize::try_from(why_bytes).ok()?)?;
    let context = match rest {
        [] => None,
        [b' ', context @ ..] => Some(Bytes::copy_from_slice(context)),
        _ => return None,
    };
    Some((u32::try_from(attempts).ok()?, buried_at_ms, String::from_utf8_lossy(why).into_owned(), context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_buried_is_read_back_with_its_context() {
        let read = |text: &[u8]| buried("x".into(), text);
        let dead = read(b"3 1700000000000 5 no go ctx \xff");
        assert_eq!((dead.attempts, dead.buried_at_ms, &*dead.why), (3, 1_700_000_000_000, "no go"));
        assert_eq!(dead.context.as_deref(), Some(&b"ctx \xff"[..]));
        assert_eq!(read(b"3 1 5 no go").context, None);
        assert_eq!(read(b"3 1 5 no go ").context.as_deref(), Some(&b""[..]));
        for odd in [&b""[..], b"3", b"3 1 9 no go", b"x 1 1 a", b"3 1 1 ab"] {
            assert_eq!(read(odd).why, "what is stored cannot be read");
        }
    }
}
