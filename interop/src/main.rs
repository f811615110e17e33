//! Real lock libraries, each in a process of its own and in its own language, share locks with leasehold on real servers.
//!
//! `cargo xtask interop` installs them beside the build and runs everything; `docs/interop.md` says what comes out.
//!
//! | where | what |
//! |---|---|
//! | [`library`] | the libraries, and what each calls a lock |
//! | [`servers`] | one Redis, a cluster, sentinels |
//! | [`pair`] | one library and leasehold on the same servers |
//! | [`cases`], [`redisson`], [`traps`] | what is tried with every library, in Redisson's format, and with one library alone |
//! | [`torture`], [`contender`] | all of them at once, one counter, and processes that are killed |
//! | [`report`] | lines while it runs, and the closing table |

mod cases;
mod contender;
mod library;
mod pair;
mod redisson;
mod report;
mod servers;
mod torture;
mod traps;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};
use leasehold::Format;
use leasehold_peers::Program;

use self::{
    library::Library,
    pair::Pair,
    report::Report,
    servers::{Servers, Topology},
};

#[derive(Parser)]
#[command(
    name = "leasehold-interop",
    bin_name = "cargo xtask interop",
    about = "Share locks with real libraries of other languages on real servers, in both directions",
    args_conflicts_with_subcommands = true,
    after_help = "\
The libraries are installed under target/peers by their package managers. A library whose toolchain \
is missing is skipped, and named. The exit code is 0 if nothing failed and at least one library was tried."
)]
struct Arguments {
    /// Only this library; can be given several times
    #[arg(long, value_name = "LIBRARY", value_parser = library::find)]
    only: Vec<&'static Library>,
    /// Only these servers; can be given several times. All libraries use one Redis, Redisson uses the others too
    #[arg(long, value_name = "SERVERS", value_enum)]
    topology: Vec<Topology>,
    /// How often each counter of the last part is raised, by all processes together; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    increments: u32,
    /// Fail if a library is skipped
    #[arg(long)]
    no_skips: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// Leasehold as one process of the last part
    #[command(hide = true)]
    Contender(contender::Options),
}

/// Anything that ends a case.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.role {
        Some(Role::Contender(options)) => contender::serve(options).map(|()| true),
        None => run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True if everything that ran passed.
fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let folder = leasehold_peers::folder()?;
    let mut report = Report::new();
    let mut ready = Vec::new();
    for library in library::all() {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only.name() == library.name()) {
            continue;
        }
        match leasehold_peers::prepare(library.peer, &folder) {
            Ok(program) => ready.push((library, program)),
            Err(why) => report.skipped(library, &why),
        }
    }
    for topology in Topology::value_variants() {
        if arguments.topology.is_empty() || arguments.topology.contains(topology) {
            try_all_on(*topology, &ready, arguments.increments, &mut report)?;
        }
    }
    Ok(report.conclude(arguments.no_skips))
}

/// All libraries one after the other, and then all that share a format at once.
fn try_all_on(
    topology: Topology,
    ready: &[(&'static Library, Program)],
    increments: u32,
    report: &mut Report,
) -> Result<(), Failure> {
    let here: Vec<_> = ready.iter().filter(|(library, _)| library.topologies.contains(&topology)).collect();
    if here.is_empty() {
        return Ok(());
    }
    let servers = Servers::start(topology)?;
    for (library, program) in &here {
        report.library(library, &program.version(), topology);
        try_all_cases(&servers, library, program, report);
    }
    let increments = if topology == Topology::One { increments } else { increments / ELSEWHERE };
    for format in [Format::Plain, Format::Redisson] {
        let of_format: Vec<_> =
            here.iter().copied().filter(|(library, _)| library.format == format).collect();
        if increments > 0 && !of_format.is_empty() {
            let outcome = torture::run(&servers, &of_format, format, increments, report);
            report.torture(&format!("all at once, {format:?}, {}", topology.words()), outcome);
        }
    }
    Ok(())
}

/// By this the counters of other servers than one Redis are smaller: what they show is that keys and messages are found.
const ELSEWHERE: u32 = 10;

fn try_all_cases(servers: &Servers, library: &'static Library, program: &Program, report: &mut Report) {
    let mut pair = None;
    for case in library.cases() {
        let fresh = || Pair::new(servers, library, program, case.title);
        let outcome = match pair.take().map_or_else(fresh, Ok) {
            Ok(mut both) => {
                both.begin(case.title);
                let outcome = (case.run)(&mut both);
                // After a failure nobody knows what the process does.
                if outcome.is_ok() {
                    pair = Some(both);
                }
                outcome
            }
            Err(error) => Err(error),
        };
        report.case(case, outcome);
    }
}
