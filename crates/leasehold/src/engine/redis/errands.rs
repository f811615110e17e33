//! Calls of one script, each to the server that has its slot: all that one server gets leave in one write, and servers are
//! asked at the same time.

mod glance;

use std::sync::Arc;

use futures_util::future::join_all;
use glance::Glance;
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

/// One call.
pub(super) struct Errand<'a> {
    slot: u16,
    build: Build<'a>,
    /// It can wait until all its keys are on one node.
    patient: bool,
    /// How to find out whether it is needless.
    glance: Option<Glance>,
}

/// The command, with the script's hash or its text.
type Build<'a> = Box<dyn Fn(&Script, bool) -> Cmd + Send + Sync + 'a>;

impl<'a> Errand<'a> {
    /// A call that touches this slot only; on one server any will do.
    pub(super) fn new(slot: u16, build: impl Fn(&Script, bool) -> Cmd + Send + Sync + 'a) -> Self {
        Self { slot, build: Box::new(build), patient: true, glance: None }
    }

    /// The same, but it fails at once if its keys are on two nodes.
    pub(super) fn impatient(self) -> Self {
        Self { patient: false, ..self }
    }

    /// The same, but it is sent only if something in this sorted set may be due; else its answer is nil. That is asked before,
    /// where it spares something: if a server gets several errands. `soon` is a time in ms that the server has not reached.
    pub(super) fn if_due(self, key: String, soon: u64) -> Self {
        Self { glance: Some(Glance { key, soon }), ..self }
    }
}

/// One answer per errand.
type Answers = Vec<Result<Value, EngineError>>;

impl Redis {
    /// One answer per errand. On one server those with the same `name` take the same connection. A silent server fails its
    /// own errands only.
    pub(super) async fn run_errands(
        &self,
        name: Option<&Name>,
        script: &Script,
        errands: Vec<Errand<'_>>,
        until: Until,
    ) -> Answers {
        match &self.servers {
            Servers::One(lanes, _) => {
                let lane = name.map_or(&lanes[0], |name| lane_of(lanes, name));
                let all: Vec<_> = errands.iter().collect();
                send(&lane.node, script, &all, until).await
            }
            Servers::Cluster(cluster) => run_by_shard(cluster, script, &errands, until).await,
        }
    }
}

async fn run_by_shard(
    cluster: &Arc<Cluster>,
    script: &Script,
    errands: &[Errand<'_>],
    until: Until,
) -> Answers {
    let map = match cluster.map(until).await {
        Ok(map) => map,
        Err(error) => return vec![Err(error); errands.len()],
    };
    let mut groups: Vec<(&Arc<Node>, Vec<usize>)> = Vec::new();
    // What is to be followed: whose slot has no primary at the moment, and what went where it did nothing.
    let mut astray = Vec::new();
    for (at, errand) in errands.iter().enumerate() {
        let Some(shard) = map.shard(errand.slot) else {
            astray.push(at);
            continue;
        };
        match groups.iter_mut().find(|(node, _)| Arc::ptr_eq(node, shard.node())) {
            Some((_, places)) => places.push(at),
            None => groups.push((shard.node(), vec![at])),
        }
    }
    let sent = join_all(groups.iter().map(async |(node, places)| {
        let some: Vec<_> = places.iter().map(|at| &errands[*at]).collect();
        send(node, script, &some, until).await
    }));
    let mut answers: Answers = vec![Ok(Value::Nil); errands.len()];
    for ((_, places), some) in groups.iter().zip(sent.await) {
        for (at, answer) in places.iter().zip(some) {
            if answer.as_ref().is_err_and(may_be_elsewhere) {
                astray.push(*at);
            }
            answers[*at] = answer;
        }
    }
    // A future for each of them is large: it is made for those that need it.
    let followed = join_all(astray.iter().map(|at| follow(cluster, script, &errands[*at], until)));
    for (at, answer) in astray.iter().zip(followed.await) {
        answers[*at] = answer;
    }
    answers
}

/// Nothing happened where it was asked for: another node may have the slot.
fn may_be_elsewhere(error: &EngineError) -> bool {
    slots::points_elsewhere(error) || error.fault == Fault::Unreachable
}

/// Goes where the nodes of a cluster say that the slot is.
async fn follow(
    cluster: &Arc<Cluster>,
    script: &Script,
    errand: &Errand<'_>,
    until: Until,
) -> Result<Value, EngineError> {
    let mut route = cluster.route(errand.slot, until);
    loop {
        let stop = route.next().await?;
        let Stop { shard, asking } = &stop;
        let sent = async {
            let node = shard.node();
            let connection = node.connection(until).await?;
            if *asking {
                node.run_script_asking(&connection, script, &errand.build, until).await
            } else {
                node.run_script(&connection, script, &errand.build, until).await
            }
        };
        match sent.await {
            Err(error) if slots::is_try_again(&error) && !errand.patient => return Err(error),
            Err(error) => route.after(&stop, error).await?,
            value => return value,
        }
    }
}

/// Sends all of them in one write; those whose script the server does not know (any more) again, with its text.
async fn send(node: &Arc<Node>, script: &Script, errands: &[&Errand<'_>], until: Until) -> Answers {
    let connection = match node.connection(until).await {
        Ok(connection) => connection,
        Err(error) => return vec![Err(error); errands.len()],
    };
    if let [errand] = errands {
        return vec![node.run_script(&connection, script, &errand.build, until).await];
    }
    let needless = glance::needless(node, &connection, errands, until).await;
    let needed: Vec<_> = (0..errands.len()).filter(|at| !needless[*at]).collect();
    let mut answers: Answers = vec![Ok(Value::Nil); errands.len()];
    if needed.is_empty() {
        return answers;
    }
    let calls = needed.iter().map(|at| (errands[*at].build)(script, true)).collect();
    let sent = node.send_all(&connection, calls, until).await;
    needed.into_iter().zip(sent).for_each(|(at, answer)| answers[at] = answer);
    let is_unknown =
        |answer: &Result<_, EngineError>| matches!(answer, Err(error) if error.why.starts_with("NOSCRIPT"));
    let unknown: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
    if !unknown.is_empty() {
        // The first brings the text, by which the server knows it for the others.
        let calls = unknown.iter().enumerate().map(|(nth, at)| (errands[*at].build)(script, nth > 0));
        let again = node.send_all(&connection, calls.collect(), until).await;
        unknown.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
    }
    answers
}
