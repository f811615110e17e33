//! `leasehold migrate`, and the commands on a database.

use leasehold_testkit::PostgresServer;

use crate::sandbox::Sandbox;

#[test]
fn a_database_is_migrated_once_and_then_has_locks() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    server.sql("postgres", "CREATE DATABASE app");
    let sandbox = Sandbox::on(server.url("app"));
    let says = |args: &[&str], code: i32, words: &str| {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(code), "{ran}");
        assert!(ran.to_string().contains(words), "{ran}");
    };

    says(&["run", "x", "--", "true"], 77, "leasehold migrate --store URL");
    says(&["migrate", "--check"], 1, "the database has no schema leasehold");
    says(&["migrate"], 0, "installed the schema leasehold");
    says(&["migrate"], 0, "the schema leasehold is up to date: version 2");
    says(
        &["migrate", "--check", "--json"],
        0,
        r#""found":{"state":"current","version":2},"installed":false"#,
    );
    says(&["run", "x", "--", "true"], 0, "");
    says(&["doctor"], 1, "fsync-off");
    says(&["latch", "run", "x", "--of", "1", "--", "true"], 0, "");
    says(&["latch", "wait", "x", "--of", "1"], 0, "");

    // What is printed installs the same.
    server.sql("postgres", "CREATE DATABASE by_hand");
    let ran = sandbox.run(&["migrate", "--print"]);
    server.sql("by_hand", &ran.stdout);
    says(&["migrate", "--check", "--store", &server.url("by_hand")], 0, "up to date");
}

#[test]
fn a_store_without_a_schema_needs_no_migration() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["migrate"]);
    assert_eq!(ran.code, Some(70), "{ran}");
    assert!(ran.to_string().contains("only a database needs one"), "{ran}");
}
