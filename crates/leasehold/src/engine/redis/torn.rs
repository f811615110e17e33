//! Names whose slot is on its way to another node, while their keys are on both.
//!
//! A script that names several keys is refused there until the whole slot has arrived, which may take longer than a
//! lease. Commands with one key work all the time, and what a holder needs takes one key.

use redis::{Cmd, Value};

use super::{Redis, Servers, answer, cluster::Stop, keys::Keys, script};
use crate::{
    clock::Until,
    engine::{Claim, EngineError, Fault, Hold, Inspection, Released, Renewed},
    name::Name,
    owner::Owner,
};

impl Redis {
    /// Renews by the lock's own key alone.
    pub(super) async fn renew_torn(&self, hold: &Hold, until: Until) -> Result<Renewed, EngineError> {
        let since = self.clock.now();
        let keys = self.keys(&hold.name);
        let lasts = hold.ttl + hold.lock_delay;
        let build = |script: &_, by_hash| script::torn(script, by_hash, &keys, &hold.owner, Some(lasts));
        answer::renewed(self.run_torn(&keys, build, until).await?, since)
    }

    /// Ends an attempt key by key. Nobody is handed the lock: who waits finds it free at its next poll.
    pub(super) async fn end_torn(
        &self,
        name: &Name,
        owner: &Owner,
        claim: Option<&Claim>,
        may_come_late: bool,
        until: Until,
    ) -> Result<Released, EngineError> {
        let keys = self.keys(name);
        let channel = match &self.servers {
            Servers::Cluster(cluster) => cluster.channel(keys.slot()),
            Servers::One(..) => String::new(),
        };
        for cmd in script::torn_end(&keys, owner, claim, may_come_late, &channel) {
            self.send_torn(&keys, &cmd, until).await?;
        }
        let build = |script: &_, by_hash| script::torn(script, by_hash, &keys, owner, None);
        let outcome = answer::released(self.run_torn(&keys, build, until).await?)?;
        Ok(outcome.unwrap_or(Released::Free))
    }

    /// Looks at a lock key by key.
    pub(super) async fn inspect_torn(
        &self,
        name: &Name,
        most_waiters: u32,
        until: Until,
    ) -> Result<Inspection, EngineError> {
        let keys = self.keys(name);
        let ask = async |cmd: &Cmd| self.send_torn(&keys, cmd, until).await;
        let holder = match ask(redis::cmd("GET").arg(keys.lock())).await {
            Err(error) if error.fault == Fault::WrongType => Value::Int(0),
            holder => holder?,
        };
        let pttl = ask(redis::cmd("PTTL").arg(keys.lock())).await?;
        let fence = match ask(redis::cmd("GET").arg(keys.fence())).await? {
            Value::Nil => Value::SimpleString("0".into()),
            fence => fence,
        };
        let count = ask(redis::cmd("ZCARD").arg(keys.waiters())).await?;
        let mut range = redis::cmd("ZRANGE");
        range.arg(keys.waiters()).arg(0).arg(i64::from(most_waiters) - 1).arg("WITHSCORES");
        let waiters = match ask(&range).await? {
            Value::Array(pairs) => pairs.into_iter().flat_map(|pair| self.waited(pair)).collect(),
            other => return Err(answer::unexpected(&other)),
        };
        super::look::inspection(name, &Value::Array(vec![holder, pttl, fence, count, Value::Array(waiters)]))
    }

    /// A waiter's entry and for how long it has waited, from its entry and score. By our wall clock, which is good enough
    /// to look at.
    fn waited(&self, pair: Value) -> Vec<Value> {
        match pair {
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([entry, Value::Double(arrival)]) => {
                    let us = (self.clock.wall_us() as f64 - arrival).max(0.0);
                    vec![entry, Value::SimpleString(format!("{us:.0}"))]
                }
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    async fn run_torn(
        &self,
        keys: &Keys,
        build: impl Fn(&script::Script, bool) -> Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        let script = script::Script::new(script::TORN);
        match self.send_torn(keys, &build(&script, true), until).await {
            Err(error) if error.why.starts_with("NOSCRIPT") => {
                self.send_torn(keys, &build(&script, false), until).await
            }
            answer => answer,
        }
    }

    async fn send_torn(&self, keys: &Keys, cmd: &Cmd, until: Until) -> Result<Value, EngineError> {
        let Servers::Cluster(cluster) = &self.servers else { return Err(not_a_cluster()) };
        let mut route = cluster.route(keys.slot(), until);
        loop {
            let stop = route.next().await?;
            let Stop { shard, asking } = &stop;
            let sent = async {
                let connection = shard.node().connection(until).await?;
                if *asking {
                    shard.node().send_asking(&connection, cmd, until).await
                } else {
                    shard.node().send(&connection, cmd, until).await
                }
            };
            match sent.await {
                Err(error) => route.after(&stop, error).await?,
                value => return value,
            }
        }
    }
}

fn not_a_cluster() -> EngineError {
    EngineError::new(Fault::Unsupported, "only the nodes of a cluster share a name")
}
