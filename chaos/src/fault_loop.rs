//! The loop: run the load, inject a fault, wait for recovery, repeat.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_testkit::{load, now};
use tokio::task::block_in_place;

use crate::{
    Failure,
    judge::{self, Window},
    probe::Probe,
    progress::Progress,
    report::{InjectedFault, Report},
    schedule::{PlannedFault, Schedule},
    target::Target,
    topology::{Cure, Kind, Topology},
    worker,
    workers::{RunConfig, Workers},
};

/// After this time the fault counts as not recovered. Generous, because it does not measure speed.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// The topology to test
    #[arg(long, value_enum)]
    pub(crate) topology: Kind,
    /// What the load competes for: exclusive, readwrite, permits or election
    #[arg(long, default_value_t)]
    kind: load::Kind,
    /// For how long faults are injected; the last one runs to its end
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Repeat the faults of an earlier run, in order and on the same victims
    #[arg(long)]
    seed: Option<u64>,
    /// Only this fault, by its name in the report; can be given several times
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// Sentinel without fail-over grace: leases may be lost, fences must still grow
    #[arg(long)]
    pub(crate) plain: bool,
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
}

impl Options {
    /// For servers under another load than ours, whose clients do not set a grace.
    pub(crate) fn quiet(topology: Kind) -> Self {
        let kind = load::Kind::Exclusive;
        Self { topology, kind, seconds: 0, seed: None, only: Vec::new(), plain: true, json: false }
    }
}

/// Runs everything and prints the report; returns whether every promise was kept.
pub(crate) fn run<T: Topology>(options: &Options) -> Result<bool, Failure> {
    let targets = Target::<T>::chosen(&options.only)?;
    let set = T::start(options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let evidence = Evidence::new()?;
    let report = runtime.block_on(run_under_load(&set, targets, options, &evidence.folder))?;
    std::fs::write(evidence.folder.join("report.json"), report.json())?;
    let text = if options.json { report.json() } else { report.table() };
    std::io::stdout().write_all(text.as_bytes())?;
    if report.passed() {
        evidence.discard()?;
    }
    Ok(report.passed())
}

async fn run_under_load<T: Topology>(
    set: &T,
    targets: Vec<Target<T>>,
    options: &Options,
    folder: &Path,
) -> Result<Report, Failure> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let config = Arc::new(RunConfig {
        url: set.url(),
        kind: options.kind,
        stem: set.stem(),
        folder: folder.to_owned(),
        max_ttl: T::MAX_TTL,
    });
    let progress = Progress::start(options.seconds, folder.to_owned());
    progress.show("starting");
    let probe = Probe::new(&config)?;
    if !probe.all_granted(RECOVERS_WITHIN).await {
        return Err("no lock could be acquired before the first fault".into());
    }
    block_in_place(|| set.await_whole());
    let schedule = Schedule::new(seed, targets.len());
    let mut fault_loop = FaultLoop { set, targets, probe, workers: Workers::start(config.clone()), progress };
    let started = Instant::now();
    let injected = fault_loop.run(schedule, options.seconds).await;
    let lasted = started.elapsed();
    fault_loop.progress.show("judging");
    let workers = fault_loop.workers.started();
    block_in_place(|| fault_loop.workers.end())?;
    let windows: Vec<Window> = injected.iter().filter_map(|one| one.window).collect();
    Ok(Report {
        topology: options.topology,
        locks: options.kind,
        seed,
        lasted,
        workers,
        injected,
        tally: worker::read_tallies(folder)?,
        verdict: judge::judge(&config, &windows)?,
    })
}

struct FaultLoop<'a, T: Topology> {
    set: &'a T,
    targets: Vec<Target<T>>,
    probe: Probe,
    workers: Workers,
    progress: Progress,
}

impl<T: Topology> FaultLoop<'_, T> {
    async fn run(&mut self, schedule: Schedule, seconds: u64) -> Vec<InjectedFault> {
        let ends_at = Instant::now() + Duration::from_secs(seconds);
        let mut injected = Vec::new();
        for planned in schedule {
            self.progress.show("at rest");
            let left = ends_at.saturating_duration_since(Instant::now());
            tokio::time::sleep(planned.rest.min(left)).await;
            if left <= planned.rest {
                break;
            }
            injected.push(self.inject(&planned).await);
            self.progress.counts(injected.len());
            if injected.last().is_some_and(|last| last.recovered.is_none()) {
                break;
            }
        }
        injected
    }

    async fn inject(&mut self, planned: &PlannedFault) -> InjectedFault {
        let (at, began) = (now(), Instant::now());
        let target = &self.targets[planned.fault];
        self.progress.show(target.kind());
        match *target {
            Target::Worker { kind, hit } => {
                block_in_place(|| hit(&mut self.workers, planned.dice));
                let recovered = self.recovers().await.then(|| began.elapsed());
                InjectedFault { kind, at, recovered, window: None }
            }
            Target::Servers(fault) => {
                let victims = block_in_place(|| (fault.inflict)(self.set, planned.dice));
                if fault.cure == Cure::Hand {
                    tokio::time::sleep(planned.outage).await;
                    block_in_place(|| (fault.mend)(self.set, &victims));
                }
                let recovered = self.recovers().await.then(|| began.elapsed());
                if fault.cure == Cure::Itself {
                    block_in_place(|| (fault.mend)(self.set, &victims));
                }
                block_in_place(|| self.set.await_whole());
                // Ending the fault must not break what had recovered.
                let still = self.recovers().await;
                let until = now() + T::MAX_TTL.as_nanos() as u64;
                let window =
                    (fault.may_lose_writes && self.set.loses_leases()).then_some(Window { from: at, until });
                InjectedFault { kind: fault.kind, at, recovered: recovered.filter(|_| still), window }
            }
        }
    }

    async fn recovers(&self) -> bool {
        self.probe.all_granted(RECOVERS_WITHIN).await
    }
}

/// Histories, registers and tallies of a run. They are kept when it fails, and the path is printed.
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
