//! What an operator should know: about one server ([`node`]), about those that sentinels watch ([`sentinels`]), about a
//! cluster ([`cluster`]), and what shows only when nodes are compared ([`between`]). What can be wrong is a table of
//! [`Check`]s in each of them.

mod between;
mod cluster;
mod info;
mod node;
mod sentinels;

pub(super) use info::Info;
pub(super) use node::{clock_of, look_at};

use super::{Redis, Servers, place::Place};
use crate::{
    clock::Until,
    engine::{EngineError, Health, Warning},
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

const fn codes<T, const N: usize>(checks: &[Check<T>; N]) -> [&'static str; N] {
    let mut codes = [""; N];
    let mut at = 0;
    while at < N {
        codes[at] = checks[at].0;
        at += 1;
    }
    codes
}

/// Every code that a [`Warning`] about a single server can have.
pub const WARNING_CODES: [&str; 14] = codes(&node::CHECKS);

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

impl Redis {
    pub(super) async fn look_at_health(&self, until: Until) -> Result<Health, EngineError> {
        let found = match &self.servers {
            Servers::Cluster(cluster) => cluster::look_at(cluster, &self.clock, until).await?,
            Servers::One(lanes, _) => {
                let node = &lanes[0].node;
                match node.place() {
                    Place::Fixed(_) => look_at(node, &self.clock, until).await?,
                    Place::Sentinel(sentinels) => sentinels::look_at(sentinels, &self.clock, until).await?,
                }
            }
        };
        let mut facts = vec![("engine".to_owned(), self.capabilities.engine.to_owned())];
        facts.extend(found.facts);
        Ok(Health { facts, ..found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_a_set_is_listed() {
        let of_sets = [
            codes(&node::SET_CHECKS).to_vec(),
            codes(&cluster::CHECKS).into(),
            codes(&sentinels::CHECKS).into(),
        ];
        for code in of_sets.into_iter().flatten() {
            assert!(SET_WARNING_CODES.contains(&code) || WARNING_CODES.contains(&code), "{code}");
        }
    }
}
