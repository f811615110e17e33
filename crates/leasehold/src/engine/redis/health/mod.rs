//! What an operator should know: about one server ([`node`]), about those that sentinels watch ([`sentinels`]), about a
//! cluster ([`cluster`]), and what shows only when nodes are compared ([`between`]).

mod between;
mod cluster;
mod info;
mod members;
mod node;
mod sentinels;

pub(super) use info::Info;
pub(super) use node::{clock_of, look_at};

use super::Redis;
use crate::{
    clock::Until,
    engine::{EngineError, Health},
};

/// Every code that a [`Warning`](crate::engine::Warning) about a single server can have.
pub const WARNING_CODES: [&str; 13] = [
    "no-info",
    "eviction",
    "replica",
    "cluster",
    "version",
    "persistence",
    "bgsave",
    "min-replicas",
    "no-replicas",
    "clients",
    "clock-skew",
    "no-auth",
    "acl",
];

/// The codes that are possible besides when several servers work together.
pub const SET_WARNING_CODES: [&str; 11] = [
    "node-down",
    "node-failed",
    "versions-differ",
    "clocks-differ",
    "unreplicated",
    "replica-link",
    "slots",
    "full-coverage",
    "few-sentinels",
    "sentinel-down",
    "sentinel-views",
];

impl Redis {
    pub(super) async fn look_at_health(&self, until: Until) -> Result<Health, EngineError> {
        let server = self.topology.server().map(|server| server.connection());
        let sentinels = server.and_then(|server| server.target().sentinels());
        let found = match (self.topology.cluster(), sentinels, server) {
            (Some(cluster), ..) => cluster::look_at(cluster, &self.clock, until).await?,
            (_, Some(sentinels), _) => sentinels::look_at(sentinels, &self.clock, until).await?,
            (_, _, Some(server)) => look_at(server, &self.clock, until).await?,
            _ => Health::default(),
        };
        let mut facts = vec![("engine".to_owned(), self.capabilities.engine.to_owned())];
        facts.extend(found.facts);
        Ok(Health { facts, ..found })
    }
}
