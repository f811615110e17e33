//! A primary, a replica and sentinels as a fixture: a prefix for every namespace, and an administrator of whichever server is
//! the primary.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    SentinelSet,
    conformance::{Fixture, Namespace, Need},
};

pub(crate) struct SentinelFixture {
    set: SentinelSet,
}

impl SentinelFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        let builder = SentinelSet::builder()
            .replicas(1)
            // A server that is stopped for a moment is to come back with its data.
            .down_after(Duration::from_secs(600))
            .arg("appendonly", "no");
        builder.start_or_skip().map(|set| Self { set })
    }

    /// Keys of a namespace, its side keys included.
    fn keys(&self, namespace: &str) -> Vec<String> {
        let reply = self.set.primary().cli(&["KEYS", &format!("*{namespace}:*")]);
        reply.list().iter().map(|key| key.text().to_owned()).collect()
    }
}

/// What the engine keeps beside its locks.
const SIDE: &str = "leasehold:";

impl Fixture for SentinelFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let prefix = format!("{}:", namespace.name);
        let builder = Leasehold::builder(self.set.url()).clock(namespace.clock.clone());
        builder.configure(|config| config.prefix = prefix)
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract, Need::Outage, Need::SideState, Need::Wipe, Need::Rewind]
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
            self.set.primary().cli(&["DEL", key]);
        }
    }

    fn wipe(&self) {
        self.set.primary().cli(&["FLUSHALL"]);
    }

    fn save(&self) {
        self.set.primary().cli(&["SAVE"]);
    }

    fn rewind(&self) {
        self.set.primary().restart_with_dump();
    }

    /// A stopped process: connections stay open and nothing answers.
    fn cut(&self, _: &str) {
        self.set.primary().stop();
    }

    fn mend(&self, _: &str) {
        self.set.primary().cont();
    }
}
