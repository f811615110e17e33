//! Locks that wait for replicas, where another server takes over: behind sentinels and in a cluster.
#![cfg(feature = "redis")]

mod story;

use std::{future::IntoFuture, time::Duration};

use futures_util::future::join_all;
use leasehold::{Acks, Error, Guard, Leasehold, Refusal, Result, engine::Released};
use leasehold_testkit::{
    ClusterSet, RedisServer, SentinelSet, eventually_async,
    history::Violation,
    load::{self, Load},
};
use story::Story;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(60);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

async fn client(url: String) -> Leasehold {
    Leasehold::builder(url).command_timeout(secs(6)).connect().await.unwrap()
}

/// What a fail-over may cost the load, which does not wait for replicas.
fn follows_lost_lease(violation: &Violation) -> bool {
    violation.lost_lease_at().is_some()
}

/// Replicas of one primary that get nothing from it any more, nor does anything wait for them in a socket.
fn cut_off(primary: &RedisServer, replicas: &[&RedisServer]) {
    replicas.iter().for_each(|replica| replica.stop());
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
}

/// A claim that one replica must acknowledge, and that the primary has granted.
async fn claimed(leases: &Leasehold, primary: &RedisServer, name: &str) -> JoinHandle<Result<Guard>> {
    let claim = tokio::spawn(leases.lock(name).ttl(LONG).acks(1).wait(LONG).into_future());
    eventually_async(LONG, "the claim", || async { exists(primary, name) }).await;
    claim
}

fn exists(primary: &RedisServer, name: &str) -> bool {
    primary.cli(&["EXISTS", &format!("lock:{name}")]).int() == 1
}

/// With its replicas cut off: the claim is no grant and leaves nothing, and nobody else waits for it.
async fn is_no_grant(leases: &Leasehold, primary: &RedisServer, name: &str) {
    let claim = claimed(leases, primary, name).await;
    let others = (0..100).map(|n| {
        let lock = leases.lock(format!("other:{n}"));
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    assert!(join_all(others).await.iter().all(|released| *released == Released::Free));
    // Behind its WAIT they would have waited as long as it does.
    assert!(!claim.is_finished());
    let error = claim.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::TooFewAcks, .. }), "{error}");
    eventually_async(LONG, "the lock to be given back", || async { !exists(primary, name) }).await;
}

/// A claim that was under way while its primary died: an error, or a grant by the new primary and a replica of that.
async fn tells_the_truth(claim: JoinHandle<Result<Guard>>, new: &RedisServer, name: &str) {
    match claim.await.unwrap() {
        Err(error) => assert!(error.is_retryable(), "{error}"),
        Ok(guard) => {
            assert!(guard.acks() >= 1 && exists(new, name));
            let _ = guard.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinels_a_grant_that_no_replica_has_is_none() {
    let Some(set) = SentinelSet::builder().down_after(Duration::from_millis(1500)).start_or_skip() else {
        return;
    };
    let leases = client(set.url()).await;
    let story = Story::begin(Load::default(), &[client(set.url()).await, leases.clone()]);
    story.goes_on(load::grants(600) / 2).await;
    let guard = leases.lock("x").acks(Acks::Majority).wait(LONG).acquire().await.unwrap();
    assert!(guard.acks() >= 1);
    let first = guard.fence();
    let _ = guard.release().await.unwrap();

    let (old, replicas) = (set.primary(), set.replicas());
    cut_off(old, &replicas);
    is_no_grant(&leases, old, "x").await;
    let claim = claimed(&leases, old, "x").await;
    let uncopied = leases.lock("y").ttl(LONG).acquire().await.unwrap();
    old.kill();
    replicas.iter().for_each(|replica| replica.cont());
    let new = set.await_primary_other_than(old.port());

    tells_the_truth(claim, new, "x").await;
    for (name, before) in [("x", first), ("y", uncopied.fence())] {
        let guard = leases.lock(name).wait(LONG).acquire().await.unwrap();
        assert!(guard.fence() > before, "{} after {before}", guard.fence());
        let _ = guard.release().await.unwrap();
    }
    story.goes_on(load::grants(600) / 2).await;
    story.end(follows_lost_lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_grant_that_no_replica_has_is_none() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let leases = client(set.url()).await;
    let story = Story::begin(Load::default(), &[client(set.url()).await, leases.clone()]);
    story.goes_on(load::grants(600) / 2).await;
    let old = set.primaries()[0];
    let (x, y) = (set.name_on(old, "x"), set.name_on(old, "y"));
    let guard = leases.lock(&x).acks(Acks::Majority).acquire().await.unwrap();
    assert_eq!(guard.acks(), 1);
    let first = guard.fence();
    let _ = guard.release().await.unwrap();

    let replica = set.replica_of(old);
    cut_off(old, &[replica]);
    is_no_grant(&leases, old, &x).await;
    let claim = claimed(&leases, old, &x).await;
    let uncopied = leases.lock(&y).ttl(LONG).acquire().await.unwrap();
    old.kill();
    replica.cont();
    let new = set.await_new_primary_of(&format!("lock:{x}"), old);
    old.restart();
    set.await_ok();

    tells_the_truth(claim, new, &x).await;
    for (name, before) in [(&x, first), (&y, uncopied.fence())] {
        let guard = leases.lock(name).acks(1).wait(LONG).acquire().await.unwrap();
        assert!(guard.fence() > before && guard.acks() == 1, "{} after {before}", guard.fence());
        let _ = guard.release().await.unwrap();
    }
    story.goes_on(load::grants(600) / 2).await;
    story.end(follows_lost_lease).await;
}

/// Its wake-ups come over another connection than the claim: without a subscription it would be passed over as dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_claim_that_waits_for_replicas_is_handed_the_lock() {
    let Some(set) = ClusterSet::builder().start_or_skip() else { return };
    let name = set.name_on(set.primaries()[0], "x");
    let (holder, other) = (client(set.url()).await, client(set.url()).await);
    for _ in 0..5 {
        let guard = holder.lock(&name).ttl(LONG).acquire().await.unwrap();
        let fresh = client(set.url()).await;
        let waiter = tokio::spawn(fresh.lock(&name).ttl(LONG).acks(1).wait(LONG).into_future());
        eventually_async(LONG, "the waiter", || async { other.inspect(&name).await.unwrap().waiting == 1 })
            .await;
        assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
        let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
    }
}
