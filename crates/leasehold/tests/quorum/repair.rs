//! A lock that a node has lost is put back there while a majority holds, and never otherwise.

use std::time::Duration;

use leasehold::{Error, Guard, Lock};
use leasehold_testkit::{QuorumSet, eventually_async};

use crate::fixture::{LONG, client, has, held, ms, nothing_is_left, quorum};

const MAX_TTL: Duration = Duration::from_secs(240);

/// A lock that every node has: a majority decides, and the others may come later.
async fn held_on_all(set: &QuorumSet, lock: Lock) -> Guard {
    let guard = lock.acquire().await.unwrap();
    eventually_async(LONG, "all nodes to have it", || async {
        guard.extend().await.unwrap();
        set.nodes().iter().all(|node| has(node, "x"))
    })
    .await;
    guard
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_deleted_on_one_node_is_back_after_the_next_renewal() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let (leases, other) = (client(&set, MAX_TTL), client(&set, MAX_TTL));
    let guard = held_on_all(&set, leases.lock("x").ttl(ms(6000)).keep_alive()).await;
    for node in set.nodes() {
        node.cli(&["DEL", "lock:x", "leasehold:fence:{lock:x}"]);
        // Nobody renews it by hand.
        eventually_async(LONG, "the lock to be put back", || async { has(node, "x") }).await;
        assert_eq!(node.cli(&["GET", "leasehold:fence:{lock:x}"]).text(), guard.fence().to_string());
        assert!(guard.is_held());
    }
    assert!(other.lock("x").wait(ms(50)).acquire().await.is_err());
    let _ = guard.release().await.unwrap();
    nothing_is_left(&set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_deleted_on_a_majority_is_lost_and_not_put_back() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let [first, leases, other] = [(); 3].map(|()| client(&set, MAX_TTL));
    let handle = held_on_all(&set, first.lock("x")).await.detach();
    // A copy of the grant may be on its way to a node until then.
    first.close().await.unwrap();
    set.nodes()[..2].iter().for_each(|node| assert_eq!(node.cli(&["DEL", "lock:x"]).int(), 1));
    let error = handle.extend(&leases, None).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    // Whatever it still does in the background is done after that.
    leases.close().await.unwrap();
    assert!(set.nodes()[..2].iter().all(|node| !has(node, "x")), "it was put back without a majority");
    let next = held(&other, "x").await;
    assert!(next.fence() > handle.fence(), "{} after {}", next.fence(), handle.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_where_somebody_else_took_the_lock_is_left_alone() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let guard = held_on_all(&set, leases.lock("x")).await;
    let node = &set.nodes()[0];
    node.cli(&["SET", "lock:x", "another library's", "PX", "200000"]);
    guard.extend().await.unwrap();
    node.cli(&["DEL", "lock:x"]);
    // Somebody had it under a later fence.
    node.cli(&["INCR", "leasehold:fence:{lock:x}"]);
    guard.extend().await.unwrap();
    leases.close().await.unwrap();
    assert!(!has(node, "x"));
}
