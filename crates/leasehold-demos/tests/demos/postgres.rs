//! Demos on a PostgreSQL, which keeps the money of `escrow` as well.

use std::{thread, time::Duration};

use leasehold::{Leasehold, engine::postgres};
use leasehold_testkit::{PostgresServer, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::{demo_run::DemoRun, leftovers::DEMOS};

const ESCROW: &str = env!("CARGO_BIN_EXE_escrow");
const INVOICES: &str = env!("CARGO_BIN_EXE_invoices");
const LONG: Duration = Duration::from_secs(120);

/// All names that are in the store.
const NAMES: &str = "SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM (
    SELECT name FROM leasehold.locks UNION ALL SELECT name FROM leasehold.holders
    UNION ALL SELECT name FROM leasehold.waiters UNION ALL SELECT key FROM leasehold.records
    UNION ALL SELECT key FROM leasehold.watchers UNION ALL SELECT name FROM leasehold.pools
    UNION ALL SELECT id FROM leasehold.deadlines UNION ALL SELECT id FROM leasehold.dead) AS all_names";
/// The schemas of demos.
const SCHEMAS: &str =
    "SELECT coalesce(string_agg(nspname, ' '), '') FROM pg_namespace WHERE nspname LIKE 'demo%'";

/// A server whose databases have the schema leasehold.
fn server() -> Option<PostgresServer> {
    let server = PostgresServer::start_or_skip()?;
    server.install(&postgres::script());
    Some(server)
}

#[test]
fn every_demo_leaves_a_database_as_it_was() {
    let Some(server) = server() else { return };
    let server = &server;
    thread::scope(|scope| {
        for (demo, _) in DEMOS {
            scope.spawn(move || {
                let database = server.database();
                let url = server.url(&database);
                let runtime = tokio::runtime::Runtime::new().unwrap();
                // As a shop has one that is open.
                let leases = runtime.block_on(Leasehold::connect(&url)).unwrap();
                let theirs = leases.lock("lock:product:1").ttl(Duration::from_secs(300));
                let guard = runtime.block_on(theirs.acquire()).unwrap();
                let options = ["--scale", "5", "--kills", "1", "--store", &url];
                let ended = DemoRun::start_unkept(demo, &options).end();
                ended.held_after("1");
                // The proxy that makes a store unreachable also stands before this one.
                assert_eq!(ended.output.contains("the store is back"), demo == INVOICES, "{}", ended.output);
                assert_eq!(server.sql(&database, NAMES), "lock:product:1", "{demo}");
                assert_eq!(server.sql(&database, SCHEMAS), "", "{demo}");
                assert!(guard.is_held());
            });
        }
    });
}

#[test]
fn every_demo_leaves_nothing_in_a_database_when_it_is_interrupted() {
    let Some(server) = server() else { return };
    let server = &server;
    thread::scope(|scope| {
        for (demo, _) in DEMOS {
            scope.spawn(move || {
                let database = server.database();
                let run = DemoRun::start_unkept(demo, &["--store", &server.url(&database)]);
                eventually(LONG, demo, || server.sql(&database, NAMES).split(' ').count() >= 3);
                assert_eq!(server.sql(&database, SCHEMAS).is_empty(), demo != ESCROW);
                let ended = run.interrupt();
                assert_eq!(ended.code, Some(70), "{}", ended.output);
                assert_eq!(server.sql(&database, NAMES), "", "{demo}");
                assert_eq!(server.sql(&database, SCHEMAS), "", "{demo}");
            });
        }
    });
}

#[test]
fn money_and_locks_in_one_database_are_right_after_its_connections_are_ended() {
    let Some(server) = server() else { return };
    let database = server.database();
    let run = DemoRun::start(ESCROW, &["--scale", "20", "--store", &server.url(&database)]);
    eventually(LONG, "the tables", || !server.sql(&database, SCHEMAS).is_empty());
    let schema = server.sql(&database, SCHEMAS);
    let paid = |least: u64| {
        let sql = format!("SELECT count(*) FROM {schema}.entries");
        eventually(LONG, &sql, || server.sql(&database, &sql).parse::<u64>().unwrap() >= least);
    };
    for least in [5, 20] {
        paid(least);
        server.terminate_backends(&database);
    }
    let ended = run.end();
    ended.held();
    assert!(ended.output.contains(&format!("in the schema {schema}, which stays")), "{}", ended.output);
    // Forty deals, each with a deposit and a payout or refund.
    paid(80);
}

/// Instances are paused in the middle of payments, until nothing of theirs is locked any more. When they go on they write what
/// they had in mind, and only the check within the transaction refuses that.
#[test]
fn a_payment_whose_locks_ran_out_in_a_pause_is_refused_at_the_commit() {
    let Some(server) = server() else { return };
    let database = server.database();
    let run = DemoRun::start(ESCROW, &["--kills", "0", "--store", &server.url(&database)]);
    let locks = "FROM leasehold.locks WHERE id IS NOT NULL AND ends > leasehold.now_us()";
    let payer = format!("SELECT split_part(holder, ' ', 2) {locks} AND name LIKE '%:balance:%' LIMIT 1");
    let is_refused = || server.log().contains("is no longer held under fence");
    let mut paused = 0;
    while !is_refused() {
        let mut pid = None;
        eventually(LONG, "a payment", || {
            pid = server.sql(&database, &payer).parse().ok().and_then(Pid::from_raw);
            pid.is_some()
        });
        let pid = pid.unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let its =
            format!("SELECT count(*) {locks} AND split_part(holder, ' ', 2) = '{}'", pid.as_raw_nonzero());
        eventually(LONG, "its leases to end", || server.sql(&database, &its) == "0");
        kill_process(pid, Signal::CONT).unwrap();
        paused += 1;
        assert!(paused < 20, "nothing was refused");
    }
    run.end().held_after("0");
}

#[test]
fn without_coordination_money_is_paid_twice_in_a_database_too() {
    let Some(server) = server() else { return };
    let store = server.url(&server.database());
    let ended = DemoRun::start(ESCROW, &["--scale", "20", "--unsafe", "--store", &store]).end();
    ended.broke("deals with a deposit, payout or refund too many");
}

#[test]
fn a_database_without_the_schema_is_told_how_to_get_it() {
    let Some(server) = PostgresServer::start_or_skip() else { return };
    let ended = DemoRun::start(ESCROW, &["--store", &server.url("postgres")]).end();
    assert_eq!(ended.code, Some(70), "{}", ended.output);
    assert!(ended.output.contains("leasehold migrate --store"), "{}", ended.output);
    assert_eq!(server.sql("postgres", SCHEMAS), "");
}
