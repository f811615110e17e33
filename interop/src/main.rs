//! Real lock libraries, each in a process of its own and in its own language, share locks with leasehold on one Redis.
//!
//! `cargo xtask interop` installs them beside the build and runs everything; `docs/interop.md` says what comes out.
//!
//! | where | what |
//! |---|---|
//! | [`library`] | the libraries, and what each calls a lock |
//! | [`pair`] | one of them and leasehold on one server |
//! | [`cases`], [`traps`] | what is tried with every library, and what only with one |
//! | [`torture`], [`contender`] | all of them at once, one counter, and processes that are killed |
//! | [`report`] | lines while it runs, and the closing table |

mod cases;
mod contender;
mod library;
mod pair;
mod report;
mod torture;
mod traps;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};
use leasehold::Format;
use leasehold_testkit::RedisServer;

use self::{library::Library, pair::Pair, report::Report};

#[derive(Parser)]
#[command(
    name = "leasehold-interop",
    bin_name = "cargo xtask interop",
    about = "Share locks with real libraries of other languages on one Redis, in both directions",
    args_conflicts_with_subcommands = true,
    after_help = "\
The libraries are installed under target/peers by their package managers. A library whose toolchain \
is missing is skipped, and named. The exit code is 0 if nothing failed and at least one library was tried."
)]
struct Arguments {
    /// Only this library; can be given several times
    #[arg(long, value_name = "LIBRARY", value_parser = library::find)]
    only: Vec<&'static Library>,
    /// How often the counter of the last part is raised, by all of them together; 0 leaves it out
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
    let server = RedisServer::start()?;
    let folder = leasehold_peers::folder()?;
    let mut report = Report::new();
    let mut ready = Vec::new();
    for library in library::all() {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only.name() == library.name()) {
            continue;
        }
        match leasehold_peers::prepare(library.peer, &folder) {
            Ok(program) => {
                report.library(library, &program.version());
                try_all_cases(&server, library, &program, &mut report);
                ready.push((library, program));
            }
            Err(why) => report.skipped(library, &why),
        }
    }
    let (of_strings, of_redisson): (Vec<_>, Vec<_>) =
        ready.into_iter().partition(|(library, _)| library.format == Format::Plain);
    // Few processes take turns less often.
    for (format, ready, times) in [(Format::Plain, of_strings, 1), (Format::Redisson, of_redisson, 4)] {
        let increments = arguments.increments / times;
        if increments > 0 && !ready.is_empty() {
            let outcome = torture::run(&server, &ready, format, increments, &mut report);
            report.torture(outcome);
        }
    }
    Ok(report.conclude(arguments.no_skips))
}

fn try_all_cases(
    server: &RedisServer,
    library: &'static Library,
    program: &leasehold_peers::Program,
    report: &mut Report,
) {
    let mut pair = None;
    for case in library.cases() {
        let fresh = || Pair::new(server, library, program, case.title);
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
        report.case(library, case, outcome);
    }
}
