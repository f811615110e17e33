//! A cluster.

use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;

use super::{
    between::{look_at_all, warnings},
    info::{command, permitted},
    members::{Member, members},
    node::Part,
};
use crate::{
    clock::{Clock, Until},
    engine::{
        EngineError, Fault, Health, Warning, nodes,
        redis::{
            answer,
            connection::Connection,
            topology::{
                Cluster,
                slots::{self, Primary},
            },
            url::Endpoint,
        },
    },
};

pub(super) async fn look_at(
    cluster: &Arc<Cluster>,
    clock: &Clock,
    until: Until,
) -> Result<Health, EngineError> {
    // A node that is silent must leave time for looking at the others.
    let now = clock.now();
    let soon = now + until.since(now) / 2;
    cluster.read_map(None, soon).await?;
    let map = cluster.map(soon).await?;
    let told = ask_for_members(cluster, soon).await?;
    let (mut found, may_see_nodes) = match told {
        Some(members) => (about(&members, &map.primaries), true),
        None => (about(&primaries_only(&map.primaries), &map.primaries), false),
    };
    let asked = found
        .nodes
        .iter()
        .map(|(address, part, _)| (address.to_string(), cluster.connection_to(address), *part));
    let looked = look_at_all(asked, true, clock, until).await;
    for (one, (_, _, what)) in looked.iter().zip(&found.nodes) {
        found.health.facts.push(one.fact(what));
    }
    if !may_see_nodes {
        found.health.warnings.push(Warning {
            code: "no-info",
            found: "this user may not run CLUSTER NODES: replicas and failed nodes were not checked".into(),
            cure: "grant +cluster|nodes, or look with another user".into(),
        });
    }
    found.health.warnings.extend(warnings(&looked)?);
    Ok(found.health)
}

/// All nodes, as the first one that answers knows them; `None` if this user may not see them.
async fn ask_for_members(cluster: &Cluster, until: Until) -> Result<Option<Vec<Member>>, EngineError> {
    let mut asked: FuturesUnordered<_> = cluster
        .sources(None)
        .into_iter()
        .map(|(endpoint, connection)| ask(endpoint, connection, until))
        .collect();
    let mut fault = EngineError::new(Fault::Unreachable, "no node of the cluster has answered");
    let mut is_refused = false;
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(Some(members)) => return Ok(Some(members)),
            Ok(None) => is_refused = true,
            Err(error) => fault = error,
        }
    }
    if is_refused { Ok(None) } else { Err(fault) }
}

async fn ask(
    endpoint: Endpoint,
    connection: Arc<Connection>,
    until: Until,
) -> Result<Option<Vec<Member>>, EngineError> {
    let link = connection.link(until).await?;
    let nodes = permitted(link.send(&command(&["CLUSTER", "NODES"]), until).await)?;
    let Some(nodes) = nodes else { return Ok(None) };
    let slots = link.send(&command(&["CLUSTER", "SLOTS"]), until).await?;
    let text = match &nodes {
        Value::VerbatimString { text, .. } => Some(text.as_str()),
        other => answer::text(other),
    };
    match text {
        Some(text) => Ok(Some(members(text, &slots, &endpoint.host))),
        None => Err(answer::unexpected(&nodes)),
    }
}

/// What the map alone tells.
fn primaries_only(primaries: &[Primary]) -> Vec<Member> {
    let member = |primary: &Primary| Member {
        id: primary.endpoint.to_string(),
        address: primary.endpoint.clone(),
        follows: None,
        has_failed: false,
        slots: primary.ranges.iter().map(|(first, last)| u32::from(last - first) + 1).sum(),
    };
    primaries.iter().map(member).collect()
}

/// What the cluster says about itself, and whom to look at.
struct About {
    health: Health,
    nodes: Vec<(Endpoint, Part, String)>,
}

fn about(members: &[Member], primaries: &[Primary]) -> About {
    let (owners, others): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.follows.is_none());
    let with_slots = owners.iter().filter(|owner| owner.slots > 0);
    let mut health = Health::default();
    let replicas = others.len().max(primaries.iter().map(|primary| primary.replicas).sum());
    health.facts.push(("primaries".into(), with_slots.clone().count().to_string()));
    health.facts.push(("replicas".into(), replicas.to_string()));

    if let Err(missing) = slots::check_complete(primaries) {
        health.warnings.push(Warning {
            code: "slots",
            found: format!("{missing}: names that fall there cannot be locked"),
            cure: "give the slots to a node: redis-cli --cluster fix".into(),
        });
    }
    let shown = |members: &[&Member]| {
        nodes::listed(&members.iter().map(|member| member.address.to_string()).collect::<Vec<_>>())
    };
    let failed: Vec<_> = members.iter().filter(|member| member.has_failed).collect();
    if !failed.is_empty() {
        health.warnings.push(Warning {
            code: "node-failed",
            found: format!("{}: the cluster takes it for dead", shown(&failed)),
            cure: "bring it back, or remove it with CLUSTER FORGET".into(),
        });
    }
    let has_replica = |owner: &Member| {
        let known = primaries.iter().find(|primary| primary.endpoint == owner.address);
        others.iter().any(|other| other.follows.as_ref() == Some(&owner.id) && !other.has_failed)
            || known.is_some_and(|primary| primary.replicas > 0)
    };
    let alone: Vec<_> = with_slots.filter(|owner| !has_replica(owner)).copied().collect();
    if !alone.is_empty() {
        health.warnings.push(Warning {
            code: "unreplicated",
            found: format!("{}: no replica can take its place, its locks stop with it", shown(&alone)),
            cure: "add a replica".into(),
        });
    }

    let address_of = |id: &String| members.iter().find(|member| member.id == *id);
    let owner =
        |owner: &&Member| (owner.address.clone(), Part::Primary, format!("primary of {} slots", owner.slots));
    let other = |other: &&Member| {
        let of = other.follows.as_ref().and_then(address_of);
        let what = of.map_or_else(|| "replica".into(), |of| format!("replica of {}", of.address));
        (other.address.clone(), Part::Replica, what)
    };
    let nodes = owners.iter().map(owner).chain(others.iter().map(other)).collect();
    About { health, nodes }
}
