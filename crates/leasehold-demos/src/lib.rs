//! Five systems that stand or fall with coordination, as programs small enough to read.
//!
//! Each demo is a cast of processes on one SQLite database: workers, which are killed at random and started again; whatever
//! makes work for them; and, after the last scene, a judge that reads nothing but the database and says whether the
//! invariant held. With `--unsafe` the same cast plays the same scenes with its coordination calls switched off.
//!
//! A binary that can play calls [`run_worker`] first thing: the processes of a demo are copies of it.

mod crawler;
mod database;
mod escrow;
mod flash_sale;
mod http;
mod invoices;
mod outage;
mod protection;
mod recovery;
mod supervisor;
mod verdict;
mod worker;
mod workers;

use std::{future::Future, pin::Pin, process::ExitCode};

pub use supervisor::{Options, run};
pub use worker::run_worker;

use rusqlite::Connection;
use supervisor::Supervisor;
use verdict::Verdict;
use worker::Worker;

/// What can go wrong in a demo.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

type DemoFuture<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One of the demos.
pub struct Demo {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub line: &'static str,
    /// Why it breaks without coordination, in a sentence for people who just saw that.
    without: &'static str,
    /// Whether the director puts the store out of reach.
    has_outage: bool,
    /// Whether it uses idempotency keys or markers, which not every store has.
    has_records: bool,
    /// What `--variant` may say.
    variants: &'static [&'static str],
    /// Makes the tables.
    set_up: fn(&mut Connection, &Options) -> Result<()>,
    /// What the first process does: starts the others, makes trouble, returns when the work is done.
    supervise: for<'a> fn(&'a mut Supervisor) -> DemoFuture<'a>,
    /// What each other process does, until its work is done or it is killed.
    work: fn(Worker) -> DemoFuture<'static>,
    /// What became of it all.
    judge: fn(&Connection, &Options) -> Result<Verdict>,
}

/// All demos.
pub static DEMOS: [&Demo; 5] =
    [&flash_sale::DEMO, &escrow::DEMO, &recovery::DEMO, &crawler::DEMO, &invoices::DEMO];

/// The demo of that name.
pub fn find(name: &str) -> Option<&'static Demo> {
    DEMOS.iter().copied().find(|demo| demo.name == name)
}

/// The main function of a binary that plays one demo.
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
