//! What a demo leaves in a store that others use too: nothing, however it ends.

use std::{thread, time::Duration};

use leasehold_testkit::{ClusterSet, RedisServer};
use rusqlite::Connection;

use crate::demo_run::DemoRun;

pub(crate) const DEMOS: [(&str, &str); 5] = [
    (env!("CARGO_BIN_EXE_flash-sale"), "select count(*) from orders"),
    (env!("CARGO_BIN_EXE_escrow"), "select count(*) from history"),
    (env!("CARGO_BIN_EXE_recovery"), "select count(*) from refunds"),
    (env!("CARGO_BIN_EXE_crawler"), "select count(*) from requests"),
    (env!("CARGO_BIN_EXE_invoices"), "select count(*) from uploads"),
];

/// A store of a demo is the same after any kill, and each kill takes the time of a lock that nobody releases.
const KILLS: &str = "1";

/// Plays all demos side by side, each on a server of its own.
fn each_on_its_own_server(play: impl Fn(&str, &str, &RedisServer) + Sync) {
    if RedisServer::shared_or_skip().is_none() {
        return;
    }
    thread::scope(|scope| {
        for (demo, progress) in DEMOS {
            let play = &play;
            scope.spawn(move || play(demo, progress, &RedisServer::builder().start().unwrap()));
        }
    });
}

fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<_> =
        server.cli(&["KEYS", "*"]).list().iter().map(|key| key.text().to_owned()).collect();
    keys.sort();
    keys
}

#[test]
fn every_demo_leaves_nothing_when_it_is_interrupted() {
    each_on_its_own_server(|demo, progress, server| {
        let run = DemoRun::start(demo, &["--store", &server.url()]);
        run.until(progress, 10, u64::MAX);
        assert!(!keys(server).is_empty(), "{demo} uses this store");
        let ended = run.interrupt();
        assert_eq!(ended.code, Some(70), "{}", ended.output);
        assert_eq!(server.cli(&["DBSIZE"]).int(), 0, "{demo}: {:?}", keys(server));
    });
}

#[test]
fn every_demo_leaves_a_redis_as_it_was() {
    each_on_its_own_server(|demo, progress, server| {
        // As a shop has them that is open.
        let theirs = ["leasehold:fence", "lock:product:1", "lock:reconciliation", "processing:account-1:1-0"];
        for key in theirs {
            server.cli(&["SET", key, "7"]);
        }
        let options = ["--scale", "5", "--kills", KILLS, "--store", &server.url()];
        let run = DemoRun::start(demo, &options);
        run.until(progress, 5, u64::MAX);
        let foreign: Vec<_> = keys(server).into_iter().filter(|key| !key.contains("demo:")).collect();
        assert_eq!(foreign, theirs, "{demo}");
        run.end().held_after(KILLS);
        assert_eq!(keys(server), theirs, "{demo}");
        assert_eq!(server.cli(&["GET", "lock:product:1"]).text(), "7");
    });
}

#[test]
fn nothing_is_left_on_any_node_of_a_cluster() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let (flash_sale, _) = DEMOS[0];
    let options = ["--scale", "5", "--kills", KILLS, "--store", &set.url()];
    DemoRun::start(flash_sale, &options).end().held_after(KILLS);
    for node in set.nodes() {
        assert_eq!(node.cli(&["DBSIZE"]).int(), 0, "{:?}", keys(node));
    }
}

#[test]
fn rows_of_others_stay_in_a_lease_file_and_those_of_a_demo_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let url = format!("sqlite:{}", file.display());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let leases = runtime.block_on(leasehold::Leasehold::connect(&url)).unwrap();
    let guard = runtime.block_on(leases.lock("product:1").ttl(Duration::from_secs(300)).acquire()).unwrap();
    let options = ["--scale", "5", "--kills", KILLS, "--store", &url];
    let runs: Vec<_> = DEMOS[..3].iter().map(|(demo, _)| DemoRun::start(demo, &options)).collect();
    runs.into_iter().for_each(|run| run.end().held_after(KILLS));
    assert!(guard.is_held());
    let rows = "select group_concat(name) from
        (select name from lock union all select name from waiter union all select key from record
         union all select key from watcher union all select name from pool union all select id from deadline)";
    let rows: String = Connection::open(&file).unwrap().query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, "product:1");
}
