//! The project's own commands, run as `cargo xtask <command>`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talking to the terminal is the whole job")]

mod api;
mod binaries;
mod book;
mod cargo;
mod deny;
mod durations;
mod failures;
mod fuzz;
mod instructions;
mod manifests;
mod matrix;
mod minimal_versions;
mod packages;
mod progress;
mod quick;
mod skips;
mod tally;
mod test;
mod tidy;
mod web;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use tally::Tally;

/// `EX_USAGE` of sysexits: the command line was not understood.
const EXIT_USAGE: u8 = 64;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = AFTER_HELP)]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Before a change lands:  cargo xtask test
While working on it:    cargo xtask test --only clippy
Details of a command:   cargo xtask help test";

#[derive(Subcommand)]
enum Command {
    /// Run everything that has to be green before a change lands
    Test(test::Options),
    /// Check the house rules that neither rustc nor clippy knows
    Tidy,
    /// Measure all workloads in release mode; `bench --help` lists them
    #[command(disable_help_flag = true)]
    Bench {
        /// Count the instructions of the hot paths instead, and fail if they are more than bench/instructions.toml has
        #[arg(long)]
        check: bool,
        /// Write what was counted into that file
        #[arg(long, requires = "check")]
        update: bool,
        /// Arguments for the benchmark program, as `--quick --only cycle,throughput`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the fault tests under a long load, at least 10,000 grants of each kind in each, and 2,000 simulated quorums, and the
    /// service with 10,000 idle connections
    Faults {
        /// Grants of each kind of lock that each test must see
        #[arg(long, default_value_t = 10_000)]
        grants: u64,
    },
    /// Compare the public API of the library, as its documentation shows it, with crates/leasehold/api.txt
    Api {
        /// Write the file instead
        #[arg(long)]
        update: bool,
    },
    /// Build the documentation as a book in target/book; compiles mdbook first if it is not installed
    Book,
    /// Run the Redis suites on Redis 7.0 and 8 and Valkey 8 and 9, which are unpacked from other Debian releases
    Matrix(matrix::Options),
    /// Compile the published crates with the lowest versions of their dependencies that Cargo.toml accepts
    MinimalVersions,
    /// Inject faults into real servers under load, and check that every promise is kept; `chaos --help` lists the faults
    #[command(disable_help_flag = true)]
    Chaos {
        /// Arguments for the program, as `--topology sentinel --seconds 60`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the dashboard of the service from web/ into crates/leasehold-server/dist
    Web {
        /// Compare with what is there instead
        #[arg(long)]
        check: bool,
    },
    /// Test the dashboard in a real browser on the real service
    Browser {
        /// Write the pictures of the documentation too
        #[arg(long)]
        screenshots: bool,
    },
    /// Send the service requests of all kinds, made from its OpenAPI document; installs schemathesis under target/fuzz
    Fuzz(fuzz::Options),
    /// Share locks with real libraries of other languages on real servers; installs them under target/peers
    #[command(disable_help_flag = true)]
    Interop {
        /// Arguments for the program, as `--only redsync --increments 500`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let root = workspace_root();
    let succeeded = match Xtask::try_parse() {
        Ok(Xtask { command: Command::Test(options) }) => test::run(&root, &options),
        Ok(Xtask { command: Command::Tidy }) => tidy::run(&root),
        Ok(Xtask { command: Command::Bench { check: true, update, .. } }) => {
            instructions::check(&root, update).conclude()
        }
        Ok(Xtask { command: Command::Api { update } }) => api::check(&root, update, &mut Tally::default()),
        Ok(Xtask { command: Command::Web { check } }) => web::build(&root, check, &mut Tally::default()),
        Ok(Xtask { command: Command::Browser { screenshots } }) => {
            let mut tally = Tally::default();
            let succeeded = packages::ensure(false) && web::browser(&root, screenshots, &mut tally);
            tally.conclude() && succeeded
        }
        Ok(Xtask { command: Command::Book }) => book::build(&root),
        Ok(Xtask { command: Command::Bench { args, .. } }) => bench(&root, &args),
        Ok(Xtask { command: Command::Faults { grants } }) => faults(&root, grants),
        Ok(Xtask { command: Command::Matrix(options) }) => matrix::run(&root, &options),
        Ok(Xtask { command: Command::MinimalVersions }) => minimal_versions::run(&root),
        Ok(Xtask { command: Command::Chaos { args } }) => chaos(&root, &args),
        Ok(Xtask { command: Command::Fuzz(options) }) => fuzz::run(&root, &options),
        Ok(Xtask { command: Command::Interop { args } }) => interop(&root, &args),
        Err(misunderstood) => return explain(&misunderstood),
    };
    if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn bench(root: &Path, args: &[String]) -> bool {
    let mut run = cargo::command(root, &["run", "--release", "-p", "leasehold-bench", "--"]);
    packages::ensure(false) && cargo::succeeds(run.args(args))
}

/// Tests that break servers while a load runs, and end with the verdict on its history.
const FAULT_TESTS: [&str; 8] = [
    "acks_sets",
    "cluster_load",
    "quorum",
    "quorum_simulation",
    "redis_load",
    "sentinel_failover",
    "sentinel_grace",
    "torture",
];
/// Runs of the simulated quorum, each from a seed of its own.
const SEEDS: &str = "2000";
/// Connections that do nothing while the service goes on, as far as the limit of open files allows.
const IDLE_CONNECTIONS: &str = "10000";

fn faults(root: &Path, grants: u64) -> bool {
    let mut run = cargo::command(root, &["test", "--release", "-p", "leasehold", "--all-features"]);
    run.env("LEASEHOLD_LOAD_GRANTS", grants.to_string()).env("LEASEHOLD_SEEDS", SEEDS);
    run.args(FAULT_TESTS.iter().flat_map(|test| ["--test", test]));
    let mut service =
        cargo::command(root, &["test", "--release", "-p", "leasehold-server", "--test", "service"]);
    service
        .args(["--", "--nocapture", "many_connections_that_do_nothing"])
        .env("LEASEHOLD_IDLE_CONNECTIONS", IDLE_CONNECTIONS);
    packages::ensure(false) && cargo::succeeds(&mut run) && cargo::succeeds(&mut service)
}

fn chaos(root: &Path, args: &[String]) -> bool {
    let mut run = cargo::command(root, &["run", "--release", "-p", "leasehold-chaos", "--"]);
    packages::ensure(false) && cargo::succeeds(run.args(args))
}

/// `leasehold run` takes part, so its binary has to be there.
fn interop(root: &Path, args: &[String]) -> bool {
    let packages = ["-p", "leasehold-cli", "-p", "leasehold-interop"];
    let mut build = cargo::command(root, &["build", "--quiet"]);
    let mut run = std::process::Command::new(cargo::target_folder(root).join("debug/leasehold-interop"));
    packages::ensure(false) && cargo::succeeds(build.args(packages)) && cargo::succeeds(run.args(args))
}

fn explain(misunderstood: &clap::Error) -> ExitCode {
    match misunderstood.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            print!("{}", misunderstood.render());
            ExitCode::SUCCESS
        }
        // This error is the help text itself.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{}", misunderstood.render());
            ExitCode::from(EXIT_USAGE)
        }
        _ => {
            eprint!("{}\n{}", misunderstood.render(), Xtask::command().render_help());
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Asks cargo at run time first: several checkouts may share one target folder, and with it this binary.
fn workspace_root() -> PathBuf {
    let manifest_dir =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest_dir).parent().expect("xtask is a folder of the workspace").to_owned()
}
