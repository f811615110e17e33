//! Each claim that waits for replicas has a connection to itself, and there are only so many.

use std::future::IntoFuture;

use futures_util::future::join_all;
use leasehold::{Attempt, ErrorKind, Leasehold, engine::Released};
use leasehold_testkit::eventually_async;
use tokio::task::JoinSet;

use super::{LONG, ReplicaSet, secs, too_few};

#[tokio::test]
async fn a_stopped_replica_delays_nobody_but_the_claim_that_needs_it() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(6)).await;
    let kept: Vec<_> = (0..10).map(|n| leases.lock(format!("kept:{n}")).ttl(secs(5)).keep_alive()).collect();
    let kept: Vec<_> = join_all(kept.into_iter().map(IntoFuture::into_future)).await;
    set.freeze(0);

    let claim = tokio::spawn(leases.lock("x").acks(1).wait(LONG).into_future());
    set.is_taken("x").await;
    let others = (0..100).map(|n| {
        let lock = leases.lock(format!("other:{n}"));
        let lock = if n % 2 == 0 { lock.keep_alive() } else { lock };
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    assert!(join_all(others).await.iter().all(|released| *released == Released::Free));
    // Behind its WAIT they would have waited as long as it does.
    assert!(!claim.is_finished());

    too_few(&claim.await.unwrap().unwrap_err(), "0 of 1");
    set.is_given_back("x").await;
    assert!(kept.iter().all(|guard| guard.as_ref().unwrap().is_held()));
    assert_eq!(leases.stats().lost, 0);
    set.replicas[0].cont();
    assert_eq!(leases.lock("x").acks(1).acquire().await.unwrap().acks(), 1);
}

#[tokio::test]
async fn a_claim_that_waits_for_a_stopped_replica_does_not_delay_claims_that_wait_for_another() {
    let Some(set) = ReplicaSet::start(2) else { return };
    let leases = set.client(secs(8)).await;
    set.freeze(1);
    let claim = tokio::spawn(leases.lock("x").acks(2).wait(LONG).into_future());
    set.is_taken("x").await;
    let others = (0..40).map(|n| {
        let lock = leases.lock(format!("other:{n}")).acks(1);
        async move {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(guard.acks(), 1);
            let _ = guard.release().await.unwrap();
        }
    });
    join_all(others).await;
    assert!(!claim.is_finished());
    too_few(&claim.await.unwrap().unwrap_err(), "1 of 2");
    set.is_given_back("x").await;
    set.blocks(0).await;
}

#[tokio::test]
async fn claims_beyond_the_connections_for_them_are_told_so_in_time() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(60)).await;
    set.freeze(0);
    let names: Vec<_> = (0..16).map(|n| format!("x:{n}")).collect();
    let claims: Vec<_> = names
        .iter()
        .map(|name| tokio::spawn(leases.lock(name).acks(1).wait(secs(300)).into_future()))
        .collect();
    // A lock is taken over the connection that its claim keeps. How many are blocked says less: a claim may have left one.
    for name in &names {
        set.is_taken(name).await;
    }
    let error = leases.lock("one more").acks(1).wait(secs(2)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    assert!(!set.has("one more"));
    set.blocks(16).await;
    let _ = leases.lock("ordinary").acquire().await.unwrap().release().await.unwrap();
    claims.iter().for_each(tokio::task::JoinHandle::abort);
    // They come back for others.
    set.replicas[0].cont();
    assert_eq!(leases.lock("one more").acks(1).acquire().await.unwrap().acks(), 1);
    leases.close().await.unwrap();
    eventually_async(LONG, "connections to be closed", || async {
        set.info("clients", "connected_clients:1") == 1
    })
    .await;
}

/// One more claim than there are connections, the last of which would be answered at once: the others, which have to be
/// sent again, do not have to wait behind it.
async fn keep_their_turns(set: &ReplicaSet, leases: &Leasehold) {
    set.freeze(0);
    // They ask for a connection in this order: without a queue, nothing comes before that.
    let claims: Vec<_> = (0..17)
        .map(|n| {
            let lock = leases.lock(format!("x:{n}")).acks(1);
            tokio::spawn(async move { lock.try_acquire().await.map(drop) })
        })
        .collect();
    set.blocks(16).await;
    // Whoever comes now finds the script.
    let _ = leases.lock("ordinary").acquire().await.unwrap().release().await.unwrap();
    let taken = || set.primary.cli(&["KEYS", "lock:x:*"]).list().len();
    eventually_async(LONG, "16 locks to be taken", || async { taken() == 16 }).await;
    assert!(!set.has("x:16"));
    claims.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_claim_whose_script_is_not_known_does_not_wait_for_a_connection_again() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(60)).await;
    keep_their_turns(&set, &leases).await;
}

#[tokio::test]
async fn a_claim_behind_a_crowd_of_dead_waiters_does_not_wait_for_a_connection_again() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(60)).await;
    let _ = leases.lock("ordinary").acquire().await.unwrap().release().await.unwrap();
    // One call removes a hundred.
    let dead = |number| format!("2 1000 9000000000000 15000 nobody-listens {number:032x} 1 1 host dead");
    let crowd: Vec<_> = (0..150).flat_map(|number| [number.to_string(), dead(number)]).collect();
    for n in 0..16 {
        let waiters = format!("leasehold:waiters:{{lock:x:{n}}}");
        let words: Vec<_> = ["ZADD", &waiters].into_iter().chain(crowd.iter().map(String::as_str)).collect();
        assert_eq!(set.primary.cli(&words).int(), 150);
    }
    keep_their_turns(&set, &leases).await;
}

#[tokio::test]
async fn claims_given_up_while_they_connect_leave_their_connections_to_the_next() {
    let Some(set) = ReplicaSet::start(1) else { return };
    let leases = set.client(secs(60)).await;
    let mut primary = set.primary.connect().unwrap();
    let mut received = || {
        let stats = primary.command(&["INFO", "stats"]).unwrap().text().to_owned();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        line.parse::<u32>().unwrap()
    };
    let before = received();
    // Its kernel takes connections all the same.
    set.primary.stop();
    for _ in 0..5 {
        let mut claims = JoinSet::new();
        for n in 0..16 {
            let lock = leases.lock(format!("x:{n}")).acks(1);
            claims.spawn(async move { lock.try_acquire().await.map(drop) });
        }
        // All of them begin to dial before it is our turn again.
        tokio::task::yield_now().await;
        claims.shutdown().await;
    }
    set.primary.cont();
    assert!(matches!(leases.lock("x").acks(1).try_acquire().await.unwrap(), Attempt::Held(_)));
    let more = received() - before;
    assert!(more <= 16, "{more}");
}
