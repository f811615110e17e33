//! Every peer through every workload, once: shows what can be compared on this machine, and that it runs.

use std::{io::Write, time::Duration};

use comfy_table::Table;
use leasehold_testkit::{RedisServer, poll};
use serde_json::Value;

use super::{Program, all, folder, prepare};
use crate::{
    Failure,
    contestant::{Contestant, Started},
    cpu,
};

/// A title, a workload, its keys, and how many processes run it together.
type Case = (&'static str, &'static str, &'static [&'static str], usize);

const CASES: [Case; 7] = [
    ("1 task", "cycle", &["tasks=1", "ms=300"], 1),
    ("64 tasks", "cycle", &["tasks=64", "ms=300"], 1),
    ("512 tasks", "cycle", &["tasks=512", "ms=300"], 1),
    ("4 × 16 waiters", "contend", &["tasks=16", "name=one", "grants=25", "hold_us=1000"], 4),
    ("10,000 kept", "keep", &["locks=10000", "ttl_ms=30000", "ms=300"], 1),
    ("10,000 held", "hold", &["locks=10000"], 1),
    (QUORUM, "cycle", &["tasks=64", "ms=300"], 1),
];
const QUORUM: &str = "quorum of 3";

/// Returns the text to print; fails if a peer that can be built does not run.
pub(crate) fn run() -> Result<String, Failure> {
    let servers = (0..3).map(|_| RedisServer::builder().start()).collect::<Result<Vec<_>, _>>()?;
    let folder = folder()?;
    let mut table = Table::new();
    table.set_header(["peer", "workload", "result"]);
    let mut failures = Vec::new();
    for peer in all() {
        let _ = writeln!(std::io::stderr(), "{}", peer.name);
        let program = match prepare(peer, &folder) {
            Ok(program) => program,
            Err(why) => {
                table.add_row([peer.name, "all", &format!("skipped: {why}")]);
                continue;
            }
        };
        for case in &CASES {
            let result = run_case(&program, case, &servers).unwrap_or_else(|error| {
                failures.push(format!("{}, {}: {error}", peer.name, case.0));
                "failed".to_owned()
            });
            table.add_row([&program.version(), case.0, &result]);
        }
        let result = ends_with_us(&program, &servers[0]).unwrap_or_else(|error| {
            failures.push(format!("{}, left alone: {error}", peer.name));
            "failed".to_owned()
        });
        table.add_row([&program.version(), "left alone", &result]);
    }
    match failures.as_slice() {
        [] => Ok(format!("{table}\n")),
        failures => Err(format!("{table}\n{}", failures.join("\n")).into()),
    }
}

fn run_case(program: &Program, case: &Case, servers: &[RedisServer]) -> Result<String, Failure> {
    let (title, workload, keys, processes) = *case;
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let mut contestants = Vec::new();
    for _ in 0..processes {
        let mut command = program.command(workload);
        // A quorum may leave keys behind on a minority of its servers.
        command.args(keys).arg(format!("prefix={}:{title}:", program.name));
        match title {
            QUORUM => command.arg(format!("urls={}", urls.join(","))),
            _ => command.arg(format!("url={}", urls[0])),
        };
        match Contestant::start(command, program.name)? {
            Started::Ready(contestant) => contestants.push(contestant),
            Started::Unsupported(reason) => return Ok(reason),
        }
    }
    let answers = std::thread::scope(|scope| {
        let rounds: Vec<_> = contestants.iter_mut().map(|one| scope.spawn(|| one.round())).collect();
        rounds.into_iter().map(|round| round.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let used = contestants.iter().map(|one| cpu::time_of(one.pid())).sum::<Result<Duration, _>>()?;
    let result = format!("{}, {:.1} s of processor time", summary(workload, &answers)?, used.as_secs_f64());
    for mut contestant in contestants {
        if matches!(workload, "keep" | "hold") {
            let _ = contestant.release()?;
        }
        contestant.quit()?;
    }
    Ok(result)
}

/// For a program that is left alone in the middle of a round; it would take ten minutes.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// A program whose benchmark is gone must not run on, not even while it holds a lock.
fn ends_with_us(program: &Program, server: &RedisServer) -> Result<String, Failure> {
    let mut command = program.command("contend");
    let keys = ["tasks=1", "name=alone", "grants=1", "hold_us=600000000"];
    command.args(keys).arg(format!("url={}", server.url())).arg(format!("prefix={}:", program.name));
    let mut contestant = match Contestant::start(command, program.name)? {
        Started::Ready(contestant) => contestant,
        Started::Unsupported(reason) => return Ok(reason),
    };
    contestant.begin_round();
    let key = format!("*{}:alone*", program.name);
    let holds = || (!server.cli(&["KEYS", &key]).list().is_empty()).then_some(());
    poll(LEFT_FOR, holds).ok_or("it took no lock")?;
    contestant.wait_at_most(LEFT_FOR);
    contestant.hang_up()?;
    Ok("it ended".to_owned())
}

/// What was done; an error if that is nothing, or if not all of it succeeded.
fn summary(workload: &str, answers: &[Value]) -> Result<String, Failure> {
    let key = match workload {
        "cycle" => "cycles",
        "contend" => "grants",
        _ => "held",
    };
    let sum = |key: &str| answers.iter().map(|answer| answer[key].as_u64()).sum::<Option<u64>>();
    match sum(key) {
        Some(done) if done > 0 && sum("errors").unwrap_or(0) == 0 => Ok(format!("{done} {key}")),
        _ => Err(format!("answered {}", Value::from(answers.to_vec())).into()),
    }
}
