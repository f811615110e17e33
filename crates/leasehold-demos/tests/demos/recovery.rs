//! The demo `recovery`, as a user starts it, and what its scans cost.

use std::{io::Write, time::Duration};

use leasehold::{Deadline, Due, Leasehold, deadlines::Scans};
use leasehold_testkit::{ClusterSet, RedisServer, eventually_async, redis_or_skip};

use crate::demo_run::{DemoRun, Ended};

const RECOVERY: &str = env!("CARGO_BIN_EXE_recovery");
const LONG: Duration = Duration::from_secs(60);

/// The reported costs of scans: shared, skipped, and won. In whole round trips: the
/// first refusal of a lock takes one more, because a lone claim tries the ordinary case first.
#[track_caller]
fn costs(ended: &Ended) -> Vec<u32> {
    let lines = ended.output.lines().filter(|line| line.contains("round trips of a scan"));
    let figures = lines.filter_map(|line| line.split_whitespace().next_back()?.parse::<f64>().ok());
    figures.map(|trips| trips.round() as u32).collect()
}

#[test]
fn everything_late_is_refunded_once_although_pods_are_killed() {
    let ended = DemoRun::start(RECOVERY, &["--scale", "20"]).end();
    ended.held();
    assert_eq!(costs(&ended), [1, 1, 3], "{}", ended.output);
}

#[test]
fn pods_that_all_claim_refund_everything_once_too() {
    DemoRun::start(RECOVERY, &["--scale", "20", "--variant", "shared"]).end().held();
}

#[test]
fn a_store_that_is_in_use_keeps_its_own_transactions() {
    let Some(server) = RedisServer::builder().start_or_skip() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let leases = runtime.block_on(Leasehold::connect(server.url())).unwrap();
    let theirs = leases.deadlines("transactions");
    runtime.block_on(theirs.set("tx:1", Duration::ZERO)).unwrap();
    let ended = DemoRun::start(RECOVERY, &["--scale", "20", "--store", &server.url()]).end();
    ended.held();
    assert_eq!(costs(&ended), [1, 1, 3], "{}", ended.output);
    let stats = runtime.block_on(theirs.stats()).unwrap();
    assert_eq!((stats.pending, stats.due, stats.tried, stats.dead), (1, 1, 0, 0));
}

#[test]
fn without_claims_transactions_are_refunded_twice() {
    const TWICE: &str = "transactions refunded more than once";
    // Pods meet at every transaction, and most runs have some that both refund.
    let mut runs = (0..5).map(|_| {
        let ended = DemoRun::start(RECOVERY, &["--scale", "20", "--unsafe"]).end();
        ended.broke("attempts while another had the same transaction");
        ended
    });
    let ended = runs.find(|ended| ended.is_broken(TWICE)).expect("a run that refunds twice");
    assert!(costs(&ended).is_empty(), "{}", ended.output);
}

/// A planned fail-over loses nothing; a forced one loses writes that were not replicated, claims included.
#[test]
fn pods_bear_that_a_primary_of_the_cluster_is_replaced_and_killed() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let run = DemoRun::start(RECOVERY, &["--scale", "40", "--store", &set.url()]);
    let ended = "select count(*) from transactions where state <> 'open'";
    let transactions = 2_000;
    run.until(ended, 100, transactions / 2);
    let primary = set.primaries()[0];
    set.failover_of(primary);
    primary.kill();
    run.until(ended, 100, transactions - 1);
    run.end().held();
}

/// Scripts that the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).text().to_owned();
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        name.starts_with("eval").then_some(rest.split(',').next()?.parse::<u64>().ok()?)
    });
    calls.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_of_sixteen_buckets_with_contexts_is_one_round_trip() {
    let Some(server) = redis_or_skip() else { return };
    let leases = Leasehold::connect(server.url()).await.unwrap();
    let pool = leases.deadlines("transactions");
    let late: Vec<_> =
        (0..200).map(|n| Deadline::new(format!("tx:{n}"), Duration::ZERO).context("x")).collect();
    pool.set_many(&late).await.unwrap();
    // The server has the script from here on.
    assert!(leases.deadlines("another").claim().limit(1).visibility(LONG).await.unwrap().due.is_empty());
    let before = scripts(&server);
    let claimed = pool.claim().limit(100).visibility(LONG).await.unwrap();
    assert_eq!(scripts(&server) - before, 1, "finding, reading contexts and hiding is one call");
    assert_eq!(claimed.due.len(), 200);
    assert!(claimed.due.iter().all(|due| due.context().is_some()));

    for scans in [Scans::Shared, Scans::SingleWinner] {
        let (scripts_before, before) = (scripts(&server), leases.stats());
        let asked_before = leases.round_trips().unwrap();
        let handler = async |_: Due| Result::<(), String>::Ok(());
        let recovery = pool.recover(handler).every(Duration::from_millis(20)).scans(scans).await.unwrap();
        let enough = || async { leases.stats().recovery_scans >= before.recovery_scans + 30 };
        eventually_async(LONG, "thirty scans", enough).await;
        assert!(recovery.stop().await);
        let (scripts, after) = (scripts(&server) - scripts_before, leases.stats());
        let scanned = after.recovery_scans - before.recovery_scans;
        // The lock of the last scan may still be held when the next one starts: one call, and no scan.
        let skipped = after.recovery_skipped - before.recovery_skipped;
        let said = format!("{scans:?}: {scripts} round trips for {scanned} scans, {skipped} skipped");
        writeln!(std::io::stdout(), "{said}").unwrap();
        // One winner takes the lock before and gives it back after.
        let each = if scans == Scans::Shared { 1 } else { 3 };
        // A skip after a scan takes two, because a lone claim tries the ordinary case first. And one for each script of a
        // lock, which must be sent when it is first used.
        assert!(scripts <= each * scanned + 2 * skipped + 4, "{said}");
        // The client counts what the server counts, but for refusals of scripts that it did not know.
        let asked = leases.round_trips().unwrap() - asked_before;
        assert!((scripts..=scripts + 3).contains(&asked), "{said}, and {asked} by the client");
    }
}
