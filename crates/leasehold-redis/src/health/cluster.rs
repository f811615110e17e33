//! A cluster.

use std::collections::HashMap;

use redis::Value;

use super::{Check, Duty, Member, warnings, when};
use crate::{
    Result,
    driver::speaks_tls,
    info::{number, read},
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

/// What can be wrong with the shards of a cluster; `None` if this user may not see them.
pub(super) const CHECKS: [Check<Option<Vec<Shard>>>; 4] = [
    Check("no-info", "grant +cluster|shards, or look with another user", |shards| {
        when(shards.is_none(), "this user may not run CLUSTER SHARDS: no node was checked")
    }),
    Check("slots", "give the slots to a node: redis-cli --cluster fix", |shards| {
        let mut map = SlotMap::empty();
        for Shard { slots, nodes } in shards.as_ref()? {
            let primaries = nodes.iter().filter(|node| !node.is_replica);
            primaries.for_each(|node| slots.iter().for_each(|slots| map.give(*slots, &node.at)));
        }
        let missing = map.check_complete().err()?;
        Some(format!("{missing}: names that fall there cannot be locked"))
    }),
    Check("node-failed", "bring it back, or remove it with CLUSTER FORGET", |shards| {
        let nodes = shards.iter().flatten().flat_map(|shard| &shard.nodes);
        let failed = listed(nodes.filter(|node| node.has_failed))?;
        Some(format!("{failed}: the cluster takes it for dead"))
    }),
    Check("unreplicated", "add a replica", |shards| {
        let is_alone = |shard: &&Shard| {
            let is_replicated = shard.nodes.iter().any(|node| node.is_replica && !node.has_failed);
            !shard.slots.is_empty() && !is_replicated
        };
        let alone = shards.iter().flatten().filter(is_alone);
        let alone = listed(alone.flat_map(|shard| &shard.nodes).filter(|node| !node.is_replica))?;
        Some(format!("{alone}: no replica can take its place, its locks stop with it"))
    }),
];

/// Some nodes by their addresses, if there are any.
fn listed<'a>(nodes: impl Iterator<Item = &'a Node>) -> Option<String> {
    let addresses: Vec<_> = nodes.map(|node| node.at.to_string()).collect();
    (!addresses.is_empty()).then(|| nodes::listed(&addresses))
}

pub(super) struct Shard {
    /// First and last of each range.
    slots: Vec<(u16, u16)>,
    /// The primary first.
    nodes: Vec<Node>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    is_replica: bool,
    /// The cluster agreed that it is dead.
    has_failed: bool,
    at: Endpoint,
}

impl Shard {
    fn members(&self) -> impl Iterator<Item = Member> {
        let sizes = self.slots.iter().map(|(first, last)| u32::from(last.saturating_sub(*first)) + 1);
        let (size, primary) = (sizes.sum::<u32>(), &self.nodes[0].at);
        self.nodes.iter().map(move |Node { at, is_replica, .. }| Member {
            at: at.clone(),
            duty: Duty { is_replica: *is_replica, in_cluster: true, with_grace: false },
            what: if *is_replica {
                format!("replica of {primary}")
            } else {
                format!("primary of {size} slots")
            },
        })
    }
}

/// What the nodes report of each other, and which they are.
pub(super) async fn inspect(topology: &Topology, until: Until) -> Result<(Health, Vec<Member>)> {
    // A node that does not answer must leave time for the others.
    let now = topology.connection.clock.now();
    let read = |value: &Value, asked: &str| parse(value, asked, speaks_tls(&topology.connection.client));
    let half = now + until.since(now) / 2;
    let (mut found, failed) = topology.ask_nodes(&["CLUSTER", "SHARDS"], None, read, |_| true, half).await;
    let shards = found.pop();
    let is_denied = |(_, error): &(_, EngineError)| error.fault == Fault::Refused(Refusal::Acl);
    if shards.is_none() && !failed.iter().any(is_denied) {
        let no_answer = || unreachable("no cluster node has answered");
        return Err(failed.into_iter().next_back().map_or_else(no_answer, |(_, error)| error));
    }
    let mut health = Health { facts: Vec::new(), warnings: warnings(&CHECKS, &shards) };
    let shards = shards.unwrap_or_default();
    for (label, is_replica) in [("primaries", false), ("replicas", true)] {
        let with_slots = shards.iter().filter(|shard| !shard.slots.is_empty());
        let nodes = with_slots.flat_map(|shard| &shard.nodes).filter(|node| node.is_replica == is_replica);
        health.facts.push((label.into(), nodes.count().to_string()));
    }
    Ok((health, shards.iter().flat_map(Shard::members).collect()))
}

/// Reads an answer to `CLUSTER SHARDS` of a node at `asked`.
fn parse(value: &Value, asked: &str, with_tls: bool) -> Result<Vec<Shard>> {
    let shards: Vec<HashMap<String, Value>> = read(value).ok_or_else(|| reply::unexpected(value))?;
    let node = |node: &Value| {
        let node: HashMap<String, Value> = read(node)?;
        let text = |name| node.get(name).and_then(reply::text);
        let port = node.get(if with_tls { "tls-port" } else { "port" })?;
        let at = Endpoint::reported(text("endpoint"), number(port).filter(|port| *port > 0)?, asked);
        Some(Node { is_replica: text("role")? != "master", has_failed: text("health") == Some("fail"), at })
    };
    let shard = |shard: &HashMap<String, Value>| {
        let (Value::Array(slots), Value::Array(nodes)) = (shard.get("slots")?, shard.get("nodes")?) else {
            return None;
        };
        let slots: Vec<_> = slots.iter().filter_map(number).collect();
        let mut nodes: Vec<_> = nodes.iter().filter_map(node).collect();
        nodes.sort();
        let slots = slots.chunks_exact(2).map(|range| (range[0], range[1])).collect();
        (!nodes.is_empty()).then_some(Shard { slots, nodes })
    };
    Ok(shards.iter().filter_map(shard).collect())
}
