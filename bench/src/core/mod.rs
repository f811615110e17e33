//! Locks on one Redis.

mod commands;
mod cycle;
mod handover;
mod lone;
mod loss;
mod memory;
mod renewal;
mod throughput;

use leasehold_testkit::RedisServer;

use crate::{
    Failure,
    report::{Figures, Ratio, Target},
    rounds::Measurement,
};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Core {
    Cycle,
    Lone,
    Memory,
    Throughput,
    Handover,
    Commands,
    Renewal,
    Loss,
}

impl Measurement for Core {
    type Bench = Bench;

    fn start(quick: bool) -> Result<Bench, Failure> {
        Ok(Bench { server: RedisServer::start()?, quick })
    }

    async fn run(self, bench: &Bench, turn: usize) -> Result<Figures, Failure> {
        match self {
            Self::Cycle => cycle::measure(bench, turn).await,
            Self::Lone => lone::measure(bench, turn).await,
            Self::Memory => memory::measure(bench, turn).await,
            Self::Throughput => throughput::measure(bench, turn).await,
            Self::Handover => handover::measure(bench, turn).await,
            Self::Commands => commands::measure(bench).await,
            Self::Renewal => renewal::measure(bench).await,
            Self::Loss => loss::measure(bench, turn).await,
        }
    }

    fn ratios(self) -> Vec<Ratio> {
        let ratio = |key, target, of| Ratio { key, target, of };
        match self {
            Self::Cycle => vec![
                ratio("cycle_p50_vs_raw_scripts", Target::AtMost(1.10), |round| {
                    round.figure("cycle_us") / round.figure("cycle_raw_scripts_us")
                }),
                ratio("cycle_p50_vs_two_pings", Target::None, |round| {
                    round.figure("cycle_us") / round.figure("two_pings_us")
                }),
            ],
            Self::Lone => vec![
                ratio("lone_cycle_server_vs_redisson", Target::AtMost(0.7), |round| {
                    round.figure("lone_cycle_server_us") / round.figure("redisson_cycle_server_us")
                }),
                ratio("lone_cycle_scripts_vs_redisson", Target::None, |round| {
                    round.figure("lone_cycle_scripts_us") / round.figure("redisson_cycle_scripts_us")
                }),
            ],
            Self::Memory => vec![
                ratio("memory_per_lock", Target::AtMost(220.0), |round| round.figure("memory_per_lock")),
                ratio("memory_after_release", Target::AtMost(0.0), |round| {
                    round.figure("memory_after_release")
                }),
            ],
            Self::Throughput => vec![ratio("throughput_64_vs_rslock", Target::AtLeast(0.75), |round| {
                round.figure("cycles_per_s_64") / round.figure("rslock_cycles_per_s_64")
            })],
            Self::Handover => vec![ratio("handover_p50_vs_publish", Target::AtMost(2.0), |round| {
                round.figure("handover_us") / round.figure("publish_us")
            })],
            Self::Commands => vec![ratio("commands_per_handover", Target::AtMost(1.0), |round| {
                round.figure("commands_per_handover_1000_waiters")
                    / round.figure("commands_per_handover_10_waiters")
            })],
            Self::Renewal => vec![
                ratio("renewal_core_share", Target::AtMost(0.005), |round| {
                    round.figure("renewal_server_core_share")
                }),
                ratio("renewal_client_core_share", Target::AtMost(0.01), |round| {
                    round.figure("renewal_client_core_share")
                }),
            ],
            Self::Loss => vec![
                ratio("loss_p50_us", Target::AtMost(1_000.0), |round| round.figure("loss_p50_us")),
                ratio("renewal_reported_vs_plain", Target::None, |round| {
                    round.figure("renewal_reported_server_us") / round.figure("renewal_plain_server_us")
                }),
            ],
        }
    }
}

/// What the measurements share.
pub(crate) struct Bench {
    server: RedisServer,
    quick: bool,
}

impl Bench {
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}
