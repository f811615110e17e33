//! A cluster of its own as a fixture: names fall on all of its nodes, and the administrator acts on each.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    ClusterSet,
    conformance::{Fixture, Namespace, Need},
};

pub(crate) struct ClusterFixture {
    set: ClusterSet,
}

impl ClusterFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        // Longer than any outage of the suite: a node that was stopped for a moment is not missed.
        let builder = ClusterSet::builder().replicas(0).node_timeout(Duration::from_secs(60));
        builder.start_or_skip().map(|set| Self { set })
    }

    /// Keys of a namespace on all nodes, its side keys included.
    fn keys(&self, namespace: &str) -> Vec<String> {
        let found = |node: &leasehold_testkit::RedisServer| {
            let reply = node.cli(&["KEYS", &format!("*{namespace}:*")]);
            reply.list().iter().map(|key| key.text().to_owned()).collect::<Vec<_>>()
        };
        self.set.nodes().iter().flat_map(found).collect()
    }
}

/// What the engine keeps beside its locks.
const SIDE: &str = "leasehold:";

impl Fixture for ClusterFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let prefix = format!("{}:", namespace.name);
        let builder = Leasehold::builder(self.set.url()).clock(namespace.clock.clone());
        builder.configure(|config| config.prefix = prefix)
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract, Need::Outage, Need::SideState, Need::Wipe]
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        self.builder(namespace).into_engine().unwrap()
    }

    fn leftovers(&self, namespace: &str) -> Vec<String> {
        let mut keys = self.keys(namespace);
        // Fences, tombstones, limits and latches outlive their use on purpose; they have a ttl.
        let lapses = ["fence:", "gone:", "limit:", "latch"].map(|kind| format!("{SIDE}{kind}"));
        keys.retain(|key| !lapses.iter().any(|prefix| key.starts_with(prefix.as_str())));
        keys
    }

    fn delete_side_state(&self, namespace: &str) {
        for key in self.keys(namespace).iter().filter(|key| key.starts_with(SIDE)) {
            self.set.primary_of(key).cli(&["DEL", key]);
        }
    }

    fn wipe(&self) {
        self.set.nodes().iter().for_each(|node| drop(node.cli(&["FLUSHALL"])));
    }

    /// Stopped processes: connections stay open and nothing answers.
    fn cut(&self, _: &str) {
        self.set.nodes().iter().for_each(|node| node.stop());
    }

    fn mend(&self, _: &str) {
        self.set.nodes().iter().for_each(|node| node.cont());
    }
}
