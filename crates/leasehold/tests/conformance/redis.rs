//! A Redis of its own as a fixture: a prefix for every namespace, and an administrator who breaks things.

use std::sync::Arc;

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    RedisServer,
    conformance::{Fixture, Namespace, Need},
    redis_or_skip,
};

pub(crate) struct RedisFixture {
    server: RedisServer,
}

impl RedisFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        redis_or_skip().map(|server| Self { server })
    }

    pub(crate) fn with_locale_or_skip() -> Option<Self> {
        RedisServer::builder().locale("en_US.UTF-8").start_or_skip().map(|server| Self { server })
    }

    /// Keys of a namespace, its side keys included.
    fn keys(&self, namespace: &str) -> Vec<String> {
        let reply = self.server.cli(&["KEYS", &format!("*{namespace}:*")]);
        reply.list().iter().map(|key| key.text().to_owned()).collect()
    }
}

/// What the engine keeps beside its locks.
const SIDE: &str = "leasehold:";

impl Fixture for RedisFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let prefix = format!("{}:", namespace.name);
        let builder = Leasehold::builder(self.server.url()).clock(namespace.clock.clone());
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
            self.server.cli(&["DEL", key]);
        }
    }

    fn wipe(&self) {
        self.server.cli(&["FLUSHALL"]);
    }

    fn save(&self) {
        self.server.cli(&["SAVE"]);
    }

    fn rewind(&self) {
        self.server.restart_with_dump();
    }

    /// A stopped process: connections stay open and nothing answers.
    fn cut(&self, _: &str) {
        self.server.stop();
    }

    fn mend(&self, _: &str) {
        self.server.cont();
    }
}
