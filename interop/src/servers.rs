//! The servers that both sides use, and where on them a key is.

use std::time::Duration;

use leasehold_testkit::{ClusterSet, RedisServer, SentinelSet};

use crate::Failure;

/// How servers work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    /// One Redis
    One,
    /// A cluster of three primaries
    Cluster,
    /// A primary and a replica behind three sentinels
    Sentinel,
}

impl Topology {
    /// For the report.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::One => "one Redis",
            Self::Cluster => "a cluster of three primaries",
            Self::Sentinel => "a primary and a replica behind three sentinels",
        }
    }
}

pub(crate) enum Servers {
    One(RedisServer),
    Cluster(ClusterSet),
    Sentinel(SentinelSet),
}

impl Servers {
    pub(crate) fn start(topology: Topology) -> Result<Self, Failure> {
        // Nothing fails over here, however busy the machine is.
        const NEVER: Duration = Duration::from_secs(600);
        Ok(match topology {
            Topology::One => Self::One(RedisServer::start()?),
            Topology::Cluster => Self::Cluster(ClusterSet::builder().replicas(0).start()?),
            Topology::Sentinel => {
                Self::Sentinel(SentinelSet::builder().replicas(1).down_after(NEVER).start()?)
            }
        })
    }

    pub(crate) fn topology(&self) -> Topology {
        match self {
            Self::One(_) => Topology::One,
            Self::Cluster(_) => Topology::Cluster,
            Self::Sentinel(_) => Topology::Sentinel,
        }
    }

    /// What leasehold connects to.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Cluster(set) => set.url(),
            Self::Sentinel(set) => set.url(),
        }
    }

    /// What the program of another library connects to.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let urls = |servers: &[RedisServer]| {
            format!("urls={}", servers.iter().map(RedisServer::url).collect::<Vec<_>>().join(","))
        };
        match self {
            Self::One(server) => vec![format!("url={}", server.url())],
            Self::Cluster(set) => vec!["mode=cluster".into(), urls(set.nodes())],
            Self::Sentinel(set) => {
                let primary = format!("primary={}", SentinelSet::NAME);
                vec!["mode=sentinel".into(), primary, urls(set.sentinels())]
            }
        }
    }

    /// The server that has a key.
    pub(crate) fn of(&self, key: &str) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Cluster(set) => set.primary_of(key),
            Self::Sentinel(set) => set.primary(),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.topology() == Topology::Cluster
    }

    /// A name of a lock on each server that has locks.
    pub(crate) fn names(&self, stem: &str) -> Vec<String> {
        match self {
            Self::Cluster(set) => set.primaries().iter().map(|primary| set.name_on(primary, stem)).collect(),
            Self::One(_) | Self::Sentinel(_) => vec![stem.to_owned()],
        }
    }
}
