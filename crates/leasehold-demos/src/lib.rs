//! Five systems that depend on coordination, as programs small enough to read.
//!
//! Each demo is a supervisor with several worker processes on one SQLite database, or, for `escrow`, on the PostgreSQL that
//! has the locks. The supervisor kills workers at random and restarts them. At the end a judge, another process, reads
//! nothing but the database and decides whether the invariant held. `--unsafe` switches off the coordination calls and
//! nothing else.
//!
//! A binary that runs demos calls [`run_worker`] before anything else: the processes of a demo are copies of it.

mod crawler;
mod database;
mod escrow;
mod flash_sale;
mod http;
mod invoices;
mod kill;
mod leftovers;
mod options;
mod outage;
mod play;
mod policy;
mod postgres;
mod protection;
mod recovery;
mod show;
mod stage;
mod summary;
mod supervisor;
mod verdict;
mod worker;
mod workers;
mod writer;

use std::{future::Future, pin::Pin, process::ExitCode};

pub use options::Options;
pub use play::{run, run_all};
pub use stage::Topology;
pub use worker::run_worker;

use policy::PolicyFile;
use supervisor::Supervisor;
use verdict::Verdict;
use worker::Worker;

/// The result of a step of a demo.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

type DemoFuture<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One of the demos.
pub struct Demo {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub line: &'static str,
    /// What the invariant protects, in at most 23 characters.
    protects: &'static str,
    /// Why the invariant breaks without coordination, in one sentence for the user.
    without: &'static str,
    /// Whether the supervisor makes the store unreachable.
    has_outage: bool,
    /// Whether it uses idempotency keys or markers, which not every store has.
    has_records: bool,
    /// Its key schema and times.
    policies: PolicyFile,
    /// The servers it is made to be played on. On others a fail-over can lose what only a fence in the database makes up for.
    topologies: &'static [Topology],
    /// The values of `--variant`; the first is the default.
    variants: &'static [&'static str],
    /// Creates the tables.
    set_up: fn(&Worker) -> Result<()>,
    /// Runs in the supervisor: starts the workers, injects faults, returns when the work is done.
    supervise: for<'a> fn(&'a mut Supervisor) -> DemoFuture<'a>,
    /// Runs in each worker, until its work is done or it is killed.
    work: fn(Worker) -> DemoFuture<'static>,
    /// Runs in the judge: checks the invariant.
    judge: fn(&Worker) -> Result<Verdict>,
    /// Removes what [`set_up`](Self::set_up) has put elsewhere than into the folder of the run.
    tear_down: fn(&Worker) -> Result<()>,
}

/// All demos.
pub static DEMOS: [&Demo; 5] =
    [&flash_sale::DEMO, &escrow::DEMO, &recovery::DEMO, &crawler::DEMO, &invoices::DEMO];

/// The demo of that name.
pub fn find(name: &str) -> Option<&'static Demo> {
    DEMOS.iter().copied().find(|demo| demo.name == name)
}

/// The main function of a binary that runs one demo.
pub fn main_of(name: &str) -> ExitCode {
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        /// Where the locks are; by default in a file that only this demo uses
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        #[command(flatten)]
        options: Options,
    }
    if let Some(code) = run_worker() {
        return code;
    }
    let demo = find(name).expect("each binary has its demo");
    let Alone { store, options } = Alone::parse();
    ExitCode::from(run(demo, &Options { store, ..options }))
}
