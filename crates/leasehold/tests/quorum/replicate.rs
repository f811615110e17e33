//! A grant soon lies on all nodes, so that one of them may hang.

use std::time::Duration;

use leasehold::{Error, Guard, Leasehold};
use leasehold_testkit::{QuorumSet, eventually_async};

use crate::fixture::{LONG, client, has, ms, quorum};

/// So long that nothing ends by itself within a test.
const MAX_TTL: Duration = Duration::from_secs(240);

/// The first grant of a client that knew nothing before, once all nodes have it. Nobody renews it.
async fn first_grant(set: &QuorumSet, name: &str) -> (Leasehold, Guard) {
    let leases = client(set, MAX_TTL);
    let guard = leases.lock(name).without_keep_alive().wait(LONG).acquire().await.unwrap();
    eventually_async(LONG, "all nodes to have it", || async {
        set.nodes().iter().all(|node| has(node, name))
    })
    .await;
    (leases, guard)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_grant_of_a_client_comes_to_all_nodes() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    for number in 0..20 {
        let (_leases, guard) = first_grant(&set, &format!("first-{number}")).await;
        let _ = guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_missed_the_grant_gets_it_and_one_that_has_a_later_fence_does_not() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let _ = leases.lock("warm up").acquire().await.unwrap().release().await.unwrap();
    // Somebody's vote is there, who gives it back.
    // After the last fence there is, a late vote cannot come either.
    for (name, fence, comes) in [("x", "1", true), ("y", "9007199254740991", false)] {
        let (lock, last) = (format!("lock:{name}"), format!("leasehold:fence:{{lock:{name}}}"));
        let node = &set.nodes()[2];
        node.cli(&["SET", &lock, "somebody's vote", "PX", "200000"]);
        let guard = leases.lock(name).without_keep_alive().acquire().await.unwrap();
        node.cli(&["SET", &last, fence]);
        node.cli(&["DEL", &lock]);
        if comes {
            eventually_async(LONG, "the node to have it", || async { has(node, name) }).await;
            assert_eq!(node.cli(&["GET", &last]).text(), guard.fence().to_string());
        }
        assert_eq!(has(node, name), comes, "{name}");
        // A majority answers the release, perhaps without this node.
        let _ = guard.release().await.unwrap();
        eventually_async(LONG, "its end on the node", || async { !has(node, name) }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stands_still_after_the_first_grant_does_not_cost_the_lock() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    for node in set.nodes() {
        let leases = client(&set, MAX_TTL);
        // So long that a busy machine renews it in time, and short enough to need renewals.
        let lock = leases.lock("x").ttl(ms(8000)).keep_alive().wait(LONG);
        let guard = lock.acquire().await.unwrap();
        eventually_async(LONG, "all nodes to have it", || async {
            set.nodes().iter().all(|node| has(node, "x"))
        })
        .await;
        node.stop();
        tokio::time::sleep(ms(16_000)).await;
        assert!(guard.is_held(), "lost with {}: {:?}", node.addr(), leases.stats());
        node.cont();
        let _ = guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_one_node_does_not_answer_is_never_taken_for_an_end_of_the_lease() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let (leases, guard) = first_grant(&set, "x").await;
    // A bare majority has it, of which one does not answer.
    assert_eq!(set.nodes()[2].cli(&["DEL", "lock:x"]).int(), 1);
    set.nodes()[1].stop();
    assert!(guard.is_held());
    let outcome = guard.release().await;
    set.nodes()[1].cont();
    assert!(matches!(outcome, Err(Error::StoreUnreachable { .. })), "{outcome:?}");
    drop(leases);
}
