//! A cluster.

use std::{collections::HashMap, sync::Arc};

use redis::Value;

use super::{Check, Member, Role, warnings, when};
use crate::{
    info::{number, read},
    reply,
    topology::{Topology, slots::SlotMap},
    url::Endpoint,
};
use leasehold_core::{
    clock::{Clock, Until},
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
        for node in nodes.as_ref()?.iter().filter(|node| node.role == Role::Primary) {
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
        let is_replica = |node: &Node| node.role == Role::Replica && !node.has_failed;
        let has_replica = |at: &Endpoint| all().any(|node| node.primary == *at && is_replica(node));
        let primaries = all().filter(|node| node.role == Role::Primary && !node.slots.is_empty());
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
    role: Role,
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
        let what = match self.role {
            Role::Primary => format!("primary of {} slots", sizes.sum::<u32>()),
            Role::Replica => format!("replica of {}", self.primary),
        };
        Member { at: self.at.clone(), role: self.role, what }
    }
}

/// What the nodes report of each other, and which they are.
pub(super) async fn inspect(
    topology: &Arc<Topology>,
    clock: &Clock,
    until: Until,
) -> Result<(Health, Vec<Member>), EngineError> {
    // A node that does not answer must leave time for the others.
    let now = clock.now();
    let read = |value: &Value, asked: &str| parse(value, asked, topology.connection.target.speaks_tls());
    let half = now + until.since(now) / 2;
    let (mut found, failed) = topology.ask_nodes(&["CLUSTER", "SHARDS"], None, read, |_| true, half).await;
    let nodes = found.pop();
    let is_denied = |(_, error): &(_, EngineError)| error.fault == Fault::Refused(Refusal::Acl);
    if nodes.is_none() && !failed.iter().any(is_denied) {
        let no_answer = || EngineError::new(Fault::Unreachable, "no cluster node has answered");
        return Err(failed.into_iter().next_back().map_or_else(no_answer, |(_, error)| error));
    }
    let mut health = Health { facts: Vec::new(), warnings: warnings(&CHECKS, &nodes) };
    let nodes = nodes.unwrap_or_default();
    for (label, role) in [("primaries", Role::Primary), ("replicas", Role::Replica)] {
        let counts = |node: &&Node| node.role == role && !node.slots.is_empty();
        health.facts.push((label.into(), nodes.iter().filter(counts).count().to_string()));
    }
    Ok((health, nodes.iter().map(Node::member).collect()))
}

/// Reads an answer to `CLUSTER SHARDS` of a node at `asked`: the primary of each shard before its replicas.
fn parse(value: &Value, asked: &str, with_tls: bool) -> Result<Vec<Node>, EngineError> {
    let shards: Vec<HashMap<String, Value>> = read(value).ok_or_else(|| reply::unexpected(value))?;
    let mut all = Vec::new();
    for shard in &shards {
        let (Some(Value::Array(slots)), Some(Value::Array(nodes))) = (shard.get("slots"), shard.get("nodes"))
        else {
            continue;
        };
        let slots: Vec<_> = slots.iter().filter_map(number).collect();
        let slots: Vec<_> = slots.chunks_exact(2).map(|range| (range[0], range[1])).collect();
        let node = |node: &Value| {
            let node: HashMap<String, Value> = read(node)?;
            let text = |name| node.get(name).and_then(reply::text);
            let port =
                number(node.get(if with_tls { "tls-port" } else { "port" })?).filter(|port| *port > 0)?;
            let at = Endpoint::reported(text("endpoint"), port, asked);
            let role = if text("role")? == "master" { Role::Primary } else { Role::Replica };
            Some((role, text("health") == Some("fail"), at))
        };
        let mut nodes: Vec<_> = nodes.iter().filter_map(node).collect();
        nodes.sort();
        let Some((.., primary)) = nodes.first().cloned() else { continue };
        all.extend(nodes.into_iter().map(|(role, has_failed, at)| Node {
            at,
            role,
            primary: primary.clone(),
            slots: slots.clone(),
            has_failed,
        }));
    }
    Ok(all)
}
