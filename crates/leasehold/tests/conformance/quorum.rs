//! A quorum as a ground: three nodes of its own, of which one may be dead, or stand still for a while.

use std::{sync::Arc, time::Duration};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    QuorumSet,
    conformance::{Ground, Need, Plot},
};

pub(crate) struct QuorumGround {
    set: QuorumSet,
}

impl QuorumGround {
    pub(crate) async fn start_or_skip() -> Option<Self> {
        let set = QuorumSet::builder(3).arg("appendfsync", "no").start_or_skip()?;
        admit(&set).await;
        Some(Self { set })
    }

    /// Three nodes, one of which is gone.
    pub(crate) async fn with_one_dead() -> Option<Self> {
        let ground = Self::start_or_skip().await?;
        ground.set.nodes()[2].kill();
        Some(ground)
    }

    /// Three nodes, one of which stands still.
    pub(crate) async fn with_one_stopped() -> Option<Self> {
        let ground = Self::start_or_skip().await?;
        ground.set.nodes()[0].stop();
        Some(ground)
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

impl Ground for QuorumGround {
    fn builder(&self, plot: &Plot) -> Builder {
        let prefix = format!("{}:", plot.space);
        let builder = Leasehold::builder(self.set.url()).clock(plot.clock.clone());
        builder.configure(|config| config.prefix = prefix)
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract]
    }

    fn engine(&self, plot: &Plot) -> Arc<dyn Engine> {
        self.builder(plot).into_engine().unwrap()
    }

    fn leftovers(&self, space: &str) -> Vec<String> {
        let pattern = format!("*{space}:*");
        let mut keys = Vec::new();
        for node in self.living() {
            let reply = node.cli(&["KEYS", &pattern]);
            keys.extend(reply.list().iter().map(|key| key.text().to_owned()));
        }
        keys.retain(|key| !key.starts_with("leasehold:fence:") && !key.starts_with("leasehold:gone:"));
        keys
    }
}
