//! Servers that work together: each looked at, all compared.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::join_all;

use super::node::{Duty, Seen, look};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Health, Warning, nodes, redis::node::Node},
};

/// So many are looked at, each over a connection of its own.
const NODES_MAX: usize = 256;

/// A server to be looked at.
pub(super) struct Other {
    pub(super) label: String,
    pub(super) node: Result<Arc<Node>, EngineError>,
    pub(super) duty: Duty,
    /// What it is, in words.
    pub(super) what: String,
}

type Looked = (String, Result<Seen, EngineError>);

/// Looks at all of them at the same time, and adds what was found. An error only if none could be asked.
pub(super) async fn look_at_all(
    mut health: Health,
    others: Vec<Other>,
    clock: &Clock,
    until: Until,
) -> Result<Health, EngineError> {
    let each = others.into_iter().take(NODES_MAX).map(async |Other { label, node, duty, what }| {
        let seen = match node {
            Ok(node) => look(&node, clock, duty, until).await,
            Err(error) => Err(error),
        };
        let words = seen.as_ref().map_or_else(|_| "cannot be asked".to_owned(), Seen::summary);
        ((label.clone(), format!("{what}, {words}")), (label, seen))
    });
    let (facts, looked): (Vec<_>, Vec<_>) = join_all(each).await.into_iter().unzip();
    health.facts.extend(facts);
    health.warnings.extend(warnings(&looked)?);
    Ok(health)
}

fn warnings(all: &[Looked]) -> Result<Vec<Warning>, EngineError> {
    if let Some((_, Err(error))) = all.first()
        && all.iter().all(|(_, seen)| seen.is_err())
    {
        return Err(error.clone());
    }
    let of_each = all.iter().flat_map(|(label, seen)| {
        let down = |error| Warning {
            code: "node-down",
            found: format!("cannot be asked: {error}"),
            cure: "bring it back, or take it out of the set".into(),
        };
        let warnings = seen.as_ref().map_or_else(|error| vec![down(error)], Seen::warnings);
        warnings.into_iter().map(|warning| (label.clone(), warning))
    });
    let mut found = nodes::gather(of_each);
    let seen = || all.iter().filter_map(|(label, seen)| Some((label.as_str(), seen.as_ref().ok()?)));
    found.extend(versions_differ(seen().filter_map(|(label, seen)| Some((label, seen.version()?)))));
    let clocks: Vec<_> = seen().filter_map(|(label, seen)| Some((label, seen.clock?))).collect();
    found.extend(nodes::clocks_differ(
        &clocks,
        "fences are times, and a promotion that lost one may give a smaller one",
        "for longer than most leases last",
    ));
    Ok(found)
}

fn versions_differ<'a>(versions: impl Iterator<Item = (&'a str, String)>) -> Option<Warning> {
    let mut by_version: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    versions.for_each(|(label, version)| by_version.entry(version).or_default().push(label));
    let each = by_version.iter().map(|(version, labels)| format!("{version} on {}", nodes::listed(labels)));
    (by_version.len() > 1).then(|| Warning {
        code: "versions-differ",
        found: format!("not all nodes have one version: {}", each.collect::<Vec<_>>().join("; ")),
        cure: "bring all of them to the same version".into(),
    })
}
