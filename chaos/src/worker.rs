//! One process of the load. It works until it gets SIGTERM, or is killed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold_testkit::{
    Recorder,
    load::{Kind, Running, Tally},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, load};

/// How often the tally is written: the rest is lost when the process is killed.
const TALLY_EVERY: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    url: String,
    /// What it competes for
    #[arg(long)]
    kind: Kind,
    /// Where histories, tallies and registers are
    #[arg(long)]
    folder: PathBuf,
    /// The name of this process in the history
    #[arg(long)]
    name: String,
    /// The prefix of the names of the locks
    #[arg(long)]
    stem: String,
    #[arg(long)]
    max_ttl_ms: u64,
}

impl WorkerArgs {
    fn max_ttl(&self) -> Duration {
        Duration::from_millis(self.max_ttl_ms)
    }
}

pub(crate) fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(work(args))
}

async fn work(args: &WorkerArgs) -> Result<(), Failure> {
    let mut end = signal(SignalKind::terminate())?;
    let leases = load::connect(&args.url, args.max_ttl())?;
    let mut running = Vec::new();
    for load in load::both(args.kind, &args.stem, &args.name, args.max_ttl(), &args.folder)? {
        let events = args.folder.join(format!("{}.events", load.process));
        running.push(load.start(std::slice::from_ref(&leases), Recorder::open(&events)?));
    }
    while tokio::time::timeout(TALLY_EVERY, end.recv()).await.is_err() {
        write_tally(args, running.iter().map(Running::tally))?;
    }
    let mut tallies = Vec::new();
    for load in running {
        tallies.push(load.stop().await);
    }
    write_tally(args, tallies.into_iter())?;
    // A lock that could not be released expires with its ttl.
    let _ = leases.close().await;
    Ok(())
}

fn write_tally(args: &WorkerArgs, tallies: impl Iterator<Item = Tally>) -> Result<(), Failure> {
    let tally = tallies.fold(Tally::default(), sum);
    let file = args.folder.join(format!("{}.tally", args.name));
    let draft = file.with_extension("draft");
    let object = json!({
        "granted": tally.granted,
        "timed_out": tally.timed_out,
        "unreachable": tally.unreachable,
        "out_of_memory": tally.out_of_memory,
        "lost": tally.lost,
        "writes_refused": tally.writes_refused,
        "errors": tally.errors,
    });
    fs::write(&draft, object.to_string())?;
    // Written atomically: the file is complete whenever it is read or this process is killed.
    Ok(fs::rename(draft, file)?)
}

/// All tallies in `folder`, added up.
pub(crate) fn read_tallies(folder: &Path) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "tally") {
            tally = sum(tally, parse(&serde_json::from_slice(&fs::read(path)?)?));
        }
    }
    Ok(tally)
}

fn parse(object: &Value) -> Tally {
    let number = |key: &str| object[key].as_u64().unwrap_or_default();
    let errors = object["errors"].as_array().into_iter().flatten();
    Tally {
        granted: number("granted"),
        timed_out: number("timed_out"),
        unreachable: number("unreachable"),
        out_of_memory: number("out_of_memory"),
        lost: number("lost"),
        writes_refused: number("writes_refused"),
        errors: errors.filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

fn sum(mut one: Tally, other: Tally) -> Tally {
    one.granted += other.granted;
    one.timed_out += other.timed_out;
    one.unreachable += other.unreachable;
    one.out_of_memory += other.out_of_memory;
    one.lost += other.lost;
    one.writes_refused += other.writes_refused;
    one.errors.extend(other.errors);
    one
}
