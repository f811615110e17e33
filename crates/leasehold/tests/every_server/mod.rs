//! Servers of every kind, for tests that say the same of all of them.

use std::{sync::Arc, time::Duration};

use leasehold::{Clock, Leasehold, clock::Until, engine::Engine};
use leasehold_testkit::{ClusterSet, RedisServer, SentinelSet};

/// For things that take a moment on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One kind of servers.
pub(crate) enum Servers {
    One(RedisServer),
    Sentinel(SentinelSet),
    Cluster(ClusterSet),
}

impl Servers {
    /// All kinds; each is skipped where it cannot be started.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let starts: [fn() -> Option<Self>; 3] = [
            || leasehold_testkit::redis_or_skip().map(Self::One),
            // One whose primary stays, however busy the machine is.
            || SentinelSet::builder().down_after(LONG * 10).start_or_skip().map(Self::Sentinel),
            || ClusterSet::builder().replicas(0).start_or_skip().map(Self::Cluster),
        ];
        starts.into_iter().filter_map(|start| start())
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Sentinel(set) => set.url(),
            Self::Cluster(set) => set.url(),
        }
    }

    /// The server that has a key.
    pub(crate) fn server(&self, key: &str) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Sentinel(set) => set.primary(),
            Self::Cluster(set) => set.primary_of(key),
        }
    }
}

/// An engine for one of them.
pub(crate) fn open(url: impl AsRef<str>) -> Arc<dyn Engine> {
    Leasehold::builder(url).command_timeout(LONG).into_engine().unwrap()
}

pub(crate) fn soon() -> Until {
    Clock::system().now() + LONG
}
