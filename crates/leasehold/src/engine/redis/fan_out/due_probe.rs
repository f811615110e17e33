//! Asks a node by plain commands in which buckets something is due. A script in each of them costs the node more than
//! everything else of a claim that finds nothing.

use redis::Value;

use super::ScriptCall;
use crate::{
    clock::Until,
    engine::redis::node::{Connection, Node},
};

/// For each call whether nothing is due for it by the node's time. A call that asks for no probe is sent, and so is one whose
/// probe fails: its own answer tells why.
pub(super) async fn nothing_due(
    node: &Node,
    connection: &Connection,
    calls: &[&ScriptCall<'_>],
    until: Until,
) -> Vec<bool> {
    let mut probes: Vec<_> = calls.iter().filter_map(|call| call.due_key.as_ref()).map(first_due).collect();
    if probes.len() < calls.len() {
        return vec![false; calls.len()];
    }
    // Last, so that what was due when a bucket was read is due by this time.
    probes.push(redis::cmd("TIME"));
    let mut answers = node.send_all(connection, probes, until).await;
    let now = answers.pop().and_then(Result::ok).and_then(now_ms);
    let is_later = |first: Value| Some(first_score(first)?.is_none_or(|score| Some(score) > now));
    answers.into_iter().map(|first| now.is_some() && first.ok().and_then(is_later).unwrap_or(false)).collect()
}

fn first_due(key: &String) -> redis::Cmd {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(key).arg(0).arg(0).arg("WITHSCORES");
    cmd
}

/// When the first of a bucket is due; `None` inside if it is empty.
fn first_score(first: Value) -> Option<Option<f64>> {
    let first: Vec<(Value, f64)> = redis::from_redis_value(first).ok()?;
    Some(first.first().map(|(_, score)| *score))
}

fn now_ms(time: Value) -> Option<f64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time).ok()?;
    Some((seconds * 1000 + micros / 1000) as f64)
}
