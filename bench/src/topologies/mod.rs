//! Locks on several nodes.
//!
//! No server writes to disk here: the disk would hide the overhead of the library, and dominate the comparison with one
//! server.

mod cycle;
mod handover;
mod quorum;
mod stopped;

use leasehold_testkit::{ClusterSet, QuorumSet, RedisServer, SentinelSet};
use tokio::sync::OnceCell;

use crate::{
    Failure,
    report::{Figures, Ratio, Target},
    rounds::Measurement,
    votes,
};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Topology {
    Quorum,
    Stopped,
    Cluster,
    Sentinel,
    Acks,
    Handover,
}

impl Measurement for Topology {
    type Bench = Bench;

    fn start(quick: bool) -> Result<Bench, Failure> {
        Ok(Bench {
            one: RedisServer::start()?,
            quorum: OnceCell::new(),
            cluster: OnceCell::new(),
            apart: OnceCell::new(),
            sentinel: OnceCell::new(),
            quick,
        })
    }

    async fn run(self, bench: &Bench, turn: usize) -> Result<Figures, Failure> {
        match self {
            Self::Quorum => quorum::measure(bench, turn).await,
            Self::Stopped => stopped::measure(bench, turn).await,
            Self::Cluster => cycle::of_cluster(bench, turn).await,
            Self::Sentinel => cycle::of_sentinel(bench, turn).await,
            Self::Acks => cycle::with_acks(bench, turn).await,
            Self::Handover => handover::measure(bench, turn).await,
        }
    }

    fn ratios(self) -> Vec<Ratio> {
        let ratio = |key, target, of| Ratio { key, target, of };
        match self {
            Self::Quorum => vec![
                ratio("quorum_acquire_p50_vs_raw_votes", Target::AtMost(1.2), |round| {
                    round.figure("quorum_acquire_us") / round.figure("raw_votes_us")
                }),
                ratio("quorum_one_round_trip_share", Target::AtLeast(0.99), |round| {
                    round.figure("quorum_one_round_trip")
                }),
                ratio("quorum_acquire_p50_vs_one_node", Target::None, |round| {
                    round.figure("quorum_acquire_us") / round.figure("one_node_acquire_us")
                }),
            ],
            Self::Stopped => vec![ratio("quorum_one_stopped_vs_healthy", Target::AtMost(1.2), |round| {
                round.figure("one_stopped_acquire_us") / round.figure("healthy_acquire_us")
            })],
            Self::Cluster => vec![
                ratio("cluster_acquire_p50_vs_standalone", Target::AtMost(1.3), |round| {
                    round.figure("cluster_cycle_us") / round.figure("beside_cluster_cycle_us")
                }),
                ratio("cluster_acquire_p50_vs_three_servers", Target::None, |round| {
                    round.figure("cluster_cycle_us") / round.figure("three_servers_cycle_us")
                }),
            ],
            Self::Sentinel => vec![ratio("sentinel_acquire_p50_vs_standalone", Target::None, |round| {
                round.figure("sentinel_cycle_us") / round.figure("beside_sentinel_cycle_us")
            })],
            Self::Acks => vec![ratio("acks_acquire_p50_vs_none", Target::None, |round| {
                round.figure("acks_cycle_us") / round.figure("no_acks_cycle_us")
            })],
            Self::Handover => vec![
                ratio("cluster_handover_p50_vs_standalone", Target::None, |round| {
                    round.figure("cluster_handover_us") / round.figure("standalone_handover_us")
                }),
                ratio("quorum_handover_p50_vs_standalone", Target::None, |round| {
                    round.figure("quorum_handover_us") / round.figure("standalone_handover_us")
                }),
            ],
        }
    }
}

/// What the measurements share. Sets are started when they are first needed.
pub(crate) struct Bench {
    one: RedisServer,
    quorum: OnceCell<QuorumSet>,
    cluster: OnceCell<ClusterSet>,
    apart: OnceCell<[RedisServer; 3]>,
    sentinel: OnceCell<SentinelSet>,
    quick: bool,
}

impl Bench {
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// Three nodes that vote.
    async fn quorum(&self) -> Result<&QuorumSet, Failure> {
        self.quorum.get_or_try_init(|| votes::admitted(3)).await
    }

    /// Three primaries.
    async fn cluster(&self) -> Result<&ClusterSet, Failure> {
        let start = async || Ok(ClusterSet::builder().replicas(0).arg("appendonly", "no").start()?);
        self.cluster.get_or_try_init(start).await
    }

    /// As many independent servers: names that go to them in turn wake as many processes.
    async fn apart(&self) -> Result<&[RedisServer; 3], Failure> {
        let start = async || Ok([RedisServer::start()?, RedisServer::start()?, RedisServer::start()?]);
        self.apart.get_or_try_init(start).await
    }

    /// A primary with a replica.
    async fn sentinel(&self) -> Result<&SentinelSet, Failure> {
        let start = async || Ok(SentinelSet::builder().replicas(1).arg("appendonly", "no").start()?);
        self.sentinel.get_or_try_init(start).await
    }
}
