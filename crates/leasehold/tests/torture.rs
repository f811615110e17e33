//! Four processes of fifty tasks fight for a few locks, one of them is killed, another is stopped past its ttl; a resource
//! checks fences, and the history of all is judged.
#![cfg(any(feature = "redis", feature = "sqlite"))]
#![expect(clippy::print_stdout, reason = "says how much was judged")]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use leasehold::{Error, Leasehold};
use leasehold_testkit::{
    Admission, Helper, Recorder, Register, eventually,
    history::{Event, History, Violation, check},
    load, now,
};

const PROCESSES: usize = 4;
const TASKS: usize = 50;
const NAMES: usize = 3;
const TTL: Duration = Duration::from_secs(1);
/// How long nothing may happen.
const LIMIT: Duration = Duration::from_secs(120);

/// `cargo xtask faults` asks for more.
fn wanted() -> usize {
    usize::try_from(load::grants(2_000)).unwrap()
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
    let (dir, process) = (PathBuf::from(env("DIR")), env("PROCESS"));
    let leases = Leasehold::connect(env("STORE")).await.unwrap();
    let recorder = Arc::new(Recorder::open(&dir.join(format!("events.{process}"))).unwrap());
    let attempts = Arc::new(AtomicU64::new(0));
    let enough = dir.join("enough");
    Helper::say("ready");
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (leases, recorder, attempts, process) =
                (leases.clone(), recorder.clone(), attempts.clone(), process.clone());
            let name = format!("torture-{}", task % NAMES);
            let register = Register::open(&dir.join(&name), &name, Admission::AtLeastHighest).unwrap();
            let enough = enough.clone();
            tokio::spawn(async move {
                while !enough.exists() {
                    let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                    tenure(&leases, &name, &recorder, &register, &process, attempt).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    leases.close().await.unwrap();
}

async fn tenure(
    leases: &Leasehold,
    name: &str,
    recorder: &Recorder,
    register: &Register,
    process: &str,
    attempt: u64,
) {
    let (who, name) = (process.to_owned(), name.to_owned());
    recorder.record(&Event::Invoked { process: who.clone(), attempt, name: name.clone(), at: now() });
    let guard = match leases.lock(&name).ttl(TTL).wait(Duration::from_secs(10)).acquire().await {
        Ok(guard) => guard,
        Err(Error::TimedOut { .. }) => return recorder.record(&Event::Failed { process: who, attempt }),
        // Another process was stopped while it had the store's file: the outcome is unknown.
        Err(Error::StoreUnreachable { .. }) => return,
        Err(other) => panic!("{other}"),
    };
    let until = |left: Duration| now() + left.as_nanos() as u64;
    let (fence, valid_until) = (guard.fence().get(), until(guard.remaining()));
    recorder.record(&Event::Granted { process: who.clone(), attempt, fence, at: now(), valid_until });
    let accepted = register.write(fence, process).unwrap();
    // A refused write means that this process was stopped for longer than its lease.
    assert!(accepted || !guard.is_held(), "the register refused fence {fence} of a lease that is held");
    if guard.is_held() {
        recorder.record(&Event::Renewed {
            process: who.clone(),
            attempt,
            valid_until: until(guard.remaining()),
        });
    }
    recorder.record(&Event::Released { process: who, attempt, at: now() });
    match guard.release().await {
        Ok(_) | Err(Error::StoreUnreachable { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Waits for so many grants as long as they come; how fast they do is the machine's business.
fn reaches(dir: &Path, wanted: usize) {
    let mut so_far = grants(dir);
    while so_far <= wanted {
        eventually(LIMIT, "another grant", || grants(dir) > so_far);
        so_far = grants(dir);
    }
}

/// Runs the fight on a store; returns the number of grants.
fn fight(store: &str) -> usize {
    let (dir, wanted) = (tempfile::tempdir().unwrap(), wanted());
    let spawn = |number: usize| {
        let dir = dir.path().to_str().unwrap();
        Helper::spawn("torture", &[("STORE", store), ("DIR", dir), ("PROCESS", &format!("p{number}"))])
    };
    let processes: Vec<_> = (0..PROCESSES).map(spawn).collect();
    for process in &processes {
        process.wait_for_line("ready", Duration::from_secs(30));
    }
    reaches(dir.path(), wanted / 3);
    processes[0].kill9();
    reaches(dir.path(), wanted / 2);
    processes[1].stop();
    let (stopped, before) = (Instant::now(), grants(dir.path()));
    eventually(LIMIT, "the others to go on, or the leases of the stopped process to be long over", || {
        grants(dir.path()) > before + wanted / 10 || stopped.elapsed() > TTL * 5
    });
    processes[1].cont();
    reaches(dir.path(), wanted);
    std::fs::write(dir.path().join("enough"), "").unwrap();
    for process in &processes[1..] {
        assert!(process.wait(Duration::from_secs(60)).success(), "{}", process.stderr());
    }
    judge(dir.path())
}

fn events(dir: &Path) -> Vec<PathBuf> {
    (0..PROCESSES).map(|number| dir.join(format!("events.p{number}"))).filter(|path| path.exists()).collect()
}

fn grants(dir: &Path) -> usize {
    let count = |path| std::fs::read_to_string(path).map_or(0, |text| text.matches("granted\t").count());
    events(dir).into_iter().map(count).sum()
}

fn judge(dir: &Path) -> usize {
    let mut text = String::new();
    for path in events(dir) {
        text.push_str(&std::fs::read_to_string(path).unwrap());
    }
    for number in 0..NAMES {
        let name = format!("torture-{number}");
        let register = Register::open(&dir.join(&name), &name, Admission::AtLeastHighest).unwrap();
        for event in register.log().unwrap() {
            text.push_str(&event.to_line());
            text.push('\n');
        }
    }
    let history = History::from_text(&text).unwrap();
    let violations: Vec<Violation> = check(&history);
    assert!(violations.is_empty(), "{} violations, first: {}", violations.len(), violations[0]);
    assert!(history.granted() >= wanted(), "{} grants", history.granted());
    history.granted()
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

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_keeps_its_promises_under_torture() {
    let dir = tempfile::tempdir().unwrap();
    println!("{} grants, no violation", fight(&format!("sqlite:{}", dir.path().join("locks.db").display())));
}
