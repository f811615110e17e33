//! A cluster.

use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;

use super::{
    Check,
    between::{Other, look_at_all},
    info::{command, field, permitted},
    node::{Duty, Part},
    warnings, when,
};
use crate::{
    clock::{Clock, Until},
    engine::{
        EngineError, Fault, Health, nodes,
        redis::{
            answer,
            cluster::Cluster,
            node::Node,
            slots::{self, Address, Primary},
        },
    },
};

/// What can be wrong with the shards of a cluster; `None` if this user may not see them.
pub(super) const CHECKS: [Check<Option<Vec<Shard>>>; 4] = [
    Check("no-info", "grant +cluster|shards, or look with another user", |shards| {
        when(shards.is_none(), "this user may not run CLUSTER SHARDS: no node was checked")
    }),
    Check("slots", "give the slots to a node: redis-cli --cluster fix", |shards| {
        let with_slots = |shard: &Shard| Primary {
            address: shard.nodes[0].address.clone(),
            ranges: shard.ranges.clone(),
            replicas: 0,
        };
        let primaries: Vec<_> = shards.as_ref()?.iter().map(with_slots).collect();
        let missing = slots::check_complete(&primaries).err()?;
        Some(format!("{missing}: names that fall there cannot be locked"))
    }),
    Check("node-failed", "bring it back, or remove it with CLUSTER FORGET", |shards| {
        let nodes = shards.iter().flatten().flat_map(|shard| &shard.nodes);
        let failed = listed(nodes.filter(|node| node.has_failed))?;
        Some(format!("{failed}: the cluster takes it for dead"))
    }),
    Check("unreplicated", "add a replica", |shards| {
        let alone = shards.iter().flatten().filter(|shard| !shard.ranges.is_empty() && !shard.has_replica());
        let alone = listed(alone.map(|shard| &shard.nodes[0]))?;
        Some(format!("{alone}: no replica can take its place, its locks stop with it"))
    }),
];

/// Some nodes by their addresses, if there are any.
fn listed<'a>(members: impl Iterator<Item = &'a Member>) -> Option<String> {
    let addresses: Vec<_> = members.map(|member| member.address.to_string()).collect();
    (!addresses.is_empty()).then(|| nodes::listed(&addresses))
}

/// A primary and its replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shard {
    /// First and last slot of each range.
    ranges: Vec<(u16, u16)>,
    /// The primary first; never empty.
    nodes: Vec<Member>,
}

#[derive(Debug, PartialEq, Eq)]
struct Member {
    address: Address,
    part: Part,
    /// The cluster agreed that it is dead.
    has_failed: bool,
}

impl Shard {
    /// Reads one shard in an answer to `CLUSTER SHARDS` of a node at `asked`.
    fn read(value: &Value, asked: &str, with_tls: bool) -> Option<Self> {
        let Value::Array(slots) = field(value, "slots")? else { return None };
        let Value::Array(nodes) = field(value, "nodes")? else { return None };
        let slot = |value: &Value| match value {
            Value::Int(slot) => u16::try_from(*slot).ok(),
            _ => None,
        };
        let ranges = slots.chunks_exact(2).filter_map(|range| Some((slot(&range[0])?, slot(&range[1])?)));
        let member = |node: &Value| {
            let text = |name| field(node, name).and_then(answer::text);
            let port =
                slot(field(node, if with_tls { "tls-port" } else { "port" })?).filter(|port| *port > 0)?;
            Some(Member {
                address: Address::told(text("endpoint"), port, asked),
                part: if text("role")? == "master" { Part::Primary } else { Part::Replica },
                has_failed: text("health") == Some("fail"),
            })
        };
        let mut members: Vec<_> = nodes.iter().filter_map(member).collect();
        members.sort_by_key(|member| (member.part == Part::Replica, member.has_failed));
        (!members.is_empty()).then(|| Self { ranges: ranges.collect(), nodes: members })
    }

    fn has_replica(&self) -> bool {
        self.nodes.iter().any(|node| node.part == Part::Replica && !node.has_failed)
    }

    /// What one of its nodes is, in words.
    fn part(&self, node: &Member) -> String {
        let slots: u32 =
            self.ranges.iter().map(|(first, last)| u32::from(last.saturating_sub(*first)) + 1).sum();
        match node.part {
            Part::Replica => format!("replica of {}", self.nodes[0].address),
            _ => format!("primary of {slots} slots"),
        }
    }
}

pub(super) async fn look_at(
    cluster: &Arc<Cluster>,
    clock: &Clock,
    until: Until,
) -> Result<Health, EngineError> {
    // A node that is silent must leave time for looking at the others.
    let now = clock.now();
    let shards = ask_for_shards(cluster, now + until.since(now) / 2).await?;
    let mut health = Health { facts: Vec::new(), warnings: warnings(&CHECKS, &shards) };
    let nodes =
        || shards.iter().flatten().flat_map(|shard| shard.nodes.iter().map(move |node| (shard, node)));
    for (label, part) in [("primaries", Part::Primary), ("replicas", Part::Replica)] {
        let has_part = |(shard, node): &(&Shard, &Member)| node.part == part && !shard.ranges.is_empty();
        health.facts.push((label.into(), nodes().filter(has_part).count().to_string()));
    }
    let others = nodes().map(|(shard, node)| Other {
        label: node.address.to_string(),
        node: Ok(cluster.node_at(&node.address)),
        duty: Duty { part: node.part, in_cluster: true, with_grace: false },
        what: shard.part(node),
    });
    look_at_all(health, others.collect(), clock, until).await
}

/// All shards, as the first node that answers knows them; `None` if this user may not see them.
async fn ask_for_shards(cluster: &Cluster, until: Until) -> Result<Option<Vec<Shard>>, EngineError> {
    let mut asked: FuturesUnordered<_> =
        cluster.sources(None).into_iter().map(|(address, node)| ask(address, node, until)).collect();
    let mut last = Err(EngineError::new(Fault::Unreachable, "no cluster node has answered"));
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(Some(shards)) => return Ok(Some(shards)),
            Err(_) if matches!(last, Ok(None)) => {}
            answer => last = answer,
        }
    }
    last
}

async fn ask(address: Address, node: Arc<Node>, until: Until) -> Result<Option<Vec<Shard>>, EngineError> {
    let connection = node.connection(until).await?;
    let answer = permitted(node.send(&connection, &command(&["CLUSTER", "SHARDS"]), until).await)?;
    let Some(value) = answer else { return Ok(None) };
    let Value::Array(shards) = &value else { return Err(answer::unexpected(&value)) };
    let with_tls = node.place().speaks_tls();
    Ok(Some(shards.iter().filter_map(|shard| Shard::read(shard, &address.host, with_tls)).collect()))
}
