//! A few seconds of every topology: no violation, and recovery after every fault.

use std::{
    process::Command,
    sync::{Mutex, PoisonError},
};

use leasehold_testkit::RedisServer;
use serde_json::Value;

/// One after the other: two runs at once would mostly compete for the machine.
static TURN: Mutex<()> = Mutex::new(());

/// The report of a run that passed; `None` without servers.
fn run(arguments: &[&str]) -> Option<Value> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    RedisServer::shared_or_skip()?;
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-chaos"))
        .args(arguments)
        .args(["--seconds", "2", "--json"])
        .output()
        .expect("the program starts");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    Some(serde_json::from_str(&stdout).expect("one JSON object"))
}

#[track_caller]
fn assert_kept(report: &Value) {
    assert_eq!(report["schema"]["version"], "v1");
    assert_eq!((&report["violations"], &report["not_recovered"]), (&0.into(), &0.into()), "{report}");
    assert!(report["faults"].as_u64() > Some(0), "{report}");
    assert_eq!(report["injected"].as_array().map(Vec::len), report["faults"].as_u64().map(|n| n as usize));
    assert!(report["grants"].as_u64() > Some(100), "{report}");
    assert!(report["recovery"]["median_s"].as_f64() <= report["recovery"]["worst_s"].as_f64(), "{report}");
}

#[test]
fn a_fault_that_is_not_known_is_refused_with_those_that_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-chaos"))
        .args(["--topology", "single", "--only", "flood"])
        .output()
        .expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("no fault \"flood\"") && text.contains("kill server, stop server"), "{text}");
}

#[test]
fn one_server_with_its_data_on_disk_keeps_every_promise() {
    let Some(report) = run(&["--topology", "single", "--seed", "1"]) else { return };
    assert_eq!((&report["topology"], &report["seed"]), (&"single".into(), &1.into()));
    assert_eq!(report["locks"], "exclusive");
    assert_kept(&report);
}

#[test]
fn a_set_with_sentinels_and_grace_keeps_every_promise() {
    let Some(report) = run(&["--topology", "sentinel"]) else { return };
    assert_kept(&report);
    assert_eq!(report["excused_overlaps"], 0, "{report}");
}

#[test]
fn a_cluster_keeps_what_it_promises() {
    let Some(report) = run(&["--topology", "cluster"]) else { return };
    assert_kept(&report);
}

#[test]
fn a_quorum_keeps_every_promise_while_its_nodes_lose_data() {
    let Some(report) = run(&["--topology", "quorum"]) else { return };
    assert_kept(&report);
    assert_eq!(report["excused_overlaps"], 0, "{report}");
}

#[test]
fn postgres_keeps_every_promise() {
    let Some(report) = run(&["--topology", "postgres"]) else { return };
    assert_kept(&report);
}

#[test]
fn etcd_keeps_every_promise() {
    let Some(report) = run(&["--topology", "etcd"]) else { return };
    assert_kept(&report);
}
