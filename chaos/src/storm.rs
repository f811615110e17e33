//! The loop: let the load work, break something, wait until all is well, again.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_testkit::now;
use tokio::task::block_in_place;

use crate::{
    Failure,
    judge::{self, Window},
    probe::Probe,
    progress::Progress,
    report::{Report, Struck},
    schedule::{Schedule, Strike},
    target::Target,
    topology::{Cure, Kind, Topology},
    worker,
    workers::{RunConfig, Workers},
};

/// After that it counts as not recovered. Generous, for it is no measure of speed.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// What to break
    #[arg(long, value_enum)]
    pub(crate) topology: Kind,
    /// For how long faults are begun; the last one is seen to its end
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Repeats the faults of an earlier run, in order and on the same victims
    #[arg(long)]
    seed: Option<u64>,
    /// Only faults of this kind, as the report calls it; can be given several times
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    /// Sentinel without fail-over grace: leases may be forgotten, fences must still grow
    #[arg(long)]
    pub(crate) plain: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
}

impl Options {
    /// For servers under another load than ours, whose clients know nothing of a grace.
    pub(crate) fn quiet(topology: Kind) -> Self {
        Self { topology, seconds: 0, seed: None, only: Vec::new(), plain: true, json: false }
    }
}

/// Runs everything and prints the report; whether every promise was kept.
pub(crate) fn run<T: Topology>(options: &Options) -> Result<bool, Failure> {
    let targets = Target::<T>::chosen(&options.only)?;
    let set = T::start(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let evidence = Evidence::new()?;
    let report = runtime.block_on(rage(&set, targets, options, &evidence.folder))?;
    std::fs::write(evidence.folder.join("report.json"), report.json())?;
    let text = if options.json { report.json() } else { report.table() };
    std::io::stdout().write_all(text.as_bytes())?;
    if report.passed() {
        evidence.discard()?;
    }
    Ok(report.passed())
}

async fn rage<T: Topology>(
    set: &T,
    targets: Vec<Target<T>>,
    options: &Options,
    folder: &Path,
) -> Result<Report, Failure> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let config = Arc::new(RunConfig {
        url: set.url(),
        stem: set.stem(),
        folder: folder.to_owned(),
        max_ttl: T::MAX_TTL,
    });
    let progress = Progress::start(options.seconds, folder.to_owned());
    progress.says("starting");
    let probe = Probe::new(&config)?;
    if !probe.all_granted(RECOVERS_WITHIN).await {
        return Err("no lock could be had before the first fault".into());
    }
    block_in_place(|| set.await_whole());
    let schedule = Schedule::new(seed, targets.len());
    let mut storm = Storm { set, targets, probe, workers: Workers::start(config.clone()), progress };
    let started = Instant::now();
    let struck = storm.blow(schedule, options.seconds).await;
    let lasted = started.elapsed();
    storm.progress.says("judging");
    let workers = storm.workers.started();
    block_in_place(|| storm.workers.end())?;
    let windows: Vec<Window> = struck.iter().filter_map(|one| one.window).collect();
    Ok(Report {
        topology: options.topology,
        seed,
        lasted,
        workers,
        struck,
        tally: worker::read_tallies(folder)?,
        verdict: judge::judge(&config, &windows)?,
    })
}

struct Storm<'a, T: Topology> {
    set: &'a T,
    targets: Vec<Target<T>>,
    probe: Probe,
    workers: Workers,
    progress: Progress,
}

impl<T: Topology> Storm<'_, T> {
    async fn blow(&mut self, schedule: Schedule, seconds: u64) -> Vec<Struck> {
        let ends_at = Instant::now() + Duration::from_secs(seconds);
        let mut struck = Vec::new();
        for strike in schedule {
            self.progress.says("at rest");
            let left = ends_at.saturating_duration_since(Instant::now());
            tokio::time::sleep(strike.rest.min(left)).await;
            if left <= strike.rest {
                break;
            }
            struck.push(self.strike(&strike).await);
            self.progress.counts(struck.len());
            if struck.last().is_some_and(|last| last.recovered.is_none()) {
                break;
            }
        }
        struck
    }

    async fn strike(&mut self, strike: &Strike) -> Struck {
        let (at, began) = (now(), Instant::now());
        let target = &self.targets[strike.fault];
        self.progress.says(target.kind());
        match *target {
            Target::Worker { kind, hit } => {
                block_in_place(|| hit(&mut self.workers, strike.dice));
                let recovered = self.recovers().await.then(|| began.elapsed());
                Struck { kind, at, recovered, window: None }
            }
            Target::Servers(fault) => {
                let victims = block_in_place(|| (fault.inflict)(self.set, strike.dice));
                if fault.cure == Cure::Hand {
                    tokio::time::sleep(strike.outage).await;
                    block_in_place(|| (fault.mend)(self.set, &victims));
                }
                let recovered = self.recovers().await.then(|| began.elapsed());
                if fault.cure == Cure::Itself {
                    block_in_place(|| (fault.mend)(self.set, &victims));
                }
                block_in_place(|| self.set.await_whole());
                // What was mended must not break what had recovered.
                let still = self.recovers().await;
                let until = now() + T::MAX_TTL.as_nanos() as u64;
                let window = (fault.may_forget && self.set.forgets()).then_some(Window { from: at, until });
                Struck { kind: fault.kind, at, recovered: recovered.filter(|_| still), window }
            }
        }
    }

    async fn recovers(&self) -> bool {
        self.probe.all_granted(RECOVERS_WITHIN).await
    }
}

/// Histories, registers and tallies of a run. They stay when it fails, and whoever reads the terminal learns where.
struct Evidence {
    folder: PathBuf,
    is_kept: bool,
}

impl Evidence {
    fn new() -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("leasehold-chaos-").tempdir()?.keep();
        Ok(Self { folder, is_kept: true })
    }

    fn discard(mut self) -> Result<(), Failure> {
        self.is_kept = false;
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        if self.is_kept {
            let _ = writeln!(std::io::stderr(), "histories are kept in {}", self.folder.display());
        }
    }
}
