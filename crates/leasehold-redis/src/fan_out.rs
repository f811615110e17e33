//! Calls of one script to many slots: all that one server gets leave in one write, and servers are asked at the same time.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::{
    Redis,
    connection::{Connection, Link},
    reply,
    script::Script,
    topology::{
        Shard, Stop,
        outcome::{self, Resend},
    },
};
use leasehold_core::{clock::Until, engine::EngineError, name::Name};

/// About the size of a call.
const CALL_BYTES: usize = 1024;
/// How far the clock of a server may be ahead of ours before it is no longer asked what is due.
const CLOCKS_APART_MS: u64 = 1000;

/// One call of a script. Its keys are all in one slot; on one server any will do.
pub(super) struct ScriptCall<'a> {
    pub(super) script: &'a Script,
    pub(super) slot: u16,
    pub(super) write: Box<dyn Fn(&mut Cmd) + Send + Sync + 'a>,
    /// A sorted set by times in ms: the answer is nil as long as nothing in it is due.
    pub(super) only_if_due: Option<String>,
}

impl<'a> ScriptCall<'a> {
    /// `write` appends how many keys there are, the keys and the arguments.
    pub(super) fn new(script: &'a Script, slot: u16, write: impl Fn(&mut Cmd) + Send + Sync + 'a) -> Self {
        Self { script, slot, write: Box::new(write), only_if_due: None }
    }

    fn build(&self, by_hash: bool) -> Cmd {
        self.script.call(by_hash, CALL_BYTES, &self.write)
    }
}

impl Redis {
    /// Makes all calls; one answer each. On one server those with the same `name` take the same connection. A server that
    /// does not answer fails its own calls only.
    pub(super) async fn call_each<'a>(
        &self,
        name: Option<&Name>,
        resend: Resend,
        calls: impl Iterator<Item = ScriptCall<'a>>,
        until: Until,
    ) -> Vec<Result<Value, EngineError>> {
        let calls = &calls.collect::<Vec<_>>();
        let together = |shard: Arc<Shard>, places: Vec<usize>| async move {
            // In a cluster all that one shard gets leave in one write.
            let lane = name.filter(|_| !self.topology.in_cluster).map(|name| shard.lane(name));
            let connection = lane.map_or(shard.connection(), |lane| &lane.connection);
            let some: Vec<_> = places.iter().map(|at| &calls[*at]).collect();
            send(connection, &some, self.clock.wall_us() / 1000, until).await
        };
        let alone = |at: usize| {
            let build = move |by_hash| calls[at].build(by_hash);
            self.topology.follow(calls[at].slot, resend, until, move |Stop { shard, asking }| async move {
                shard.connection().link(until).await?.run_script(asking, build, until).await
            })
        };
        self.topology.send_each(calls.iter().map(|call| call.slot), until, together, alone).await
    }
}

/// Sends all that are needed in one write; those whose script the server does not know (any more) again, with its text.
async fn send(
    connection: &Arc<Connection>,
    calls: &[&ScriptCall<'_>],
    our_ms: u64,
    until: Until,
) -> Vec<Result<Value, EngineError>> {
    let link = match connection.link(until).await {
        Ok(link) => link,
        Err(error) => return vec![Err(error); calls.len()],
    };
    let mut answers = vec![Ok(Value::Nil); calls.len()];
    let mut needed = may_be_due(&link, calls, our_ms, until).await;
    for is_known in [true, false] {
        if needed.is_empty() {
            break;
        }
        // The first brings the text, by which the server knows it for the others.
        let build = |(nth, at): (usize, &usize)| calls[*at].build(is_known || nth > 0);
        let sent = link.send_all(needed.iter().enumerate().map(build).collect(), until).await;
        needed.iter().zip(sent).for_each(|(at, answer)| answers[*at] = answer);
        needed.retain(|at| matches!(&answers[*at], Err(error) if outcome::is_unknown_script(error)));
    }
    answers
}

/// The places of calls for which something may be due. Plain counts cost the server a fraction of a script, and most claims
/// find nothing. They need a time: ours, a little ahead. The server tells its own after them; if that is later, our clock is
/// behind, and a count of none proves nothing.
async fn may_be_due(link: &Link, calls: &[&ScriptCall<'_>], our_ms: u64, until: Until) -> Vec<usize> {
    let sets: Vec<_> = calls.iter().filter_map(|call| call.only_if_due.as_ref()).collect();
    if sets.len() < calls.len() {
        return (0..calls.len()).collect();
    }
    let soon_ms = our_ms + CLOCKS_APART_MS;
    let count = |set: &&String| redis::cmd("ZCOUNT").arg(set).arg("-inf").arg(soon_ms).to_owned();
    let commands = sets.iter().map(count).chain([redis::cmd("TIME")]).collect();
    let mut counts = link.send_all(commands, until).await;
    let time = counts.pop().and_then(|time| reply::read::<(u64, u64)>(time.ok()?).ok());
    let is_ahead = time.is_some_and(|(seconds, micros)| seconds * 1000 + micros / 1000 <= soon_ms);
    // Where a count fails, the script's own answer tells why.
    (0..calls.len()).filter(|at| !is_ahead || !matches!(counts[*at], Ok(Value::Int(0)))).collect()
}

/// A script's text with one digit per item.
pub(super) fn digits(value: Value, expected: usize) -> Result<Vec<u8>, EngineError> {
    match value {
        Value::BulkString(digits) if digits.len() == expected => Ok(digits),
        other => Err(reply::unexpected(&other)),
    }
}
