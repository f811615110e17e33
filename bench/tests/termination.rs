//! A benchmark that is terminated leaves nothing behind.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use leasehold_peers::Process;
use leasehold_testkit::{RedisServer, eventually};

const PATIENCE: Duration = Duration::from_secs(60);
/// For a contestant that is left alone. What it is in the middle of takes far longer.
const LEFT_FOR: Duration = Duration::from_secs(10);

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
}

#[test]
fn a_contestant_ends_with_its_input_also_in_the_middle_of_a_round() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let mut command = bench();
    command.args(["contestant", "contend", "lib=leasehold", "prefix=bench:", "name=alone", "tasks=1"]);
    command.args(["grants=1", "hold_us=600000000", &format!("url={}", server.url())]);
    let mut contestant = Process::start(command, "leasehold", PATIENCE).unwrap();
    assert_eq!(contestant.answer("it was ready").unwrap(), "ready");
    contestant.tell("round");
    eventually(PATIENCE, "it holds the lock", || server.cli(&["EXISTS", "lock:bench:alone"]).int() == 1);
    contestant.wait_at_most(LEFT_FOR);
    contestant.hang_up().unwrap();
}

#[test]
fn a_bench_that_is_terminated_leaves_no_contestant() {
    if RedisServer::shared_or_skip().is_none() {
        return;
    }
    let mut bench = bench();
    let bench = bench.args(["--only", "contention"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = bench.spawn().unwrap();
    let mut progress = BufReader::new(bench.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(progress.any(|line| line.contains("warm-up")), "the bench ended early");
    let contestants = contestants_of(bench.id());
    assert!(contestants.len() >= 8, "{contestants:?}");
    assert!(Command::new("kill").arg(bench.id().to_string()).status().unwrap().success());
    assert!(!bench.wait().unwrap().success());
    eventually(LEFT_FOR, "no contestant runs", || {
        // One that has ended and was not waited for has no arguments any more.
        let arguments = |pid: &String| fs::read(Path::new("/proc").join(pid).join("cmdline"));
        contestants.iter().all(|pid| arguments(pid).unwrap_or_default().is_empty())
    });
}

/// The processes that it has started as contestants.
fn contestants_of(bench: u32) -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_contestant = |pid: &String| {
        let read = |file: &str| fs::read(Path::new("/proc").join(pid).join(file)).ok();
        let status = read("status").and_then(|status| String::from_utf8(status).ok())?;
        let is_child = status.lines().any(|line| line == format!("PPid:\t{bench}"));
        let arguments = read("cmdline")?;
        (is_child && arguments.split(|byte| *byte == 0).any(|word| word == b"contestant")).then_some(())
    };
    pids.filter(|pid| is_contestant(pid).is_some()).collect()
}
