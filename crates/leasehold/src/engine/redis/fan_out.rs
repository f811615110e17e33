//! Calls of one script to many slots: all that one server gets leave in one write, and servers are asked at the same time.

mod due_probe;

use std::sync::Arc;

use due_probe::DueProbe;
use futures_util::future::join_all;
use redis::{Cmd, Value};

use super::{
    Redis, Servers,
    cluster::{Cluster, Stop},
    lane_of,
    node::Node,
    script::Script,
    slots,
};
use crate::{
    clock::Until,
    engine::{EngineError, Fault},
    name::Name,
};

/// One call of the script.
pub(super) struct ScriptCall<'a> {
    slot: u16,
    build: Build<'a>,
    /// Whether it fails while its keys are on two nodes, instead of waiting until all have arrived.
    fails_fast: bool,
    /// Whether it is needed at all.
    probe: Option<DueProbe>,
}

/// The command, with the script's hash or its text.
type Build<'a> = Box<dyn Fn(&Script, bool) -> Cmd + Send + Sync + 'a>;

impl<'a> ScriptCall<'a> {
    /// A call whose keys are all in this slot; on one server any will do.
    pub(super) fn new(slot: u16, build: impl Fn(&Script, bool) -> Cmd + Send + Sync + 'a) -> Self {
        Self { slot, build: Box::new(build), fails_fast: false, probe: None }
    }

    /// The same, but it fails at once while its keys are on two nodes.
    pub(super) fn fail_fast(self) -> Self {
        Self { fails_fast: true, ..self }
    }

    /// The same, but its answer is nil if nothing in this sorted set is due. A server that gets several such calls is asked
    /// that first, by plain commands. `soon_ms` is a time that the server has not reached.
    pub(super) fn if_due(self, key: String, soon_ms: u64) -> Self {
        Self { probe: Some(DueProbe { key, soon_ms }), ..self }
    }
}

/// One answer per call.
type Answers = Vec<Result<Value, EngineError>>;

impl Redis {
    /// Makes all calls; one answer each. On one server those with the same `name` take the same connection. A server that
    /// does not answer fails its own calls only.
    pub(super) async fn call_each(
        &self,
        name: Option<&Name>,
        script: &Script,
        calls: Vec<ScriptCall<'_>>,
        until: Until,
    ) -> Answers {
        match &self.servers {
            Servers::One(lanes, _) => {
                let lane = name.map_or(&lanes[0], |name| lane_of(lanes, name));
                let all: Vec<_> = calls.iter().collect();
                send(&lane.node, script, &all, until).await
            }
            Servers::Cluster(cluster) => call_by_shard(cluster, script, &calls, until).await,
        }
    }
}

async fn call_by_shard(
    cluster: &Arc<Cluster>,
    script: &Script,
    calls: &[ScriptCall<'_>],
    until: Until,
) -> Answers {
    let map = match cluster.map(until).await {
        Ok(map) => map,
        Err(error) => return vec![Err(error); calls.len()],
    };
    let mut groups: Vec<(&Arc<Node>, Vec<usize>)> = Vec::new();
    // Calls whose slot has no primary at the moment, and those that another node must get.
    let mut redirected = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let Some(shard) = map.shard(call.slot) else {
            redirected.push(at);
            continue;
        };
        match groups.iter_mut().find(|(node, _)| Arc::ptr_eq(node, shard.node())) {
            Some((_, places)) => places.push(at),
            None => groups.push((shard.node(), vec![at])),
        }
    }
    let sent = join_all(groups.iter().map(async |(node, places)| {
        let some: Vec<_> = places.iter().map(|at| &calls[*at]).collect();
        send(node, script, &some, until).await
    }));
    let mut answers: Answers = vec![Ok(Value::Nil); calls.len()];
    for ((_, places), some) in groups.iter().zip(sent.await) {
        for (at, answer) in places.iter().zip(some) {
            if answer.as_ref().is_err_and(may_be_elsewhere) {
                redirected.push(*at);
            }
            answers[*at] = answer;
        }
    }
    // A future for each of them is large: it is made for those that need it.
    let followed = join_all(redirected.iter().map(|at| follow(cluster, script, &calls[*at], until)));
    for (at, answer) in redirected.iter().zip(followed.await) {
        answers[*at] = answer;
    }
    answers
}

/// The call had no effect, and another node may have the slot.
fn may_be_elsewhere(error: &EngineError) -> bool {
    slots::points_elsewhere(error) || error.fault == Fault::Unreachable
}

/// Sends a call to the node that the cluster redirects it to, until one accepts it.
async fn follow(
    cluster: &Arc<Cluster>,
    script: &Script,
    call: &ScriptCall<'_>,
    until: Until,
) -> Result<Value, EngineError> {
    let mut route = cluster.route(call.slot, until);
    loop {
        let stop = route.next().await?;
        let Stop { shard, asking } = &stop;
        let sent = async {
            let node = shard.node();
            let connection = node.connection(until).await?;
            if *asking {
                node.run_script_asking(&connection, script, &call.build, until).await
            } else {
                node.run_script(&connection, script, &call.build, until).await
            }
        };
        match sent.await {
            Err(error) if slots::is_try_again(&error) && call.fails_fast => return Err(error),
            Err(error) => route.after(&stop, error).await?,
            value => return value,
        }
    }
}

/// Sends all of them in one write; those whose script the server does not know (any more) again, with its text.
async fn send(node: &Arc<Node>, script: &Script, calls: &[&ScriptCall<'_>], until: Until) -> Answers {
    let connection = match node.connection(until).await {
        Ok(connection) => connection,
        Err(error) => return vec![Err(error); calls.len()],
    };
    if let [call] = calls {
        return vec![node.run_script(&connection, script, &call.build, until).await];
    }
    let nothing_due = due_probe::nothing_due(node, &connection, calls, until).await;
    let wanted: Vec<_> = (0..calls.len()).filter(|at| !nothing_due[*at]).collect();
    let mut answers: Answers = vec![Ok(Value::Nil); calls.len()];
    if wanted.is_empty() {
        return answers;
    }
    let commands = wanted.iter().map(|at| (calls[*at].build)(script, true)).collect();
    let sent = node.send_all(&connection, commands, until).await;
    wanted.into_iter().zip(sent).for_each(|(at, answer)| answers[at] = answer);
    let is_unknown =
        |answer: &Result<_, EngineError>| matches!(answer, Err(error) if error.why.starts_with("NOSCRIPT"));
    let unknown: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
    if !unknown.is_empty() {
        // The first brings the text, by which the server knows it for the others.
        let commands = unknown.iter().enumerate().map(|(nth, at)| (calls[*at].build)(script, nth > 0));
        let again = node.send_all(&connection, commands.collect(), until).await;
        unknown.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
    }
    answers
}
