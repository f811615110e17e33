//! Readers and writers on nodes that lose what they had.

use std::time::Duration;

use leasehold::{ErrorKind, Mode};
use leasehold_testkit::{RedisServer, eventually_async};

use crate::fixture::{LONG, all_vote, client, ms, nothing_is_left, quorum};

const MAX_TTL: Duration = Duration::from_secs(240);

/// How many readers a node has.
fn readers(node: &RedisServer) -> i64 {
    let [lock, ends] = ["lock:x", "leasehold:ends:{lock:x}"];
    if node.cli(&["GET", lock]).is_nil() { 0 } else { node.cli(&["ZCARD", ends]).int() }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_deleted_on_one_node_are_back_after_their_next_renewals() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let (leases, other) = (client(&set, MAX_TTL), client(&set, MAX_TTL));
    let first = leases.read_lock("x").ttl(ms(6000)).keep_alive().acquire().await.unwrap();
    let second = other.read_lock("x").ttl(ms(6000)).keep_alive().acquire().await.unwrap();
    for node in set.nodes() {
        eventually_async(LONG, "both to be there", || async { readers(node) == 2 }).await;
        node.cli(&["DEL", "lock:x", "leasehold:fence:{lock:x}"]);
        eventually_async(LONG, "both to be put back", || async { readers(node) == 2 }).await;
    }
    assert!(first.is_held() && second.is_held());
    assert!(other.write_lock("x").try_acquire().await.unwrap().held().is_none());
    assert!(first.release().await.unwrap().was_held() && second.release().await.unwrap().was_held());
    nothing_is_left(&set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_forgot_lets_no_writer_in_beside_readers() {
    let max_ttl = ms(3000);
    let Some(set) = quorum(3, max_ttl).await else { return };
    let (leases, other) = (client(&set, max_ttl), client(&set, max_ttl));
    let reader = leases.read_lock("x").keep_alive().acquire().await.unwrap();
    for node in set.nodes() {
        node.cli(&["FLUSHALL"]);
        assert!(other.write_lock("x").try_acquire().await.unwrap().held().is_none(), "it forgot the reader");
        eventually_async(LONG, "the node to have the reader again", || async { readers(node) == 1 }).await;
        all_vote(&leases).await;
        assert!(other.write_lock("x").try_acquire().await.unwrap().held().is_none(), "beside a reader");
    }
    assert!(reader.is_held());
    let fence = reader.fence();
    assert!(reader.release().await.unwrap().was_held());
    let writer = other.write_lock("x").wait(LONG).acquire().await.unwrap();
    assert!(writer.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_takes_the_lock_from_one_of_the_readers() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let one = leases.read_lock("x").acquire().await.unwrap();
    let other = leases.read_lock("x").acquire().await.unwrap();
    let seen = leases.inspect("x").await.unwrap().holders;
    assert!(seen.total == 2 && seen.shown.iter().all(|held| held.mode == Mode::Shared), "{seen:?}");
    assert!(leases.force_release("x", one.fence()).await.unwrap().was_held());
    assert_eq!(one.extend().await.unwrap_err().kind(), ErrorKind::Lost);
    other.extend().await.unwrap();
    assert_eq!(leases.inspect("x").await.unwrap().holders.total, 1);
    assert!(!one.release().await.is_ok_and(|outcome| outcome.was_held()));
    assert!(other.release().await.unwrap().was_held());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_comes_in_while_readers_never_stop_coming() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let mut readers = tokio::task::JoinSet::new();
    for number in 0..4 {
        let leases = client(&set, MAX_TTL);
        readers.spawn(async move {
            loop {
                let reader = leases.read_lock("x").wait(LONG).acquire().await.unwrap();
                // Longer than the others take to come: somebody reads at any time.
                tokio::time::sleep(ms(60 + 10 * number)).await;
                let _ = reader.release().await.unwrap();
            }
        });
    }
    let leases = client(&set, MAX_TTL);
    for _ in 0..5 {
        let writer = leases.write_lock("x").wait(LONG).acquire().await.unwrap();
        assert!(writer.release().await.unwrap().was_held());
    }
    readers.shutdown().await;
}
