//! `leasehold serve` in a process of its own, on one Redis: its rate, what it asks the store, and what it takes up.

mod client;
mod cycle;
mod dashboard;
mod events;
mod process;
mod sessions;

use leasehold_testkit::RedisServer;

use self::process::Service;
pub(crate) use self::process::serve;
use crate::{
    Failure, goals,
    report::{Figures, Ratio},
    rounds::Measurement,
};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Serving {
    /// Acquire and release over 64 kept connections, and by 64 tasks of the library
    Cycle,
    /// One renewal of a session with 1,000 locks
    Sessions,
    /// 10,000 clients that wait for events
    Events,
    /// What the dashboard asks the store when 5,000 locks are held, and what its page weighs
    Dashboard,
}

impl Measurement for Serving {
    type Bench = Bench;

    fn start(quick: bool) -> Result<Bench, Failure> {
        Ok(Bench { server: RedisServer::start()?, quick })
    }

    async fn run(self, bench: &Bench, turn: usize) -> Result<Figures, Failure> {
        match self {
            Self::Cycle => cycle::measure(bench, turn).await,
            Self::Sessions => sessions::measure(bench).await,
            Self::Events => events::measure(bench).await,
            Self::Dashboard => dashboard::measure(bench).await,
        }
    }

    fn ratios(self) -> Vec<Ratio> {
        let ratio = |key, of| Ratio { key, target: goals::target(key), of };
        match self {
            Self::Cycle => vec![ratio("service_cycles_64_vs_library", |round| {
                round.figure("service_cycles_per_s_64") / round.figure("library_cycles_per_s_64")
            })],
            Self::Sessions => {
                vec![ratio("session_renewal_calls", |round| round.figure("session_renewal_calls"))]
            }
            Self::Events => vec![ratio("service_mb_10000_event_clients", |round| {
                round.figure("service_mb_10000_event_clients")
            })],
            Self::Dashboard => vec![
                ratio("dashboard_snapshot_5000_vs_inspect", |round| {
                    round.figure("snapshot_of_5000_server_us") / round.figure("inspect_server_us")
                }),
                ratio("dashboard_look_call_vs_inspect", |round| {
                    round.figure("look_call_server_us") / round.figure("inspect_server_us")
                }),
                ratio("dashboard_kb", |round| round.figure("dashboard_kb")),
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

    async fn service(&self) -> Result<Service, Failure> {
        Service::start(&self.server.url()).await
    }
}
