//! The rights that a client of a cluster needs.
#![cfg(feature = "redis")]

mod security_md;

use std::time::Duration;

use leasehold::{Leasehold, engine::Released};
use leasehold_testkit::{ClusterSet, eventually_async};

const LONG: Duration = Duration::from_secs(60);

/// Waits, hands over, moves the slot in the middle of it, lists.
async fn use_everything(set: &ClusterSet) {
    let url = set.url().replace("redis-cluster://", "redis-cluster://leasehold:pw@");
    let leases = Leasehold::builder(url).command_timeout(Duration::from_secs(5)).connect().await.unwrap();
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let name = set.name_on(from, "deal");
    let (key, slot) = (format!("lock:{name}"), ClusterSet::slot(&format!("lock:{name}")));
    let guard = leases.lock(&name).ttl(Duration::from_secs(2)).keep_alive().acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { leases.inspect(&name).await.unwrap().waiting == 1 }).await;
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let guard = waiter.await.unwrap().unwrap();
    let gives_up = tokio::spawn(leases.lock(&name).wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { leases.inspect(&name).await.unwrap().waiting == 1 }).await;
    set.begin_move(slot, from, to);
    set.migrate_keys(from, to, &[&key]);
    gives_up.abort();
    // Who looks at it would wait for its keys.
    let queue = format!("leasehold:waiters:{{{key}}}");
    let is_empty = || async { from.cli(&["ZCARD", &queue]).error().is_some() };
    eventually_async(LONG, "an empty queue", is_empty).await;
    guard.extend().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    set.migrate_slot(slot, from, to);
    set.end_move(slot, to);
    let _held = leases.lock(&name).acquire().await.unwrap();
    assert!(leases.list_page("", None, 10).await.is_ok());
}

#[tokio::test]
async fn the_documented_rights_suffice_for_everything_and_nothing_is_tried_in_vain() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let line = security_md::locks();
    let more = security_md::line("acl: cluster");
    for node in set.nodes() {
        let words = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1)).chain(more.split(' '));
        assert_eq!(node.cli(&words.collect::<Vec<_>>()).error(), None);
    }
    use_everything(&set).await;
    for node in set.nodes() {
        let denied = node.cli(&["ACL", "LOG"]);
        assert!(denied.list().is_empty(), "{denied:?}");
    }
}

#[tokio::test]
async fn a_user_who_may_not_read_the_map_is_told_so() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let line = security_md::locks();
    for node in set.nodes() {
        let words: Vec<_> = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1)).collect();
        assert_eq!(node.cli(&words).error(), None);
    }
    let url = set.url().replace("redis-cluster://", "redis-cluster://leasehold:pw@");
    let error = Leasehold::connect(url).await.unwrap_err();
    assert!(error.to_string().contains("cluster|slots"), "{error}");
}
