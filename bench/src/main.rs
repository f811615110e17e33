//! Measures leasehold against other libraries and against the limit: the same scripts, PING and PUBLISH on a bare connection.
//!
//! `cargo xtask bench` runs the workloads, each in a file of [`workloads`]. Absolute times depend on the machine and its
//! load; what is compared takes turns, and the ratio is the result.
//!
//! | where | what |
//! |---|---|
//! | [`workloads`], [`goals`] | what is measured, and what should come out |
//! | [`contest`], [`contestant`] | programs that take turns on the same servers, pinned and watched |
//! | [`program`], [`library`] | this program as such a contestant: leasehold, rslock and the limits |
//! | [`peers`] | other libraries in their own languages |
//! | [`core`], [`family`], [`topologies`], [`records`], [`engines`], [`service`], [`rounds`] | measurements inside of this process |
//! | [`run`], [`section`], [`docs`] | the report, on the terminal, as JSON and as `docs/benchmarks.md` |

mod allocated;
mod bare;
mod contest;
mod contestant;
mod core;
mod cpu;
mod docs;
mod engines;
mod family;
mod goals;
mod library;
mod machine;
mod monitor;
mod pair;
mod peers;
mod program;
mod records;
mod report;
mod rounds;
mod run;
mod scripts;
mod section;
mod server;
mod server_order;
mod service;
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
    options: run::Options,
}

#[derive(Subcommand)]
enum What {
    /// Locks on one Redis, inside of this process: a cycle, many at once, hand-over, renewal
    Core(rounds::Options<core::Core>),
    /// Readers and permits beside exclusive locks, inside of this process
    Family(rounds::Options<family::Family>),
    /// Locks and deadlines in PostgreSQL and etcd, inside of this process
    Engines(rounds::Options<engines::Engines>),
    /// The service over HTTP, in a process of its own: rate, sessions, events, the dashboard
    Service(rounds::Options<service::Serving>),
    /// Serves a store, as the measurements of the service need it
    #[command(hide = true)]
    Serve { store: String },
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
        None => run::run(&options),
        Some(What::Core(options)) => rounds::run(&options),
        Some(What::Family(options)) => rounds::run(&options),
        Some(What::Engines(options)) => rounds::run(&options),
        Some(What::Service(options)) => rounds::run(&options),
        Some(What::Serve { store }) => service::serve(&store).map(|()| String::new()),
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
