//! Claims what is due.

use std::time::Duration;

use redis::Cmd;

use super::{
    Result,
    bucket::{self, ALL, BucketKey, ScriptKeys},
    millis, named, reply,
};
use crate::{
    clock::Until,
    engine::{
        deadlines::{Batch, Pool},
        redis::Redis,
    },
};

/// How far the clock of a node may be ahead of ours before its buckets are no longer probed.
const CLOCKS_APART_MS: u64 = 1000;

impl Redis {
    pub(super) async fn claim_deadlines(
        &self,
        pool: &Pool,
        limit: u32,
        visibility: Duration,
        until: Until,
    ) -> Result<Batch> {
        // A node that is about to get a slot and has not all of its keys must not answer; one server has them all.
        let of_each: &[BucketKey] = if self.topology.in_cluster { &ALL[..3] } else { &[] };
        let quiet = self.quiet_key(pool);
        let script = if quiet.is_some() { &*bucket::CLAIM_ALL } else { &*bucket::CLAIM_ONE };
        let write = |cmd: &mut Cmd| {
            cmd.arg(limit.max(1)).arg(millis(visibility));
            if quiet.is_some() {
                let (before, after) = bucket::around_number(pool);
                cmd.arg(pool.layout.buckets).arg(before).arg(after);
            }
        };
        let soon_ms = self.clock.wall_us() / 1000 + CLOCKS_APART_MS;
        let buckets = bucket::all(pool)?;
        let call = |some| {
            // A bucket whose keys are on two nodes is not waited for: it would keep back what was claimed from the
            // others, whose time is running.
            let keys = ScriptKeys { buckets: some, of_each, quiet: quiet.as_deref() };
            let call = self.script_call(keys, 5, write).fail_fast();
            match some {
                [bucket] if quiet.is_none() => call.if_due(bucket.key(BucketKey::Due), soon_ms),
                _ => call,
            }
        };
        let calls = self.at_once(pool, &buckets).map(call).collect();
        let answers = self.call_each(Some(&pool.name), script, calls, until).await;
        let (mut batch, mut failed) = (Batch::default(), None);
        for answer in answers {
            let read = named(&pool.name, answer).and_then(|value| reply::claimed(value, &mut batch));
            if let Err(error) = read {
                failed.get_or_insert(error);
            }
        }
        match failed {
            // What was claimed is not lost because of a shard that is.
            Some(error) if batch.due.is_empty() => Err(error),
            _ => Ok(batch),
        }
    }
}
