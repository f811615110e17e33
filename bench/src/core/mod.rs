//! Locks on one Redis.

mod commands;
mod cycle;
mod handover;
mod renewal;
mod throughput;

use std::{io::Write, sync::Arc};

use leasehold_testkit::RedisServer;
use redis::{IntoConnectionInfo, aio::MultiplexedConnection};

use crate::{
    Failure,
    report::{Ratio, Report, Round, Target},
};

#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A few seconds of everything: shows that it runs, the numbers mean little
    #[arg(long)]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,
}

/// What takes turns in a round.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Measurement {
    Cycle,
    Throughput,
    Handover,
    Commands,
    Renewal,
}

const ALL: [Measurement; 5] = [
    Measurement::Cycle,
    Measurement::Throughput,
    Measurement::Handover,
    Measurement::Commands,
    Measurement::Renewal,
];

impl Measurement {
    async fn run(self, bench: &Bench, turn: usize) -> Result<crate::report::Figures, Failure> {
        match self {
            Self::Cycle => cycle::measure(bench, turn).await,
            Self::Throughput => throughput::measure(bench, turn).await,
            Self::Handover => handover::measure(bench, turn).await,
            Self::Commands => commands::measure(bench).await,
            Self::Renewal => renewal::measure(bench).await,
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
            Self::Renewal => vec![ratio("renewal_core_share", Target::AtMost(0.01), |round| {
                round.figure("renewal_client_core_share").max(round.figure("renewal_server_core_share"))
            })],
        }
    }
}

/// What the measurements share.
struct Bench {
    server: Arc<RedisServer>,
    quick: bool,
}

impl Bench {
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// A connection without the library, set up as the library's.
    async fn bare_connection(&self) -> Result<MultiplexedConnection, Failure> {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        self.bare_connection_with(&config).await
    }

    async fn bare_connection_with(
        &self,
        config: &redis::AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Failure> {
        Ok(self.bare_client()?.get_multiplexed_async_connection_with_config(config).await?)
    }

    fn bare_client(&self) -> Result<redis::Client, Failure> {
        let info = format!("{}/?protocol=resp3", self.server.url()).into_connection_info()?;
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        Ok(redis::Client::open(info.set_tcp_settings(tcp))?)
    }
}

/// Runs all rounds; answers the text to print.
pub(crate) fn run(options: &Options) -> Result<String, Failure> {
    // Started on the main thread: the server dies with the thread that started it.
    let server = Arc::new(RedisServer::start()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bench = Bench { server, quick: options.quick };
    let chosen: Vec<_> =
        ALL.into_iter().filter(|one| options.only.is_empty() || options.only.contains(one)).collect();
    let number = options.rounds as usize;
    let order = chosen.clone();
    // On a worker, as an application's tasks are; the main thread would add a hop to everything.
    let rounds = runtime.block_on(runtime.spawn(async move {
        let mut rounds = Vec::new();
        for turn in 0..number {
            let _ = writeln!(std::io::stderr(), "round {} of {number}", turn + 1);
            let mut round = Round::default();
            for place in 0..order.len() {
                let measurement = order[(place + turn) % order.len()];
                round.0.extend(measurement.run(&bench, turn).await?);
            }
            rounds.push(round);
        }
        Ok::<_, Failure>(rounds)
    }))??;
    let ratios: Vec<_> = chosen.into_iter().flat_map(Measurement::ratios).collect();
    let report = Report { rounds: &rounds, ratios: &ratios };
    Ok(if options.json { report.json() } else { report.table() })
}
