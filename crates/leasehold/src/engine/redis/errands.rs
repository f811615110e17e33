//! Calls of one script, each to the server that has its slot: all that one server gets leave in one write, and servers are
//! asked at the same time.

mod glance;

use std::sync::Arc;

use glance::Glance;
use redis::{Cmd, Value};

use super::{
    Redis,
    connection::Connection,
    script::Script,
    topology::outcome::{self, Resend},
};
use crate::{clock::Until, engine::EngineError, name::Name};

/// One call.
pub(super) struct Errand<'a> {
    slot: u16,
    build: Build<'a>,
    resend: Resend,
    /// How to find out whether it is needless.
    glance: Option<Glance>,
}

/// The command, with the script's hash or its text.
type Build<'a> = Box<dyn Fn(&Script, bool) -> Cmd + Send + Sync + 'a>;

impl<'a> Errand<'a> {
    /// A call that touches this slot only; on one server any will do.
    pub(super) fn new(slot: u16, build: impl Fn(&Script, bool) -> Cmd + Send + Sync + 'a) -> Self {
        Self { slot, build: Box::new(build), resend: Resend::AwaitMigration, glance: None }
    }

    /// The same, but it fails at once if its keys are on two nodes.
    pub(super) fn impatient(self) -> Self {
        Self { resend: Resend::NotWhileMigrating, ..self }
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
        let errands = &errands;
        self.topology
            .send_each(
                errands.iter().map(|errand| errand.slot),
                until,
                |shard, places| async move {
                    // In a cluster all that one shard gets leave in one write.
                    let lane =
                        name.filter(|_| self.topology.cluster().is_none()).map(|name| shard.lane(name));
                    let connection = lane.map_or(shard.connection(), |lane| &lane.connection);
                    let some: Vec<_> = places.iter().map(|at| &errands[*at]).collect();
                    send(connection, script, &some, until).await
                },
                |at| async move {
                    let Errand { slot, build, resend, .. } = &errands[at];
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
    errands: &[&Errand<'_>],
    until: Until,
) -> Answers {
    let link = match connection.link(until).await {
        Ok(link) => link,
        Err(error) => return vec![Err(error); errands.len()],
    };
    if let [errand] = errands {
        return vec![link.run_script(false, script, &errand.build, until).await];
    }
    let needless = glance::needless(&link, errands, until).await;
    let needed: Vec<_> = (0..errands.len()).filter(|at| !needless[*at]).collect();
    let mut answers: Answers = vec![Ok(Value::Nil); errands.len()];
    if needed.is_empty() {
        return answers;
    }
    let calls = needed.iter().map(|at| (errands[*at].build)(script, true)).collect();
    let sent = link.send_all(calls, until).await;
    needed.into_iter().zip(sent).for_each(|(at, answer)| answers[at] = answer);
    let is_unknown =
        |answer: &Result<_, EngineError>| matches!(answer, Err(error) if outcome::is_unknown_script(error));
    let unknown: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
    if !unknown.is_empty() {
        // The first brings the text, by which the server knows it for the others.
        let calls = unknown.iter().enumerate().map(|(nth, at)| (errands[*at].build)(script, nth > 0));
        let again = link.send_all(calls.collect(), until).await;
        unknown.into_iter().zip(again).for_each(|(at, answer)| answers[at] = answer);
    }
    answers
}
