//! Servers that work together: each looked at, all compared.

use std::sync::Arc;

use futures_util::future::join_all;

use super::node::{Part, Seen, look};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Warning, nodes, redis::connection::Connection},
};

/// So many are looked at, each over a connection of its own.
const NODES_MAX: usize = 256;

/// One of them.
pub(super) struct Looked {
    pub(super) label: String,
    pub(super) seen: Result<Seen, EngineError>,
}

impl Looked {
    /// What it is, in one line.
    pub(super) fn fact(&self, what: &str) -> (String, String) {
        let words = match &self.seen {
            Ok(seen) => seen.summary(),
            Err(_) => "cannot be asked".into(),
        };
        (self.label.clone(), format!("{what}, {words}"))
    }
}

/// Looks at all of them at the same time.
pub(super) async fn look_at_all(
    nodes: impl IntoIterator<Item = (String, Result<Arc<Connection>, EngineError>, Part)>,
    in_cluster: bool,
    clock: &Clock,
    until: Until,
) -> Vec<Looked> {
    let each = nodes.into_iter().take(NODES_MAX).map(async |(label, connection, part)| {
        let seen = match connection {
            Ok(connection) => look(&connection, clock, part, in_cluster, until).await,
            Err(error) => Err(error),
        };
        Looked { label, seen }
    });
    join_all(each).await
}

/// What should be changed about them. An error only if none could be asked.
pub(super) fn warnings(all: &[Looked]) -> Result<Vec<Warning>, EngineError> {
    if let Some(error) = all.iter().map(|one| one.seen.as_ref().err()).collect::<Option<Vec<_>>>() {
        let first = error.first().map(|error| (*error).clone());
        return first.map_or(Ok(Vec::new()), Err);
    }
    let of_each = all.iter().flat_map(|Looked { label, seen }| {
        let warnings = match seen {
            Ok(seen) => seen.warnings(),
            Err(error) => vec![Warning {
                code: "node-down",
                found: format!("cannot be asked: {error}"),
                cure: "bring it back, or take it out of the set".into(),
            }],
        };
        warnings.into_iter().map(|warning| (label.clone(), warning))
    });
    let mut found = nodes::gather(of_each);
    let seen = || all.iter().filter_map(|one| Some((one.label.as_str(), one.seen.as_ref().ok()?)));
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
    let mut by_version: Vec<(String, Vec<&str>)> = Vec::new();
    for (label, version) in versions {
        match by_version.iter_mut().find(|(known, _)| *known == version) {
            Some((_, labels)) => labels.push(label),
            None => by_version.push((version, vec![label])),
        }
    }
    if by_version.len() < 2 {
        return None;
    }
    let each: Vec<_> = by_version
        .iter()
        .map(|(version, labels)| format!("{version} on {}", nodes::listed(labels)))
        .collect();
    Some(Warning {
        code: "versions-differ",
        found: format!("not all nodes have one version: {}", each.join("; ")),
        cure: "bring all of them to the same version".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Fault, redis::health::node::tests::seen};

    fn looked(label: &str, version: &str) -> Looked {
        Looked { label: label.into(), seen: Ok(seen(&format!("redis_version:{version}\r\n"))) }
    }

    fn down(label: &str) -> Looked {
        Looked { label: label.into(), seen: Err(EngineError::new(Fault::Unreachable, "gone")) }
    }

    #[test]
    fn versions_that_differ_are_listed_with_their_nodes() {
        let same = warnings(&[looked("a", "7.0.1"), looked("b", "7.0.1")]).unwrap();
        assert!(!same.iter().any(|warning| warning.code == "versions-differ"), "{same:?}");
        let found = warnings(&[looked("a", "7.0.1"), looked("b", "7.2.0"), looked("c", "7.0.1")]).unwrap();
        let warning = found.iter().find(|warning| warning.code == "versions-differ").unwrap();
        assert!(warning.found.ends_with("7.0.1 on a, c; 7.2.0 on b"), "{warning:?}");
    }

    #[test]
    fn a_node_that_cannot_be_asked_is_a_warning_unless_all_are() {
        let found = warnings(&[down("a"), looked("b", "7.0.1"), down("c")]).unwrap();
        assert_eq!((found[0].code, found[0].found.as_str()), ("node-down", "a, c: cannot be asked: gone"));
        assert_eq!(warnings(&[down("a"), down("b")]).unwrap_err().why, "gone");
    }
}
