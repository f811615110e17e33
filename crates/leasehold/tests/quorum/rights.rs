//! The rights that a client of a quorum needs on each node.

use std::time::Duration;

use leasehold::{Error, Leasehold, Refusal};
use leasehold_testkit::{QuorumSet, RedisServer, eventually_async};

use crate::{
    fixture::{LONG, all_vote, builder, has, ms, nodes},
    security_md,
};

const MAX_TTL: Duration = Duration::from_secs(1);

/// A user of the documented lines on every node, without one right.
fn grant_rights(set: &QuorumSet, but: &str) {
    let line = security_md::locks();
    let more =
        format!("{} {}", security_md::line("acl: readers and permits"), security_md::line("acl: quorum"));
    // In place of the first words comes "reset". A right may be in several lines.
    let rules = line.split(' ').skip(2).chain(more.split(' ')).filter(|rule| *rule != but);
    let words: Vec<_> = ["ACL", "SETUSER", "leasehold", "reset"].into_iter().chain(rules).collect();
    for node in set.nodes() {
        assert_eq!(node.cli(&words).error(), None);
    }
}

fn client_of(set: &QuorumSet) -> Leasehold {
    builder(set.url().replace("redlock://", "redlock://leasehold:pw@"), MAX_TTL).connect_lazy().unwrap()
}

/// Admits, takes, waits, confirms, renews, repairs, lists, forgets and comes back.
async fn use_everything(set: &QuorumSet) {
    let (leases, other) = (client_of(set), client_of(set));
    leases.quorum().unwrap().admit_new().await.unwrap();
    let first = leases.lock("first").acquire().await.unwrap();
    let ahead = first.fence().get() + 1_000_000;
    let _ = first.release().await.unwrap();
    set.nodes()[0].cli(&["SET", "leasehold:fence:{lock:deal}", &ahead.to_string()]);
    set.nodes()[1].cli(&["SET", "leasehold:fence:{lock:deal}", &(ahead + 5).to_string()]);
    let guard = leases.lock("deal").wait(LONG).keep_alive().acquire().await.unwrap();
    let waiter = tokio::spawn(other.lock("deal").wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { leases.inspect("deal").await.unwrap().waiting == 1 }).await;
    set.nodes()[2].cli(&["DEL", "lock:deal"]);
    eventually_async(LONG, "the repair", || async { has(&set.nodes()[2], "deal") }).await;
    assert_eq!(leases.list_page("", None, 10).await.unwrap().items.len(), 1);
    let _ = guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    let _timed_out = leases.lock("deal").wait(ms(50)).acquire().await.unwrap_err();
    assert!(leases.force_release("deal", guard.fence()).await.unwrap().was_held());
    read_and_write(set, &leases).await;
    set.nodes()[0].cli(&["FLUSHALL"]);
    eventually_async(LONG, "the node to be watched", || async {
        let _granted_by_the_others = leases.lock("x").try_acquire().await;
        set.nodes()[0].cli(&["EXISTS", "leasehold:quorum"]).int() == 1
    })
    .await;
    all_vote(&leases).await;
}

/// Readers confirm, are repaired and renewed, and a writer waits for them.
async fn read_and_write(set: &QuorumSet, leases: &Leasehold) {
    let last = leases.read_lock("deal").wait(LONG).acquire().await.unwrap();
    let ahead = last.fence().get() + 1_000_000;
    let _ = last.release().await.unwrap();
    set.nodes()[0].cli(&["SET", "leasehold:fence:{lock:deal}", &ahead.to_string()]);
    set.nodes()[1].cli(&["SET", "leasehold:fence:{lock:deal}", &(ahead + 5).to_string()]);
    let reader = leases.read_lock("deal").wait(LONG).keep_alive().acquire().await.unwrap();
    let writer = tokio::spawn(leases.write_lock("deal").wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { leases.inspect("deal").await.unwrap().waiting == 1 }).await;
    set.nodes()[2].cli(&["DEL", "lock:deal"]);
    eventually_async(LONG, "the repair", || async { has(&set.nodes()[2], "deal") }).await;
    let _ = reader.release().await.unwrap();
    let _ = writer.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_suffice_for_everything_and_nothing_is_tried_in_vain() {
    let Some(set) = nodes(3).start_or_skip() else { return };
    grant_rights(&set, "");
    use_everything(&set).await;
    for node in set.nodes() {
        let denied = node.cli(&["ACL", "LOG"]);
        assert!(denied.list().is_empty(), "{denied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_of_the_additional_rights_a_client_is_told() {
    let Some(set) = nodes(3).start_or_skip() else { return };
    grant_rights(&set, "");
    client_of(&set).quorum().unwrap().admit_new().await.unwrap();
    for right in security_md::line("acl: quorum").split(' ') {
        grant_rights(&set, right);
        let (leases, other) = (client_of(&set), client_of(&set));
        let outcome = async {
            let guard = leases.lock("x").wait(ms(200)).acquire().await?;
            // One that waits needs more, and so does who wakes it.
            let waiter = tokio::spawn(other.lock("x").wait(LONG).into_future());
            eventually_async(LONG, "a waiter", || async {
                let waiting = |node: &RedisServer| node.cli(&["ZCARD", "leasehold:waiters:{lock:x}"]).int();
                waiter.is_finished() || set.nodes().iter().all(|node| waiting(node) == 1)
            })
            .await;
            let _ = guard.release().await?;
            waiter.await.unwrap()
        };
        match outcome.await {
            Err(Error::StoreRefused { refusal: Refusal::Acl, .. }) => {}
            Err(error) if error.to_string().contains("can't run this command") => {}
            other => panic!("without {right}: {other:?}"),
        }
    }
}
