//! Each example as a reader runs it, on a database of its own.

use std::process::Command;

use leasehold_testkit::PostgresServer;

#[test]
fn what_each_client_writes_is_committed_in_time_and_refused_too_late() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    server.install("");
    for example in [
        env!("CARGO_BIN_EXE_with_tokio_postgres"),
        env!("CARGO_BIN_EXE_with_sqlx"),
        env!("CARGO_BIN_EXE_with_diesel"),
    ] {
        let database = server.database();
        let ran = Command::new(example).arg(server.url(&database)).output().unwrap();
        let (out, error) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{example}: {out}{error}");
        assert!(out.contains("in time: committed under fence "), "{example}: {out}");
        assert!(out.contains("too late: the lock \"account:7\" is no longer held"), "{example}: {out}");
        // Once, and not twice.
        assert_eq!(server.sql(&database, "SELECT balance FROM example_accounts"), "70", "{example}");
    }
}
