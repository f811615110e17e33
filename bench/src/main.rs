//! Measures leasehold against its limit (the same scripts, PING and PUBLISH on a bare connection) and against a peer.
//!
//! `cargo run --release -p leasehold-bench -- core` starts a `redis-server` of its own. Absolute times depend on the
//! machine and on what else it does; what is compared takes turns, and the ratio is the result.

mod core;
mod cpu;
mod report;
mod scripts;
mod spread;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "leasehold-bench", about = "Measurements of leasehold against peers and against the limit")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Locks on one Redis: a cycle, many at once, hand-over, renewal
    Core(core::Options),
}

/// Anything that ends a run.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let What::Core(options) = Arguments::parse().what;
    match core::run(&options).and_then(|text| Ok(std::io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
