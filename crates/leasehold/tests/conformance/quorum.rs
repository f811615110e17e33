//! A quorum as a fixture: three nodes of its own, of which one may be dead, or stand still for a while.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    QuorumSet,
    conformance::{Fixture, Namespace, Need},
};

pub(crate) struct QuorumFixture {
    set: QuorumSet,
    /// A busy machine answers late. A node that stands still is waited for that long by whoever wants all answers.
    command_timeout: Duration,
}

impl QuorumFixture {
    pub(crate) async fn start_or_skip() -> Option<Self> {
        let set = QuorumSet::builder(3).arg("appendfsync", "no").start_or_skip()?;
        admit(&set).await;
        Some(Self { set, command_timeout: Duration::from_secs(5) })
    }

    /// Three nodes, one of which is gone.
    pub(crate) async fn with_one_dead() -> Option<Self> {
        let fixture = Self::start_or_skip().await?;
        fixture.set.nodes()[2].kill();
        Some(fixture)
    }

    /// Three nodes, one of which stands still.
    pub(crate) async fn with_one_stopped() -> Option<Self> {
        let fixture = Self::start_or_skip().await?;
        fixture.set.nodes()[0].stop();
        Some(Self { command_timeout: Duration::from_secs(2), ..fixture })
    }

    fn living(&self) -> impl Iterator<Item = &leasehold_testkit::RedisServer> {
        self.set.nodes().iter().filter(|node| node.is_up())
    }
}

/// Makes the nodes a quorum: nobody holds anything on them yet.
pub(crate) async fn admit(set: &QuorumSet) {
    let patient = Leasehold::builder(set.url()).command_timeout(Duration::from_secs(30));
    let leases = patient.connect_lazy().unwrap();
    leases.quorum().unwrap().admit_new().await.unwrap();
    leases.close().await.unwrap();
}

impl Fixture for QuorumFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let prefix = format!("{}:", namespace.name);
        let builder = Leasehold::builder(self.set.url()).clock(namespace.clock.clone());
        builder.configure(|config| config.prefix = prefix).command_timeout(self.command_timeout)
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract]
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        self.builder(namespace).into_engine().unwrap()
    }

    fn leftovers(&self, namespace: &str) -> Vec<String> {
        let pattern = format!("*{namespace}:*");
        let mut keys = Vec::new();
        for node in self.living() {
            let reply = node.cli(&["KEYS", &pattern]);
            keys.extend(reply.list().iter().map(|key| key.text().to_owned()));
        }
        keys.retain(|key| !key.starts_with("leasehold:fence:") && !key.starts_with("leasehold:gone:"));
        keys
    }
}
