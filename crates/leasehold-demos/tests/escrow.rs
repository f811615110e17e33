//! The demo `escrow`, small: on its embedded default, without coordination, and on Redis.

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use leasehold_testkit::{eventually, redis_or_skip};
use rusqlite::{Connection, OpenFlags};

fn escrow(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_escrow"));
    command.args(options);
    command
}

#[track_caller]
fn assert_ended(output: &Output, code: i32, said: &str) {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(said), "{text}");
}

#[test]
fn money_is_paid_once_although_instances_are_killed() {
    let output = escrow(&["--scale", "15"]).output().unwrap();
    assert_ended(&output, 0, "the invariant held");
    assert_ended(&output, 0, "12 workers killed with -9");
}

#[test]
fn without_coordination_money_is_paid_twice() {
    let output = escrow(&["--scale", "20", "--unsafe"]).output().unwrap();
    assert_ended(&output, 1, "✗ deals with a deposit, a payout or a refund too many");
}

#[test]
fn money_is_paid_once_on_redis_although_it_is_killed_and_forgets_everything() {
    let Some(server) = redis_or_skip() else { return };
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().join("run");
    let mut command = escrow(&["--scale", "20", "--store", &server.url(), "--keep"]);
    let demo = command.arg(&keep).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let demo = demo.spawn().unwrap();
    let file = keep.join("app.db");
    eventually(Duration::from_secs(90), "some deals have ended", || {
        ended(&file).is_some_and(|ended| ended > 5)
    });
    server.restart();
    assert_ended(&demo.wait_with_output().unwrap(), 0, "the invariant held");
}

/// How many deals have ended; none while there is no table yet.
fn ended(file: &Path) -> Option<u64> {
    let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    database.query_row("select count(*) from ended", [], |row| row.get(0)).ok()
}
