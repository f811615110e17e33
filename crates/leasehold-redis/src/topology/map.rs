//! The slot map, and the connections to the primaries in it.
//!
//! It is read from whichever node answers, corrected by redirections, and read again after any trouble. A server that has
//! all names has a map that never changes.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;

use super::{Shard, State, Topology, slots::SlotMap};
use crate::{
    Result,
    connection::{Connection, ConnectionOptions, closed},
    info::command,
    locked, unreachable,
    url::Endpoint,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Fault},
    error::Refusal,
};

/// A node that has not answered by then is not waited for: the next one is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(200);
/// Shortest time between two readings of the map.
const READ_PAUSE: Duration = Duration::from_millis(100);

impl Topology {
    /// The primary of a slot. If there is none, the map is read again: the cluster may just be forming.
    pub(crate) async fn shard(&self, slot: u16, until: Until) -> Result<Arc<Shard>> {
        let mut map = self.map(until).await?;
        if map.primary(slot).is_none() {
            map = self.read_map(None, until).await?;
        }
        let no_primary = || unreachable(format!("slot {slot} of the cluster has no primary"));
        self.shard_at(&mut locked(&self.state), map.primary(slot).ok_or_else(no_primary)?)
    }

    /// All primaries, and the first slot of each, in order.
    pub(crate) async fn primaries(&self, until: Until) -> Result<Vec<(u16, Arc<Shard>)>> {
        let map = self.map(until).await?;
        let mut state = locked(&self.state);
        let shard = |(first, primary)| Ok((first, self.shard_at(&mut state, primary)?));
        map.by_first_slot().into_iter().map(shard).collect()
    }

    /// The connections to a primary; none of them is dialled yet.
    pub(super) fn shard_at(&self, state: &mut State, endpoint: &Endpoint) -> Result<Arc<Shard>> {
        if state.closed {
            return Err(closed());
        }
        if let Some(shard) = state.shards.get(endpoint) {
            return Ok(shard.clone());
        }
        let of_all = &self.connection;
        let connection = if self.in_cluster { of_all.at(endpoint) } else { of_all.clone() };
        let channels = if self.in_cluster { &[] } else { &*self.channels };
        let shard = Arc::new(Shard::new(endpoint.clone(), &connection, &self.options, channels));
        state.shards.insert(endpoint.clone(), shard.clone());
        Ok(shard)
    }

    /// The map; read from the seeds if there is none yet.
    pub(super) async fn map(&self, until: Until) -> Result<Arc<SlotMap>> {
        if let Some(map) = &locked(&self.state).map {
            return Ok(map.clone());
        }
        self.read_map(None, until).await
    }

    /// Reads the map again, unless that was just done. `doubted` is asked last.
    pub(super) async fn read_map(&self, doubted: Option<&Endpoint>, until: Until) -> Result<Arc<SlotMap>> {
        let clock = &self.options.clock;
        let asked_at = clock.now();
        let late = || unreachable("the slot map was not read in time");
        let mut read_at = clock.bounded(until, self.reading.lock()).await.ok_or_else(late)?;
        let is_new = read_at.is_some_and(|at| at >= asked_at || asked_at.since(at) < READ_PAUSE);
        match &*locked(&self.state) {
            State { closed: true, .. } => return Err(closed()),
            // Read by another caller, while we waited or a moment ago.
            State { map: Some(map), .. } if is_new => return Ok(map.clone()),
            _ => {}
        }
        let words = ["CLUSTER", "SLOTS"];
        let is_complete = |map: &SlotMap| map.check_complete().is_ok();
        let (found, failed) = self.ask_nodes(&words, doubted, SlotMap::parse, is_complete, until).await;
        *read_at = Some(clock.now());
        // Without a complete one, the one with the most slots.
        let best = found.into_iter().max_by_key(SlotMap::coverage).filter(|map| map.coverage() > 0);
        Ok(self.replace_map(best.ok_or_else(|| no_map(&failed))?))
    }

    /// Reads the map again, in the background.
    pub(super) fn read_map_soon(self: &Arc<Self>, doubted: Endpoint) {
        let topology = self.clone();
        let task = async move {
            let until = topology.options.clock.now() + topology.options.command_timeout;
            let _a_later_one_may_succeed = topology.read_map(Some(&doubted), until).await;
        };
        drop(self.connection.tasks.spawn(task));
    }

    /// Asks one node after the other, the doubted one last, until an answer is `enough`. Returns what was answered, and
    /// who failed.
    pub(crate) async fn ask_nodes<T>(
        &self,
        words: &[&str],
        doubted: Option<&Endpoint>,
        read: impl Fn(&Value, &str) -> Result<T>,
        is_enough: impl Fn(&T) -> bool,
        until: Until,
    ) -> (Vec<T>, Vec<(Endpoint, EngineError)>) {
        let clock = &self.options.clock;
        let cmd = &command(words);
        let mut nodes = self.nodes();
        nodes.sort_by_key(|(node, _)| Some(node) == doubted);
        let mut nodes = nodes.into_iter();
        let mut asked = FuturesUnordered::new();
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        loop {
            if let Some((node, connection)) = nodes.next() {
                asked.push(async move {
                    let answer = async { connection.link(until).await?.send(cmd, until).await };
                    (node, answer.await)
                });
            }
            let limit = if nodes.len() > 0 { (clock.now() + NEXT_AFTER).min(until) } else { until };
            match clock.bounded(limit, asked.next()).await {
                Some(Some((node, answer))) => match answer.and_then(|value| read(&value, &node.host)) {
                    Ok(answer) if is_enough(&answer) => return (vec![answer], failed),
                    Ok(answer) => found.push(answer),
                    Err(error) => failed.push((node, error)),
                },
                None if clock.now() < until => {}
                _ => break,
            }
        }
        (found, failed)
    }

    /// Every node that is known, and those that the URL names.
    fn nodes(&self) -> Vec<(Endpoint, Arc<Connection>)> {
        let state = locked(&self.state);
        let known = state.shards.iter().map(|(node, shard)| (node.clone(), shard.connection().clone()));
        let seeds = self.seeds.iter().filter(|seed| !state.shards.contains_key(seed));
        known.chain(seeds.map(|seed| (seed.clone(), self.connection_to(seed)))).collect()
    }

    /// A connection of its own to any server, with the same login, that reports no link events.
    pub(crate) fn connection_to(&self, endpoint: &Endpoint) -> Arc<Connection> {
        let options = self.connection.at(endpoint);
        Connection::new(ConnectionOptions { identify: false, listener: None, ..options })
    }

    /// Takes a map that was read: shards that are not in it are let go.
    fn replace_map(&self, mut map: SlotMap) -> Arc<SlotMap> {
        let mut state = locked(&self.state);
        if let Some(before) = &state.map {
            map.keep_owned(before);
        }
        let gone: Vec<_> = state.shards.extract_if(|endpoint, _| !map.has(endpoint)).collect();
        let map = state.map.insert(Arc::new(map)).clone();
        drop(state);
        gone.iter().for_each(|(_, shard)| shard.leave("a primary has left the cluster"));
        map
    }

    /// A MOVED is newer than the map.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, to: &Endpoint, by: &Endpoint) {
        if let Some(map) = locked(&self.state).map.as_mut().filter(|map| map.primary(slot) == Some(by)) {
            Arc::make_mut(map).give((slot, slot), to);
        }
        self.read_map_soon(by.clone());
    }
}

/// The error when no node returned a map.
fn no_map(failed: &[(Endpoint, EngineError)]) -> EngineError {
    let Some((node, first)) = failed.first() else {
        return unreachable("no cluster node has answered, or knows a primary");
    };
    if first.why.contains("cluster support disabled") {
        let words = format!("{node} is not part of a cluster; use redis://");
        return EngineError::new(Fault::Unsupported, words);
    }
    // A wrong password is wrong everywhere, and worth its own kind of error.
    if let Fault::Refused(Refusal::Auth | Refusal::Acl | Refusal::Certificate) | Fault::Unsupported =
        first.fault
    {
        return first.clone();
    }
    let words = format!("no cluster node returned a slot map: {}", each_failed(failed));
    unreachable(words.chars().take(400).collect::<String>())
}

/// Servers that failed, and what with.
pub(super) fn each_failed(failed: &[(Endpoint, EngineError)]) -> String {
    failed.iter().map(|(at, error)| format!("{at} ({error})")).collect::<Vec<_>>().join(", ")
}
