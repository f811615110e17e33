//! The subcommands, one file each.

mod completions;
mod deadlines;
#[cfg(feature = "demos")]
mod demo;
mod doctor;
mod elect;
mod force_release;
mod idem;
mod inspect;
mod latch;
mod leader;
mod lock;
mod ls;
mod man;
mod marker;
mod migrate;
mod quorum;
mod run;
mod semaphore;
#[cfg(feature = "serve")]
mod serve;
mod stats;
mod top;
mod watch;

use clap::{ArgAction, Args, Parser, Subcommand};

pub(crate) use run::{MODE, NAME, NAMES, PERMITS, guardian, kernel};

use crate::{
    exit::{Exit, Failure},
    output::Output,
};

/// Locks between processes and hosts, with fencing tokens
#[derive(Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  leasehold run nightly -- ./report.sh     run a job, one at a time across all hosts
  leasehold run --of 4 gpu -- ./render     at most four at a time
  leasehold elect scheduler -- ./serve     run a service, led by one host at a time
  leasehold ls                             who holds what
  leasehold top                            the same, live
  leasehold inspect nightly                who holds it and who waits
  leasehold doctor                         check the store
  leasehold serve                          locks over HTTP, and a dashboard

Stores: sqlite:PATH  redis://HOST  redis-sentinel://HOST,HOST,HOST/NAME
        redis-cluster://HOST,HOST  redlock://HOST,HOST,HOST  etcd://HOST,HOST,HOST
        with TLS rediss://HOST and so on, etcds://HOST,HOST,HOST
Data goes to stdout, messages to stderr. NO_COLOR is respected.")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The store: sqlite:PATH, redis://HOST, redis-sentinel://HOST,HOST,HOST/NAME, redis-cluster://HOST,HOST,
    /// redlock://HOST,HOST,HOST, postgres://HOST/DATABASE or etcd://HOST,HOST,HOST [env: LEASEHOLD_STORE] [file: store in leasehold.toml] [then: REDIS_HOST, REDIS_PORT, REDIS_PASSWORD] [default: a SQLite file of this host]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// Print JSON; errors become JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Print the store and log warnings; -vv logs everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    pub(crate) fn output(&self) -> Output {
        Output::new(self.json)
    }
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Elect(Box<elect::Elect>),
    Leader(leader::Leader),
    #[command(subcommand)]
    Lock(lock::Lock),
    #[command(subcommand)]
    Semaphore(semaphore::Semaphore),
    Ls(ls::Ls),
    Inspect(inspect::Inspect),
    ForceRelease(force_release::ForceRelease),
    Watch(watch::Watch),
    Top(top::Top),
    Stats(stats::Stats),
    Doctor(doctor::Doctor),
    Migrate(migrate::Migrate),
    #[command(subcommand)]
    Quorum(quorum::Quorum),
    #[command(subcommand)]
    Idem(idem::Idem),
    #[command(subcommand)]
    Marker(marker::Marker),
    #[command(subcommand)]
    Latch(latch::Latch),
    #[command(subcommand)]
    Deadlines(deadlines::Deadlines),
    #[cfg(feature = "serve")]
    Serve(serve::Serve),
    #[cfg(feature = "demos")]
    Demo(demo::Demo),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Cli {
    /// Whether many requests are to share the processors; everything else runs on the main thread.
    #[cfg(feature = "serve")]
    pub(crate) fn is_service(&self) -> bool {
        matches!(self.command, Command::Serve(_))
    }

    /// Runs the subcommand.
    pub(crate) async fn execute(self) -> Result<Exit, Failure> {
        let global = &self.global;
        match self.command {
            Command::Run(run) => run.execute(global).await,
            Command::Elect(elect) => elect.execute(global).await,
            Command::Leader(leader) => leader.execute(global).await,
            Command::Lock(lock) => lock.execute(global).await,
            Command::Semaphore(semaphore) => semaphore.execute(global).await,
            Command::Ls(ls) => ls.execute(global).await,
            Command::Inspect(inspect) => inspect.execute(global).await,
            Command::ForceRelease(release) => release.execute(global).await,
            Command::Watch(watch) => watch.execute(global).await,
            Command::Top(top) => top.execute(global).await,
            Command::Stats(stats) => stats.execute(global).await,
            Command::Doctor(doctor) => doctor.execute(global).await,
            Command::Migrate(migrate) => migrate.execute(global).await,
            Command::Quorum(quorum) => quorum.execute(global).await,
            Command::Idem(idem) => idem.execute(global).await,
            Command::Marker(marker) => marker.execute(global).await,
            Command::Latch(latch) => latch.execute(global).await,
            Command::Deadlines(deadlines) => deadlines.execute(global).await,
            #[cfg(feature = "serve")]
            Command::Serve(serve) => serve.execute(global).await,
            #[cfg(feature = "demos")]
            Command::Demo(demo) => demo.execute(global),
            Command::Completions(completions) => completions.execute(),
            Command::Man(man) => man.execute(),
        }
    }
}
