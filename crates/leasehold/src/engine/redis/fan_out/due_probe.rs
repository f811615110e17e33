//! Asks a node by plain counts in which buckets something is due. A script in each of them costs the node about four times as
//! much, and most claims find nothing.

use redis::{Cmd, Value};

use super::ScriptCall;
use crate::{
    clock::Until,
    engine::redis::node::{Connection, Node},
};

/// A sorted set by due times, and a time by our clock that the node has not reached. A count needs a time: ours, a little
/// ahead. The node tells its own after all counts; if that is later, our clock is behind, and the count proves nothing.
pub(super) struct DueProbe {
    pub(super) key: String,
    pub(super) soon_ms: u64,
}

impl DueProbe {
    fn count(&self) -> Cmd {
        let mut cmd = Cmd::with_capacity(4, self.key.len() + 30);
        cmd.arg("ZCOUNT").arg(&self.key).arg("-inf").arg(self.soon_ms);
        cmd
    }
}

/// For each call whether nothing is due for it. A call without a probe is sent, and so is one whose probe fails: its own
/// answer tells why.
pub(super) async fn nothing_due(
    node: &Node,
    connection: &Connection,
    calls: &[&ScriptCall<'_>],
    until: Until,
) -> Vec<bool> {
    let probes: Vec<_> = calls.iter().filter_map(|call| call.probe.as_ref()).collect();
    if probes.len() < calls.len() {
        return vec![false; calls.len()];
    }
    let commands = probes.iter().map(|probe| probe.count()).chain([redis::cmd("TIME")]).collect();
    let mut answers = node.send_all(connection, commands, until).await;
    let now_ms = answers.pop().and_then(Result::ok).and_then(now_ms).unwrap_or(u64::MAX);
    let counts = answers.into_iter().map(|count| count.is_ok_and(|count| count == Value::Int(0)));
    counts.zip(probes).map(|(none, probe)| none && now_ms <= probe.soon_ms).collect()
}

fn now_ms(time: Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time).ok()?;
    Some(seconds * 1000 + micros / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_node_is_read_in_milliseconds() {
        let texts = |parts: &[&str]| {
            Value::Array(parts.iter().map(|part| Value::BulkString((*part).into())).collect())
        };
        assert_eq!(now_ms(texts(&["1700000000", "5999"])), Some(1_700_000_000_005));
        assert_eq!(now_ms(texts(&["a", "b"])), None);
    }
}
