//! The bench runs and reports every result. Nothing here is about speed.

use std::process::Command;

use serde_json::Value;

/// Results that documents name.
const CORE: [&str; 12] = [
    "lone_cycle_server_vs_redisson",
    "memory_per_lock",
    "memory_after_release",
    "cycle_p50_vs_raw_scripts",
    "cycle_p50_vs_two_pings",
    "throughput_64_vs_rslock",
    "handover_p50_vs_publish",
    "commands_per_handover",
    "renewal_core_share",
    "renewal_reported_vs_plain",
    "renewal_client_core_share",
    "lone_cycle_scripts_vs_redisson",
];

const LOCKS: [&str; 15] = [
    "cycle_p50_vs_rslock",
    "cycle_p50_vs_rslock_ct",
    "cycle_p50_vs_two_pings",
    "cycle_p50_vs_raw_scripts",
    "contention_16_total_vs_holds",
    "contention_16_longest_vs_median_wait",
    "contention_16_overtakings",
    "contention_16_vs_rslock",
    "handover_p50_vs_publish",
    "handover_p50_vs_publish_ct",
    "client_bytes_per_guard",
    "held_server_bytes_vs_rslock",
    "memory_per_lock",
    "renewal_core_share",
    "renewal_client_core_share",
];

const FAMILY: [&str; 12] = [
    "shared_cycle_p50_vs_exclusive",
    "permit_cycle_p50_vs_exclusive",
    "shared_cycle_64_vs_exclusive",
    "admit_500_readers_vs_one",
    "admit_500_readers_vs_exclusive_handover",
    "admit_500_readers_calls",
    "reader_beside_500_vs_beside_10",
    "permit_commands_per_handover",
    "bytes_per_permit_holder",
    "reentry_commands",
    "lock_all_8_sent",
    "lock_all_8_release_sent",
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

const NODES: [&str; 15] = [
    "quorum_3_cycle_p50_vs_rslock",
    "quorum_3_throughput_vs_rslock",
    "quorum_3_stopped_first_second_vs_healthy",
    "quorum_3_killed_first_second_vs_healthy",
    "quorum_3_killed_vs_healthy",
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

fn run(arguments: &[&str]) -> Option<String> {
    leasehold_testkit::RedisServer::shared_or_skip()?;
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"))
        .args(arguments)
        .output()
        .expect("the bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// A quick run, with every result in it.
fn report(arguments: &[&str], version: &str, keys: &[&str]) -> Option<Value> {
    let text = run(&[arguments, &["--quick", "--json"]].concat())?;
    let report: Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!(report["schema"]["version"], version);
    for key in keys {
        let [min, median, max] = ["min", "median", "max"].map(|part| report[key][part].as_f64());
        assert!(min.is_some() && min <= median && median <= max, "{key}: {}", report[key]);
    }
    Some(report)
}

#[test]
fn rounds_inside_of_the_process_report_every_result() {
    let Some(report) = report(&["core", "--rounds", "2"], "v1", &CORE) else { return };
    assert_eq!(report["rounds"], 2);
    assert_eq!(report["cycle_p50_vs_raw_scripts"]["target"], "<= 1.1");
    assert!(report["figures"]["cycle_us"]["median"].as_f64() > Some(0.0));
}

#[test]
fn workloads_of_locks_report_every_result_and_write_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = ["--write", folder.path().to_str().expect("text")];
    let only = ["--only", "cycle,contention,handover,memory,kept-alive"];
    let Some(report) = report(&[write, only].concat(), "v2", &LOCKS) else { return };
    assert_eq!(report["contention_16_overtakings"]["max"], 0.0);
    assert!(report["machine"]["server"].as_str().is_some_and(|server| server.starts_with("redis-server ")));
    let ours = &report["workloads"]["cycle"]["entrants"]["leasehold ct"];
    assert!(ours["cycles_per_s"]["median"].as_f64() > Some(0.0), "{ours}");
    let page = std::fs::read_to_string(folder.path().join("benchmarks.md")).expect("a page");
    assert!(page.contains("![Acquire and release, 1 task](benchmarks/cycle.svg)"), "{page}");
    assert!(page.contains("## Where we lose") && page.contains("not measured: needs `--peers`"), "{page}");
    assert!(folder.path().join("benchmarks/cycle.svg").exists());
}

#[test]
fn the_lock_family_reports_every_result() {
    let Some(report) = report(&["family", "--rounds", "1"], "v1", &FAMILY) else { return };
    assert_eq!(report["permit_commands_per_handover"]["target"], "<= 1.1");
    assert_eq!(report["admit_500_readers_calls"]["max"], 1.0);
    assert_eq!(report["reentry_commands"]["max"], 0.0);
    assert_eq!(report["lock_all_8_sent"]["max"], 1.0);
}

#[test]
fn workloads_of_records_report_every_result() {
    let Some(report) = report(&["--only", "idempotency,deadlines"], "v2", &RECORDS) else { return };
    assert_eq!(report["round_trips_per_1000_marks"]["target"], "<= 1");
    assert_eq!(report["round_trips_per_1000_marks"]["max"].as_f64(), Some(1.0));
}

#[test]
fn workloads_of_several_nodes_report_every_result() {
    let Some(report) = report(&["--only", "quorum,topologies"], "v2", &NODES) else { return };
    assert_eq!(report["quorum_acquire_p50_vs_raw_votes"]["target"], "<= 1.2");
}

#[test]
fn a_quick_run_prints_tables() {
    let Some(text) = run(&["--quick", "--only", "cost"]) else { return };
    assert!(
        text.contains("commands_per_handover") && text.contains("waiters_10_commands_vs_rslock"),
        "{text}"
    );
    assert!(!text.contains("renewal_core_share"), "{text}");
}
