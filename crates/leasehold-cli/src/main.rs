//! The `leasehold` command: runs jobs under a lock, shows who holds what, and releases a stuck lock safely.
//!
//! Data goes to stdout, messages to stderr. Exit codes and JSON are part of the interface.

mod command;
mod duration;
mod exit;
mod hint;
mod output;
mod sharing;
mod signals;
mod store;
mod view;
mod waiting;

use std::process::ExitCode;

use clap::Parser;

use command::Cli;
use exit::{Exit, Failure};

fn main() -> ExitCode {
    // The processes of a demo are copies of this one.
    #[cfg(feature = "demos")]
    if let Some(code) = leasehold_demos::run_worker() {
        return code;
    }
    // So is the guardian of a job.
    if let Some(code) = command::guardian::run() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::after_parsing(&error),
    };
    let json = cli.global.json;
    match run(cli) {
        Ok(Exit(code)) => ExitCode::from(code),
        Err(failure) => failure.report(json),
    }
}

/// The main thread runs everything but a service: the kernel kills a child with the thread that forked it.
fn run(cli: Cli) -> Result<Exit, Failure> {
    let runtime = runtime(&cli).enable_all().build()?;
    #[cfg(feature = "otel")]
    let telemetry = {
        let _sends_spans = runtime.enter();
        if cli.is_service() { leasehold_server::Telemetry::from_env()? } else { None }
    };
    #[cfg(feature = "otel")]
    let spans = telemetry.as_ref().map(leasehold_server::Telemetry::layer);
    #[cfg(not(feature = "otel"))]
    let spans = output::NO_SPANS;
    output::start_log(cli.global.verbose, spans);
    let result = runtime.block_on(cli.execute());
    #[cfg(feature = "otel")]
    if let Some(telemetry) = telemetry {
        telemetry.end();
    }
    // A thread that still reads a terminal must not delay the end.
    runtime.shutdown_background();
    result
}

#[cfg(feature = "serve")]
fn runtime(cli: &Cli) -> tokio::runtime::Builder {
    match cli.is_service() {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    }
}

#[cfg(not(feature = "serve"))]
fn runtime(_: &Cli) -> tokio::runtime::Builder {
    tokio::runtime::Builder::new_current_thread()
}
