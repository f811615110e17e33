//! Measures leasehold against its limit (the same scripts, PING and PUBLISH on a bare connection) and against a peer.
//!
//! `cargo run --release -p leasehold-bench -- core`, `-- topologies` and `-- records` start servers of their own. Absolute times depend on the
//! machine and its load; the compared variants take turns, and the ratio is the result.

mod bare;
mod contest;
mod contestant;
mod core;
mod cpu;
mod library;
mod pair;
mod peers;
mod program;
mod records;
mod report;
mod rounds;
mod scripts;
mod section;
mod spread;
mod topologies;
mod votes;
mod workloads;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "leasehold-bench",
    about = "Measurements of leasehold against peers and against the limit",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    options: workloads::Options,
}

#[derive(Subcommand)]
enum What {
    /// Locks on one Redis: a cycle, many at once, hand-over, renewal
    Core(rounds::Options<core::Core>),
    /// Locks on several nodes: a quorum, a cluster, sentinels
    Topologies(rounds::Options<topologies::Topology>),
    /// Records and deadlines on one Redis: a cycle, a wake-up, many marks, claims, scans
    Records(rounds::Options<records::OfRecords>),
    /// Takes part in a contest, over stdin and stdout
    #[command(hide = true)]
    Contestant { workload: String, keys: Vec<String> },
    /// Builds the programs of all peers, and runs each of them once through every workload
    Peers,
}

/// Anything that ends a run.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let Arguments { what, options } = Arguments::parse();
    let text = match what {
        None => workloads::run(&options),
        Some(What::Core(options)) => rounds::run(&options),
        Some(What::Topologies(options)) => rounds::run(&options),
        Some(What::Records(options)) => rounds::run(&options),
        Some(What::Contestant { workload, keys }) => program::run(&workload, &keys).map(|()| String::new()),
        Some(What::Peers) => peers::try_all(),
    };
    match text.and_then(|text| Ok(std::io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
