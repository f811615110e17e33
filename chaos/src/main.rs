//! Real servers, a real load in several processes, and random faults, one after the other. At the end the histories of
//! all processes are checked together: was every promise kept, and how long did recovery take?
//!
//! `cargo xtask chaos --topology sentinel` starts all servers itself; `--demo all` runs the demos on such servers.

mod demo;
mod fault_loop;
mod judge;
mod load;
mod probe;
mod progress;
mod report;
mod schedule;
mod target;
mod topology;
mod worker;
mod workers;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "leasehold-chaos",
    bin_name = "cargo xtask chaos",
    about = "Inject faults into real servers under load, and check that every promise is kept",
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    /// Run this demo, or `all`, while its servers fail
    #[arg(long, value_name = "NAME", conflicts_with = "topology")]
    demo: Option<String>,
    #[command(flatten)]
    options: Option<fault_loop::Options>,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// One process of the load
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

/// Anything that ends a run.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // The processes of a demo are copies of this one.
    if let Some(code) = leasehold_demos::run_worker() {
        return code;
    }
    let arguments = Arguments::parse();
    if let Some(name) = arguments.demo {
        return exit_code(demo::run(&name));
    }
    let outcome = match (arguments.role, arguments.options) {
        (Some(Role::Worker(args)), _) => worker::run(&args).map(|()| true),
        (None, Some(options)) => topology::run(&options),
        (None, None) => Err("the topology is missing".into()),
    };
    exit_code(outcome)
}

fn exit_code(outcome: Result<bool, Failure>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
