//! Four processes of fifty tasks fight for a few locks of every kind, one of them is killed, another is stopped past its ttl; a
//! resource checks fences, and the history of all is judged.
#![cfg(any(feature = "etcd", feature = "redis", feature = "sqlite", feature = "postgres"))]
#![expect(clippy::print_stdout, reason = "says how much was judged")]

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use leasehold::Leasehold;
use leasehold_testkit::{
    Helper, Recorder, eventually,
    history::{History, check},
    load::{self, Kind, Load},
};

const PROCESSES: usize = 4;
const TTL: Duration = Duration::from_secs(1);
/// How long nothing may happen.
const LIMIT: Duration = Duration::from_secs(120);

/// Grants of each kind; `cargo xtask faults` asks for more.
fn wanted() -> usize {
    usize::try_from(load::grants(600)).unwrap()
}

/// What a process does; the last of them changes limits too.
fn load(process: usize) -> Load {
    Load {
        prefix: "torture".into(),
        process: format!("p{process}"),
        names: 3,
        tasks: 25,
        ttl: TTL,
        hold: Duration::ZERO,
        kept_of_ten: 0,
        operates: process + 1 == PROCESSES,
        ..Load::default()
    }
}

#[test]
fn helper_process() {
    if Helper::role().as_deref() == Some("torture") {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(work());
    }
}

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set for the helper"))
}

/// One process: its tasks take and give back locks until the parent says that it is enough.
async fn work() {
    let (dir, process) = (PathBuf::from(env("DIR")), env("PROCESS").parse().unwrap());
    let leases = Leasehold::connect(env("STORE")).await.unwrap();
    let mut running = Vec::new();
    for load in load(process).of_each_kind(leases.capabilities()) {
        let recorder = Recorder::open(&events(&dir, process, load.kind)).unwrap();
        let load = load.registers(&dir).unwrap();
        running.push(load.start(std::slice::from_ref(&leases), recorder));
    }
    Helper::say("ready");
    while !dir.join("enough").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for load in running {
        let tally = load.stop().await;
        assert!(tally.errors.is_empty(), "{tally:?}");
    }
    leases.close().await.unwrap();
}

fn events(dir: &Path, process: usize, kind: Kind) -> PathBuf {
    dir.join(format!("events.{process}.{kind}"))
}

/// Counts grants of a kind as they come.
struct Counter {
    files: Vec<(PathBuf, u64)>,
    grants: usize,
}

impl Counter {
    fn new(dir: &Path, kind: Kind) -> Self {
        Self { files: (0..PROCESSES).map(|process| (events(dir, process, kind), 0)).collect(), grants: 0 }
    }

    fn grants(&mut self) -> usize {
        for (path, read) in &mut self.files {
            let Ok(mut file) = File::open(path) else { continue };
            let mut text = String::new();
            file.seek(SeekFrom::Start(*read)).unwrap();
            file.read_to_string(&mut text).unwrap();
            let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
            self.grants += complete.lines().filter(|line| line.starts_with("granted")).count();
            *read += complete.len() as u64;
        }
        self.grants
    }
}

/// Waits for so many grants of each kind as long as they come; how fast they do is the machine's business.
fn reaches(counters: &mut [Counter], wanted: usize) {
    for counter in counters {
        let mut so_far = counter.grants();
        while so_far <= wanted {
            eventually(LIMIT, "another grant", || counter.grants() > so_far);
            so_far = counter.grants();
        }
    }
}

/// Runs the fight on a store; returns the number of grants.
fn fight(store: &str) -> usize {
    let (dir, wanted) = (tempfile::tempdir().unwrap(), wanted());
    let mut counters = Kind::ALL.map(|kind| Counter::new(dir.path(), kind));
    let spawn = |number: usize| {
        let dir = dir.path().to_str().unwrap();
        Helper::spawn("torture", &[("STORE", store), ("DIR", dir), ("PROCESS", &number.to_string())])
    };
    let processes: Vec<_> = (0..PROCESSES).map(spawn).collect();
    for process in &processes {
        process.wait_for_line("ready", Duration::from_secs(30));
    }
    reaches(&mut counters, wanted / 3);
    processes[0].kill9();
    reaches(&mut counters, wanted / 2);
    processes[1].stop();
    let (stopped, before) = (Instant::now(), counters.each_mut().map(Counter::grants));
    eventually(LIMIT, "the others to go on, or the leases of the stopped process to be long over", || {
        let mut kinds = counters.iter_mut().zip(before);
        kinds.all(|(counter, before)| counter.grants() > before + wanted / 10) || stopped.elapsed() > TTL * 5
    });
    processes[1].cont();
    reaches(&mut counters, wanted);
    std::fs::write(dir.path().join("enough"), "").unwrap();
    for process in &processes[1..] {
        assert!(process.wait(Duration::from_secs(60)).success(), "{}", process.stderr());
    }
    Kind::ALL.into_iter().map(|kind| judge(dir.path(), kind)).sum()
}

fn judge(dir: &Path, kind: Kind) -> usize {
    let files = (0..PROCESSES).map(|process| events(dir, process, kind)).filter(|path| path.exists());
    let mut history = History::from_files(files).unwrap();
    let load = load(0).of_kind(kind).registers(dir).unwrap();
    history.writes = History::from_events(load.writes().unwrap()).unwrap().writes;
    let violations = check(&history);
    assert!(violations.is_empty(), "{kind}: {} violations, first: {}", violations.len(), violations[0]);
    assert!(history.granted() >= wanted(), "{} grants: {kind}", history.granted());
    history.granted()
}

#[cfg(feature = "etcd")]
#[test]
fn etcd_keeps_its_promises_under_torture() {
    let Some(etcd) = leasehold_testkit::EtcdSet::builder(1).start_or_skip() else { return };
    println!("{} grants, no violation", fight(&etcd.url()));
    let no_attempt = || etcd.ctl(&["get", "--prefix", "--keys-only", "lock:"]).trim().is_empty();
    eventually(Duration::from_secs(20), "no lock or waiter to be left", no_attempt);
}

#[cfg(feature = "redis")]
#[test]
fn redis_keeps_its_promises_under_torture() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    println!("{} grants, no violation", fight(&server.url()));
    eventually(Duration::from_secs(20), "no lock or waiter to be left", || {
        server.cli(&["KEYS", "lock:*"]).list().is_empty()
            && server.cli(&["KEYS", "leasehold:waiters:*"]).list().is_empty()
    });
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_keeps_its_promises_under_torture() {
    let Some(server) = leasehold_testkit::PostgresServer::start_or_skip() else { return };
    server.install(&leasehold::engine::postgres::script());
    let database = server.database();
    // Each process has more than a hundred tasks.
    println!("{} grants, no violation", fight(&format!("{}?pool=32", server.url(&database))));
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_keeps_its_promises_under_torture() {
    let dir = tempfile::tempdir().unwrap();
    println!("{} grants, no violation", fight(&format!("sqlite:{}", dir.path().join("locks.db").display())));
}
