//! The bench runs and reports every result. Nothing here is about speed.

use std::process::Command;

const CORE: [&str; 7] = [
    "cycle_p50_vs_raw_scripts",
    "cycle_p50_vs_two_pings",
    "throughput_64_vs_rslock",
    "handover_p50_vs_publish",
    "commands_per_handover",
    "renewal_core_share",
    "renewal_reported_vs_plain",
];

const TOPOLOGIES: [&str; 10] = [
    "quorum_acquire_p50_vs_raw_votes",
    "quorum_one_round_trip_share",
    "quorum_acquire_p50_vs_one_node",
    "quorum_one_stopped_vs_healthy",
    "cluster_acquire_p50_vs_standalone",
    "cluster_acquire_p50_vs_three_servers",
    "sentinel_acquire_p50_vs_standalone",
    "acks_acquire_p50_vs_none",
    "cluster_handover_p50_vs_standalone",
    "quorum_handover_p50_vs_standalone",
];

const RECORDS: [&str; 10] = [
    "record_cycles_64_vs_lock_cycles",
    "result_wake_p50_vs_handover",
    "round_trips_per_1000_marks",
    "deadlines_claimed_and_acknowledged_per_s",
    "deadline_cost_many_vs_few_pending",
    "bytes_per_pending_deadline",
    "empty_scan_p50_vs_ping",
    "nothing_due_scan_p50_vs_ping",
    "cluster_empty_scan_p50_vs_ping",
    "cluster_nothing_due_scan_p50_vs_ping",
];

fn run(arguments: &[&str]) -> Option<String> {
    leasehold_testkit::RedisServer::shared_or_skip()?;
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(arguments)
        .output()
        .expect("the bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// Two quick rounds, with every result in them.
fn report(what: &str, keys: &[&str]) -> Option<serde_json::Value> {
    let text = run(&[what, "--quick", "--rounds", "2", "--json"])?;
    let report: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(report["schema"]["version"], "v1");
    assert_eq!(report["rounds"], 2);
    for key in keys {
        let [min, median, max] = ["min", "median", "max"].map(|part| report[key][part].as_f64());
        assert!(min.is_some() && min <= median && median <= max, "{key}: {}", report[key]);
    }
    Some(report)
}

#[test]
fn a_quick_run_reports_every_result_as_json() {
    let Some(report) = report("core", &CORE) else { return };
    assert_eq!(report["cycle_p50_vs_raw_scripts"]["target"], "<= 1.1");
    assert!(report["figures"]["cycle_us"]["median"].as_f64() > Some(0.0));
}

#[test]
fn a_quick_run_of_topologies_reports_every_result_as_json() {
    let Some(report) = report("topologies", &TOPOLOGIES) else { return };
    assert_eq!(report["quorum_acquire_p50_vs_raw_votes"]["target"], "<= 1.2");
    assert!(report["figures"]["cluster_cycle_us"]["median"].as_f64() > Some(0.0));
}

#[test]
fn a_quick_run_of_records_reports_every_result_as_json() {
    let Some(report) = report("records", &RECORDS) else { return };
    assert_eq!(report["round_trips_per_1000_marks"]["target"], "<= 1");
    assert_eq!(report["round_trips_per_1000_marks"]["max"].as_f64(), Some(1.0));
}

#[test]
fn a_quick_run_prints_tables() {
    let Some(text) = run(&["core", "--quick", "--rounds", "1", "--only", "cycle,commands"]) else { return };
    assert!(text.contains("cycle_p50_vs_raw_scripts") && text.contains("commands_per_handover"), "{text}");
    assert!(!text.contains("renewal_core_share"), "{text}");
}
