//! A cluster some of whose slots have no primary yet.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::{Error, Leasehold};
use leasehold_testkit::{ClusterSet, RedisServer, eventually_async};

const LONG: Duration = Duration::from_secs(60);

/// The first and last slot of a primary that has one range of them.
fn range(node: &RedisServer) -> (String, String) {
    let nodes = node.cli(&["CLUSTER", "NODES"]).text().to_owned();
    let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
    let (first, last) = own.rsplit_once(' ').unwrap().1.split_once('-').unwrap();
    (first.to_owned(), last.to_owned())
}

/// How many primaries a node names as owners of slots.
fn owners(node: &RedisServer) -> usize {
    node.cli(&["CLUSTER", "SLOTS"]).list().len()
}

/// Takes the slots of a primary away, on every node: nobody has them.
fn take_slots(set: &ClusterSet, of: &RedisServer) -> (String, String) {
    let (first, last) = range(of);
    for node in set.nodes() {
        let reply = node.cli(&["CLUSTER", "DELSLOTSRANGE", &first, &last]);
        assert!(reply.error().is_none(), "{reply:?}");
    }
    (first, last)
}

async fn give_slots(set: &ClusterSet, to: &RedisServer, (first, last): &(String, String)) {
    assert!(to.cli(&["CLUSTER", "ADDSLOTSRANGE", first, last]).error().is_none());
    let all_know = || set.nodes().iter().all(|node| owners(node) == 3);
    eventually_async(LONG, "nodes that know of the slots", || async { all_know() }).await;
}

fn lazy(set: &ClusterSet) -> Leasehold {
    Leasehold::builder(set.url()).command_timeout(Duration::from_secs(2)).connect_lazy().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_connects_while_the_cluster_forms_finds_every_name_once_it_has_formed() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let [first, _, third] = set.primaries()[..] else { panic!("three primaries") };
    let (there, missing) = (set.name_on(first, "x"), set.name_on(third, "x"));
    let slots = take_slots(&set, third);
    let leases = lazy(&set);
    let _ = leases.lock(&there).acquire().await.unwrap().release().await.unwrap();
    let error = leases.lock(&missing).try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::StoreUnreachable { .. }), "{error}");
    give_slots(&set, third, &slots).await;
    // The first try finds it: the map is read again before a slot counts as missing.
    eventually_async(LONG, "the map to be read again", || async {
        leases.lock(&missing).try_acquire().await.is_ok()
    })
    .await;
}
