//! Readers and permits beside exclusive locks, on one Redis.

mod admission;
mod cycle;
mod many;
mod sent;

use leasehold_testkit::RedisServer;

use crate::{
    Failure, goals,
    report::{Figures, Ratio},
    rounds::Measurement,
};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Family {
    /// Acquire and release in each mode, by one task and by 64
    Cycle,
    /// One release that admits 500 readers, and a reader beside few and beside many
    Readers,
    /// 100 permits that few and many wait for
    Permits,
    /// What the client sends for a re-entry, and for eight locks at once
    Sent,
}

impl Measurement for Family {
    type Bench = Bench;

    fn start(quick: bool) -> Result<Bench, Failure> {
        Ok(Bench { server: RedisServer::start()?, quick })
    }

    async fn run(self, bench: &Bench, turn: usize) -> Result<Figures, Failure> {
        match self {
            Self::Cycle => cycle::measure(bench, turn).await,
            Self::Readers => admission::readers(bench).await,
            Self::Permits => many::permits(bench).await,
            Self::Sent => sent::measure(bench).await,
        }
    }

    fn ratios(self) -> Vec<Ratio> {
        let ratio = |key, of| Ratio { key, target: goals::target(key), of };
        match self {
            Self::Cycle => vec![
                ratio("shared_cycle_p50_vs_exclusive", |round| {
                    round.figure("shared_cycle_us") / round.figure("exclusive_cycle_us")
                }),
                ratio("permit_cycle_p50_vs_exclusive", |round| {
                    round.figure("permit_cycle_us") / round.figure("exclusive_cycle_us")
                }),
                ratio("shared_cycle_64_vs_exclusive", |round| {
                    round.figure("exclusive_cycles_per_s_64") / round.figure("shared_cycles_per_s_64")
                }),
            ],
            Self::Readers => vec![
                ratio("admit_500_readers_vs_one", |round| {
                    round.figure("admit_500_server_us") / round.figure("admit_one_server_us")
                }),
                ratio("admit_500_readers_vs_exclusive_handover", |round| {
                    round.figure("admit_500_server_us") / round.figure("exclusive_handover_server_us")
                }),
                ratio("admit_500_readers_calls", |round| round.figure("admit_500_calls")),
                ratio("reader_beside_500_vs_beside_10", |round| {
                    round.figure("reader_beside_500_server_us") / round.figure("reader_beside_10_server_us")
                }),
            ],
            Self::Permits => vec![
                ratio("permit_commands_per_handover", |round| {
                    round.figure("permit_commands_1000_waiters") / round.figure("permit_commands_10_waiters")
                }),
                ratio("bytes_per_permit_holder", |round| round.figure("bytes_per_permit_holder")),
            ],
            Self::Sent => vec![
                ratio("reentry_commands", |round| round.figure("reentry_commands")),
                ratio("lock_all_8_sent", |round| round.figure("lock_all_8_sent")),
                ratio("lock_all_8_release_sent", |round| round.figure("lock_all_8_release_sent")),
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
