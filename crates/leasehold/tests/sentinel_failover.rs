//! Another server becomes the primary: by a crash, by plan, with the old one still at work, or without what it granted
//! last.
#![cfg(feature = "redis")]

mod story;

use std::time::Duration;

use leasehold::{Attempt, Error, Fence, Guard, Leasehold};
use leasehold_testkit::{
    RedisServer, SentinelSet, SentinelSetBuilder, eventually_async,
    history::Violation,
    load::{self, Load},
};
use story::Story;

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn set() -> SentinelSetBuilder {
    SentinelSet::builder().down_after(ms(1500))
}

async fn client(set: &SentinelSet) -> Leasehold {
    Leasehold::builder(set.url()).command_timeout(ms(2000)).connect().await.unwrap()
}

async fn held(leases: &Leasehold, name: &str, ttl: Duration) -> Guard {
    leases.lock(name).ttl(ttl).keep_alive().wait(LONG).acquire().await.unwrap()
}

/// Connections of lock clients to a server.
fn clients_of(server: &RedisServer) -> usize {
    let list = server.cli(&["CLIENT", "LIST"]).text().to_owned();
    list.lines().filter(|line| line.contains("name=leasehold ")).count()
}

/// Waits until every replica has what the primary has.
async fn replicated(set: &SentinelSet) {
    let replicas = set.replicas().len().to_string();
    eventually_async(LONG, "the replicas", || async {
        set.primary().cli(&["WAIT", &replicas, "100"]).int() as usize == set.replicas().len()
    })
    .await;
}

/// What a fail-over may cost where nobody waits for replicas: a grant that was not copied, so that two hold at once.
/// Fences tell them apart.
fn follows_lost_lease(violation: &Violation) -> bool {
    violation.lost_lease_at().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_outlive_the_primary_they_waited_on() {
    let Some(set) = set().start_or_skip() else { return };
    let clients = [client(&set).await, client(&set).await];
    let guard = held(&clients[0], "x", ms(30_000)).await;
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..20 {
        let lock = clients[number % 2].lock("x").ttl(ms(30_000)).wait(LONG * 3);
        waiters.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let fence = guard.fence();
            assert!(guard.is_held());
            let _ = guard.release().await.unwrap();
            fence
        });
    }
    let all_wait = || async { matches!(clients[0].inspect("x").await, Ok(found) if found.waiting == 20) };
    eventually_async(LONG, "all to wait", all_wait).await;
    replicated(&set).await;

    let old = set.primary();
    old.kill();
    set.await_primary_other_than(old.port());
    eventually_async(LONG, "all to wait again", all_wait).await;
    assert!(guard.is_held(), "the lock was copied, so it was not lost");
    let mut fences: Vec<Fence> = vec![guard.fence()];
    let _ = guard.release().await.unwrap();
    while let Some(fence) = waiters.join_next().await {
        fences.push(fence.unwrap());
    }
    // Each took it once: in whatever order the tasks ended, no fence came twice or before the first.
    let first = fences[0];
    fences.sort_unstable();
    fences.dedup();
    assert_eq!((fences.len(), fences[0]), (21, first));
    assert_eq!(clients.each_ref().map(|client| client.stats().timed_out), [0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_under_load_costs_no_fence() {
    let Some(set) = set().start_or_skip() else { return };
    let clients = [client(&set).await, client(&set).await];
    let story = Story::begin(Load::default(), &clients);
    let grants = load::grants(1500) / 3;
    story.goes_on(grants).await;
    let old = set.primary();
    old.kill();
    set.await_primary_other_than(old.port());
    story.goes_on(grants).await;
    // It comes back as a replica, and may be promoted again.
    old.restart_with_data();
    set.await_healthy();
    story.goes_on(grants).await;
    story.end(follows_lost_lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_fail_over_loses_none_of_fifty_locks() {
    let Some(set) = set().start_or_skip() else { return };
    let clients = [client(&set).await, client(&set).await];
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(held(&clients[number % 2], &format!("kept-{number}"), ms(15_000)).await);
    }
    replicated(&set).await;
    let story = Story::begin(Load::default(), &clients);
    let grants = load::grants(1000) / 2;
    story.goes_on(grants).await;
    set.failover();
    story.goes_on(grants).await;
    for guard in &guards {
        assert!(guard.is_held(), "{} was lost", guard.name());
        guard.extend().await.unwrap();
    }
    story.end(follows_lost_lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_primary_that_still_takes_writes_is_left() {
    let Some(set) = set().start_or_skip() else { return };
    let clients = [client(&set).await, client(&set).await];
    let story = Story::begin(Load::default(), &clients);
    story.goes_on(200).await;
    // Nobody can make a replica of it any more.
    let old = set.primary();
    old.cli(&["ACL", "SETUSER", "default", "-replicaof", "-slaveof"]);
    let idle = client(&set).await;
    let new = set.failover();
    // Also by one that sends nothing.
    eventually_async(LONG, "all to leave", || async { clients_of(old) == 0 }).await;
    assert_eq!(old.info("role").as_deref(), Some("master"));
    assert_eq!(old.cli(&["SET", "still", "writable"]).text(), "OK");
    story.goes_on(load::grants(1000)).await;
    let guard = held(&idle, "x", ms(30_000)).await;
    assert_eq!((old.cli(&["EXISTS", "lock:x"]).int(), new.cli(&["EXISTS", "lock:x"]).int()), (0, 1));
    let _ = guard.release().await.unwrap();
    story.end(follows_lost_lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_hung_and_comes_back_is_not_followed() {
    let Some(set) = set().start_or_skip() else { return };
    let clients = [client(&set).await, client(&set).await];
    let story = Story::begin(Load::default(), &clients);
    story.goes_on(200).await;
    let old = set.primary();
    old.stop();
    let new = set.await_primary_other_than(old.port());
    eventually_async(LONG, "all to move", || async { clients_of(new) == 2 }).await;
    // For a moment there are two primaries.
    old.cont();
    story.goes_on(load::grants(1000)).await;
    let guard = held(&clients[0], "x", ms(30_000)).await;
    assert_eq!(set.primary().cli(&["EXISTS", "lock:x"]).int(), 1);
    let _ = guard.release().await.unwrap();
    story.end(follows_lost_lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_was_not_copied_is_lost_and_its_fence_is_not_given_again() {
    let Some(set) = set().start_or_skip() else { return };
    let leases = client(&set).await;
    let _ = held(&leases, "x", ms(30_000)).await.release().await.unwrap();
    replicated(&set).await;
    let (old, replicas) = (set.primary(), set.replicas());
    replicas.iter().for_each(|replica| replica.stop());
    old.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = held(&leases, "x", ms(30_000)).await;
    old.kill();
    replicas.iter().for_each(|replica| replica.cont());
    let new = set.await_primary_other_than(old.port());
    // Scripts that the new primary never saw, either.
    new.cli(&["SCRIPT", "FLUSH"]);
    let next = held(&leases, "x", ms(30_000)).await;
    assert!(next.fence() > guard.fence(), "{} after {}", next.fence(), guard.fence());
    tokio::time::timeout(LONG, guard.lost()).await.expect("the holder is told");
    assert!(next.is_held() && !guard.is_held());
    let _ = next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_became_a_replica_is_left_at_its_first_refusal() {
    // The sentinels notice nothing, so only the server's own words can tell.
    let Some(set) = SentinelSet::builder().down_after(LONG * 10).start_or_skip() else { return };
    let leases = client(&set).await;
    let guard = held(&leases, "x", ms(60_000)).await;
    let waiter = tokio::spawn(leases.lock("x").ttl(ms(1000)).wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { leases.inspect("x").await.unwrap().waiting == 1 }).await;
    let primary = set.primary();
    // Connections stay open, and what is read is old.
    primary.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    eventually_async(LONG, "the refusal", || async { leases.stats().disconnected > 0 }).await;
    eventually_async(LONG, "the reason", || async {
        match leases.lock("y").try_acquire().await {
            Err(Error::StoreUnreachable { source, .. }) => source.why.contains("is no primary"),
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(primary.cli(&["EXISTS", "lock:y"]).int(), 0);
    primary.cli(&["REPLICAOF", "NO", "ONE"]);
    eventually_async(LONG, "the client to come back", || async {
        matches!(leases.lock("y").try_acquire().await, Ok(Attempt::Held(_)))
    })
    .await;
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}
