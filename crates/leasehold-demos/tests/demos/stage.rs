//! Demos on servers that they start for themselves, and kill.

use std::{os::unix::fs::PermissionsExt, process::Command, thread};

use leasehold_testkit::RedisServer;

use crate::demo_run::DemoRun;

/// What each kind shows, in the words of its acts.
const STAGES: [(&str, &str, &[&str]); 6] = [
    (env!("CARGO_BIN_EXE_flash-sale"), "sentinel", &["kill -9 the primary", "the sentinels promoted port"]),
    (
        env!("CARGO_BIN_EXE_recovery"),
        "cluster",
        &["a planned fail-over from port", "kill -9 the node on port"],
    ),
    (env!("CARGO_BIN_EXE_escrow"), "cluster", &["a planned fail-over from port"]),
    (
        env!("CARGO_BIN_EXE_escrow"),
        "postgres",
        &["end all connections to the database", "crash the database server", "it is back after"],
    ),
    (
        env!("CARGO_BIN_EXE_crawler"),
        "quorum",
        &["three of five are still a majority", "both come back empty", "all five vote again"],
    ),
    (
        env!("CARGO_BIN_EXE_crawler"),
        "etcd",
        &["kill -9 the leader", "and has every lock", "comes back", "kill -9 the member"],
    ),
];

#[test]
fn servers_are_started_killed_on_stage_and_gone_at_the_end() {
    if RedisServer::shared_or_skip().is_none() {
        return;
    }
    thread::scope(|scope| {
        for (demo, topology, acts) in STAGES {
            scope.spawn(move || play(demo, topology, acts));
        }
    });
}

fn play(demo: &str, topology: &str, acts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    // PostgreSQL runs as another user if this one is root.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(demo)
        .args(["--scale", "50", "--kills", "4", "--topology", topology])
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    for act in acts {
        assert!(said.contains(act), "{act}:\n{said}");
    }
    // Nothing is left of them, and nothing can still write there.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{topology}");
}

#[test]
fn what_cannot_be_played_is_told_at_once() {
    let recovery = env!("CARGO_BIN_EXE_recovery");
    for (options, words) in [
        (&["--topology", "sentinel"][..], "recovery is not played on sentinel: expected cluster"),
        (&["--topology", "cluster", "--store", "redis://h"], "leave --store out"),
    ] {
        let ended = DemoRun::start(recovery, options).end();
        assert_eq!(ended.code, Some(64), "{}", ended.output);
        assert!(ended.output.contains(words), "{}", ended.output);
    }
}

#[test]
fn a_machine_without_redis_server_is_told_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_crawler"))
        .args(["--topology", "quorum"])
        .env("PATH", empty.path())
        .env_remove("LEASEHOLD_SERVERS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(70), "{said}");
    assert!(said.contains("no `redis-server` on the PATH: install"), "{said}");
}
