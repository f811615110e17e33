//! What an operator should know about a server ([`server`]), a cluster ([`cluster`]) or the servers that sentinels watch
//! ([`sentinels`]). What can be wrong is a table of [`Check`]s in each of them; what shows only when servers are compared
//! is here.

mod cluster;
mod sentinels;
mod server;

use std::collections::BTreeMap;

use futures_util::future::join_all;

pub(super) use self::server::inspect_server;
use self::server::{Duty, Server};
use super::{Redis, Result, url::Endpoint};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Health, Warning, nodes},
};

/// One thing that can be wrong with a `T`: its code, the cure, and what was found, if it is wrong.
struct Check<T>(&'static str, &'static str, fn(&T) -> Option<String>);

fn warnings<T>(checks: &[Check<T>], of: &T) -> Vec<Warning> {
    let warning =
        |Check(code, cure, finds): &Check<T>| Some(Warning { code, found: finds(of)?, cure: (*cure).into() });
    checks.iter().filter_map(warning).collect()
}

fn when(is_wrong: bool, words: &str) -> Option<String> {
    is_wrong.then(|| words.to_owned())
}

/// The first codes of a table.
const fn codes<T, const N: usize>(checks: &[Check<T>]) -> [&'static str; N] {
    let mut codes = [""; N];
    let mut at = 0;
    while at < N {
        codes[at] = checks[at].0;
        at += 1;
    }
    codes
}

/// Every code that a [`Warning`] about a single server can have.
pub const WARNING_CODES: [&str; 14] = codes(&server::CHECKS);

/// The codes that are possible besides when several servers work together.
pub const SET_WARNING_CODES: [&str; 12] = [
    "node-down",
    "node-failed",
    "versions-differ",
    "clocks-differ",
    "unreplicated",
    "replica-link",
    "backlog-ttl",
    "slots",
    "full-coverage",
    "few-sentinels",
    "sentinel-down",
    "sentinel-views",
];

/// So many servers of a set are inspected, each over a connection of its own.
const SERVERS_MAX: usize = 256;

struct Member {
    at: Endpoint,
    duty: Duty,
    /// What it is, in words.
    what: String,
}

impl Redis {
    pub(super) async fn inspect_health(&self, until: Until) -> Result<Health> {
        let (mut health, members) = if self.topology.in_cluster {
            cluster::inspect(&self.topology, until).await?
        } else if let Some(sentinels) = &self.topology.connection.sentinels {
            sentinels::inspect(sentinels).await?
        } else {
            let shard = self.topology.shard(0, until).await?;
            (inspect_server(shard.connection(), until).await?.0, Vec::new())
        };
        health.facts.insert(0, ("engine".to_owned(), self.capabilities.engine.to_owned()));
        self.inspect_all(health, members, until).await
    }

    /// Inspects all of them at the same time, and adds what was found. Fails only if none could be asked.
    async fn inspect_all(&self, mut health: Health, members: Vec<Member>, until: Until) -> Result<Health> {
        let each = members.into_iter().take(SERVERS_MAX).map(async |Member { at, duty, what }| {
            let server = server::inspect(&self.topology.connection_to(&at), duty, until).await;
            let words = server.as_ref().map_or_else(|_| "cannot be asked".to_owned(), Server::summary);
            ((at.to_string(), format!("{what}, {words}")), (at.to_string(), server))
        });
        let (facts, servers): (Vec<_>, Vec<_>) = join_all(each).await.into_iter().unzip();
        if let Some((_, Err(error))) = servers.first()
            && servers.iter().all(|(_, server)| server.is_err())
        {
            return Err(error.clone());
        }
        health.facts.extend(facts);
        health.warnings.extend(nodes::gather(servers.iter().flat_map(|(label, server)| {
            let warnings = server.as_ref().map_or_else(|error| vec![down(error)], Server::warnings);
            warnings.into_iter().map(|warning| (label.clone(), warning))
        })));
        let seen: Vec<_> =
            servers.iter().filter_map(|(label, server)| Some((&**label, server.as_ref().ok()?))).collect();
        health.warnings.extend(versions_differ(&seen));
        let clocks: Vec<_> =
            seen.iter().filter_map(|(label, server)| Some((*label, server.clock?))).collect();
        health.warnings.extend(nodes::clocks_differ(
            &clocks,
            "fences are times, and a promotion that lost one may give a smaller one",
            "for longer than most leases last",
        ));
        Ok(health)
    }
}

fn down(error: &EngineError) -> Warning {
    Warning {
        code: "node-down",
        found: format!("cannot be asked: {error}"),
        cure: "bring it back, or take it out of the set".into(),
    }
}

fn versions_differ(servers: &[(&str, &Server)]) -> Option<Warning> {
    let mut by_version: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (label, server) in servers {
        if let Some(version) = server.version() {
            by_version.entry(version).or_default().push(label);
        }
    }
    let each = by_version.iter().map(|(version, labels)| format!("{version} on {}", nodes::listed(labels)));
    (by_version.len() > 1).then(|| Warning {
        code: "versions-differ",
        found: format!("not all nodes have one version: {}", each.collect::<Vec<_>>().join("; ")),
        cure: "bring all of them to the same version".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_a_set_is_listed() {
        fn of<T>(checks: &[Check<T>]) -> Vec<&'static str> {
            checks.iter().map(|Check(code, ..)| *code).collect()
        }
        for code in [of(&server::CHECKS), of(&cluster::CHECKS), of(&sentinels::CHECKS)].concat() {
            assert!(SET_WARNING_CODES.contains(&code) || WARNING_CODES.contains(&code), "{code}");
        }
    }
}
