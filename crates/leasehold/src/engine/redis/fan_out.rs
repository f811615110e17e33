//! Calls of one script to many slots: all that one server gets leave in one write, and servers are asked at the same time.

mod due_probe;

use std::sync::Arc;

use due_probe::DueProbe;
use redis::{Cmd, Value};

use super::{
    Redis,
    connection::Connection,
    script::Script,
    topology::outcome::{self, Resend},
};
use crate::{clock::Until, engine::EngineError, name::Name};

/// One call of the script.
pub(super) struct ScriptCall<'a> {
    slot: u16,
    build: Build<'a>,
    resend: Resend,
    /// Whether it is needed at all.
    probe: Option<DueProbe>,
}

/// The command, with the script's hash or its text.
type Build<'a> = Box<dyn Fn(&Script, bool) -> Cmd + Send + Sync + 'a>;

impl<'a> ScriptCall<'a> {
    /// A call whose keys are all in this slot; on one server any will do.
    pub(super) fn new(slot: u16, build: impl Fn(&Script, bool) -> Cmd + Send + Sync + 'a) -> Self {
        Self { slot, build: Box::new(build), resend: Resend::AwaitMigration, probe: None }
    }

    /// The same, but it fails at once while its keys are on two nodes.
    pub(super) fn fail_fast(self) -> Self {
        Self { resend: Resend::NotWhileMigrating, ..self }
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
        let calls = &calls;
        self.topology
            .send_each(
                calls.iter().map(|call| call.slot),
                until,
                |shard, places| async move {
                    // In a cluster all that one shard gets leave in one write.
                    let lane = name.filter(|_| !self.topology.in_cluster).map(|name| shard.lane(name));
                    let connection = lane.map_or(shard.connection(), |lane| &lane.connection);
                    let some: Vec<_> = places.iter().map(|at| &calls[*at]).collect();
                    send(connection, script, &some, until).await
                },
                |at| async move {
                    let ScriptCall { slot, build, resend, .. } = &calls[at];
                    self.topology.send_script(*slot, *resend, script, build, until).await
                },
            )
            .await
    }
}

/// Sends all of them in one write; those whose script the server does not know (any more) again, with its text.
async fn send(
    connection: &Arc<Connection>,
    script: &Script,
    calls: &[&ScriptCall<'_>],
    until: Until,
) -> Answers {
    let link = match connection.link(until).await {
        Ok(link) => link,
        Err(error) => return vec![Err(error); calls.len()],
    };
    if let [call] = calls {
        return vec![link.run_script(false, script, &call.build, until).await];
    }
    let nothing_due = due_probe::nothing_due(&link, calls, until).await;
    let wanted: Vec<_> = (0..calls.len()).filter(|at| !nothing_due[*at]).collect();
    let mut answers: Answers = vec![Ok(Value::Nil); calls.len()];
    if wanted.is_empty() {
        return answers;
    }
    let commands = wanted.iter().map(|at| (calls[*at].build)(script, true)).collect();
    let sent = link.send_all(commands, until).await;
    wanted.into_iter().zip(sent).for_each(|(at, answer)| answers[at] = answer);
    let is_unknown =
        |answer: &Result<_, EngineError>| matches!(answer, Err(error) if outcome::is_unknown_script(error));
    let unknown: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
    if !unknown.is_empty() {
        // The first brings the text, by which the server knows it for the others.
        let commands = unknown.iter().enumerate().map(|(nth, at)| (calls[*at].build)(script, nth > 0));
        let again = link.send_all(commands.collect(), until).await;
        unknown.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
    }
    answers
}
