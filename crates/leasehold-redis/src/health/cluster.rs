//! A cluster.

use std::collections::HashMap;

use redis::Value;

use super::{Check, Duty, Member, warnings, when};
use crate::{
    Result,
    driver::speaks_tls,
    info::read,
    reply,
    topology::{Topology, slots::SlotMap},
    unreachable,
    url::Endpoint,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Fault, Health, nodes},
    error::Refusal,
};

/// What can be wrong with the nodes of a cluster; `None` if this user may not see them.
pub(super) const CHECKS: [Check<Option<Vec<Node>>>; 4] = [
    Check("no-info", "grant +cluster|shards, or look with another user", |nodes| {
        when(nodes.is_none(), "this user may not run CLUSTER SHARDS: no node was checked")
    }),
    Check("slots", "give the slots to a node: redis-cli --cluster fix", |nodes| {
        let mut map = SlotMap::empty();
        for node in nodes.as_ref()?.iter().filter(|node| !node.is_replica) {
            node.slots.iter().for_each(|slots| map.give(*slots, &node.at));
        }
        let missing = map.check_complete().err()?;
        Some(format!("{missing}: names that fall there cannot be locked"))
    }),
    Check("node-failed", "bring it back, or remove it with CLUSTER FORGET", |nodes| {
        let failed = listed(nodes.iter().flatten().filter(|node| node.has_failed))?;
        Some(format!("{failed}: the cluster takes it for dead"))
    }),
    Check("unreplicated", "add a replica", |nodes| {
        let all = || nodes.iter().flatten();
        let is_replica = |node: &Node| node.is_replica && !node.has_failed;
        let has_replica = |at: &Endpoint| all().any(|node| node.primary == *at && is_replica(node));
        let primaries = all().filter(|node| !node.is_replica && !node.slots.is_empty());
        let alone = listed(primaries.filter(|node| !has_replica(&node.at)))?;
        Some(format!("{alone}: no replica can take its place, its locks stop with it"))
    }),
];

/// Some nodes by their addresses, if there are any.
fn listed<'a>(nodes: impl Iterator<Item = &'a Node>) -> Option<String> {
    let addresses: Vec<_> = nodes.map(|node| node.at.to_string()).collect();
    (!addresses.is_empty()).then(|| nodes::listed(&addresses))
}

pub(super) struct Node {
    at: Endpoint,
    is_replica: bool,
    /// The primary of its shard.
    primary: Endpoint,
    /// The slots of its shard: first and last of each range.
    slots: Vec<(u16, u16)>,
    /// The cluster agreed that it is dead.
    has_failed: bool,
}

impl Node {
    fn member(&self) -> Member {
        let sizes = self.slots.iter().map(|(first, last)| u32::from(last.saturating_sub(*first)) + 1);
        let what = match self.is_replica {
            false => format!("primary of {} slots", sizes.sum::<u32>()),
            true => format!("replica of {}", self.primary),
        };
        let duty = Duty { is_replica: self.is_replica, in_cluster: true, with_grace: false };
        Member { at: self.at.clone(), duty, what }
    }
}

/// What the nodes report of each other, and which they are.
pub(super) async fn inspect(topology: &Topology, until: Until) -> Result<(Health, Vec<Member>)> {
    // A node that does not answer must leave time for the others.
    let now = topology.connection.clock.now();
    let read = |value: &Value, asked: &str| parse(value, asked, speaks_tls(&topology.connection.client));
    let half = now + until.since(now) / 2;
    let (mut found, failed) = topology.ask_nodes(&["CLUSTER", "SHARDS"], None, read, |_| true, half).await;
    let nodes = found.pop();
    let is_denied = |(_, error): &(_, EngineError)| error.fault == Fault::Refused(Refusal::Acl);
    if nodes.is_none() && !failed.iter().any(is_denied) {
        let no_answer = || unreachable("no cluster node has answered");
        return Err(failed.into_iter().next_back().map_or_else(no_answer, |(_, error)| error));
    }
    let mut health = Health { facts: Vec::new(), warnings: warnings(&CHECKS, &nodes) };
    let nodes = nodes.unwrap_or_default();
    for (label, is_replica) in [("primaries", false), ("replicas", true)] {
        let counts = |node: &&Node| node.is_replica == is_replica && !node.slots.is_empty();
        health.facts.push((label.into(), nodes.iter().filter(counts).count().to_string()));
    }
    Ok((health, nodes.iter().map(Node::member).collect()))
}

/// Reads an answer to `CLUSTER SHARDS` of a node at `asked`: the primary of each shard before its replicas.
fn parse(value: &Value, asked: &str, with_tls: bool) -> Result<Vec<Node>> {
    let shards: Vec<HashMap<String, Value>> = read(value).ok_or_else(|| reply::unexpected(value))?;
    let mut all = Vec::new();
    for shard in &shards {
        let (Some(Value::Array(slots)), Some(Value::Array(nodes))) = (shard.get("slots"), shard.get("nodes"))
        else {
            continue;
        };
        let slots: Vec<_> = slots.iter().filter_map(read).collect();
        let slots: Vec<_> = slots.chunks_exact(2).map(|range| (range[0], range[1])).collect();
        let node = |node: &Value| {
            let node: HashMap<String, Value> = read(node)?;
            let text = |name| node.get(name).and_then(reply::text);
            let port = node.get(if with_tls { "tls-port" } else { "port" })?;
            let port = read(port).filter(|port| *port > 0)?;
            let at = Endpoint::reported(text("endpoint"), port, asked);
            Some((text("role")? != "master", text("health") == Some("fail"), at))
        };
        let mut nodes: Vec<_> = nodes.iter().filter_map(node).collect();
        nodes.sort();
        let Some((.., primary)) = nodes.first().cloned() else { continue };
        all.extend(nodes.into_iter().map(|(is_replica, has_failed, at)| {
            let (primary, slots) = (primary.clone(), slots.clone());
            Node { at, is_replica, primary, slots, has_failed }
        }));
    }
    Ok(all)
}
