//! A lock that somebody else takes away is lost at once, also after its server has changed.
//!
//! Leases here are renewed every 100 seconds unless something happens: a loss that is noticed sooner was reported.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::{Guard, Leasehold};
use leasehold_testkit::{ClusterSet, RedisServer, SentinelSet, eventually_async};

const TTL: Duration = Duration::from_secs(300);
/// Well before the next renewal.
const SOON: Duration = Duration::from_secs(60);

/// Waits until a server watches a lock.
async fn is_watched_by(server: &RedisServer) {
    let is_watched = || async { server.info("tracking_total_keys").as_deref() == Some("1") };
    eventually_async(SOON, "a watched lock", is_watched).await;
}

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(Duration::from_secs(10)).connect().await.unwrap()
}

async fn kept(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).ttl(TTL).keep_alive().acquire().await.unwrap()
}

async fn is_lost_when_deleted(server: &RedisServer, guard: &Guard) {
    assert!(guard.is_held());
    assert_eq!(server.cli(&["DEL", &format!("lock:{}", guard.name())]).int(), 1);
    assert!(guard.lost_within(SOON).await);
}

#[tokio::test]
async fn each_shard_reports_its_own_locks() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let leases = client(set.url()).await;
    for primary in set.primaries() {
        let guard = kept(&leases, &set.name_on(primary, "x")).await;
        is_watched_by(primary).await;
        is_lost_when_deleted(primary, &guard).await;
    }
}

#[tokio::test]
async fn a_lock_is_watched_where_its_slot_has_moved_to() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let (leases, name) = (client(set.url()).await, set.name_on(from, "x"));
    let guard = kept(&leases, &name).await;
    is_watched_by(from).await;
    let (key, renewed) = (format!("lock:{name}"), leases.stats().renewed);
    let slot = ClusterSet::slot(&key);
    // The old node reports that the lock has left it. The new one, which does not have the slot yet, watches nothing.
    set.begin_move(slot, from, to);
    set.migrate_keys(from, to, &[&key]);
    eventually_async(SOON, "a renewal", || async { leases.stats().renewed > renewed }).await;
    assert_eq!(to.info("tracking_total_keys").as_deref(), Some("0"));
    set.end_move(slot, to);
    is_watched_by(to).await;
    is_lost_when_deleted(to, &guard).await;
}

#[tokio::test]
async fn a_lock_is_watched_by_the_new_primary_after_a_failover() {
    let Some(set) = SentinelSet::builder().start_or_skip() else { return };
    let leases = client(set.url()).await;
    let guard = kept(&leases, "x").await;
    is_watched_by(set.primary()).await;
    let primary = set.failover();
    is_watched_by(primary).await;
    is_lost_when_deleted(primary, &guard).await;
}

#[tokio::test]
async fn in_a_grace_a_lock_that_somebody_deletes_is_put_back_at_once() {
    let Some(set) = SentinelSet::builder().start_or_skip() else { return };
    let (leases, primary) = (client(format!("{}?grace=on", set.url())).await, set.primary());
    // The first use of a server begins one.
    primary.cli(&["DEL", "leasehold:grace"]);
    let guard = kept(&leases, "x").await;
    is_watched_by(primary).await;
    primary.cli(&["SET", "leasehold:grace", "1", "PX", "600000"]);
    primary.cli(&["DEL", "lock:x"]);
    eventually_async(SOON, "the lock", || async { primary.cli(&["EXISTS", "lock:x"]).int() == 1 }).await;
    primary.cli(&["DEL", "leasehold:grace"]);
    is_lost_when_deleted(primary, &guard).await;
}
