//! Leases that are kept alive.

use futures_util::future::join_all;

use super::{
    Stage, eventually,
    stage::{ms, sleep, soon},
};

cases! {
    a_thousand_leases_are_kept_alive_at_once,
    a_kept_alive_lease_outlives_several_ttls,
    a_kept_alive_lease_ends_with_its_release,
    a_force_released_holder_learns_that_it_lost,
    a_handed_over_lease_is_kept_alive_too,
    leases_of_different_ttls_are_kept_side_by_side,
}

async fn a_thousand_leases_are_kept_alive_at_once(stage: Stage) {
    const LEASES: u64 = 1_000;
    let client = stage.client().await;
    let locks = (0..LEASES).map(|number| {
        // Long enough for a busy machine; what is looked at is how often each is renewed.
        client.lock(format!("many:{number}")).ttl(ms(6_000)).keep_alive().acquire()
    });
    let guards: Vec<_> = join_all(locks).await.into_iter().map(Result::unwrap).collect();
    eventually("each is renewed twice", async || client.stats().renewed >= 2 * LEASES).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(client.stats().lost, 0);
    for outcome in join_all(guards.into_iter().map(|guard| guard.release())).await {
        outcome.unwrap();
    }
    assert_eq!(client.stats().released, LEASES);
}

async fn a_kept_alive_lease_outlives_several_ttls(stage: Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = one.lock("job").ttl(ms(1_000)).keep_alive().acquire().await.unwrap();
    for _ in 0..14 {
        sleep(ms(250)).await;
        assert!(guard.is_held(), "lost after {} renewals", one.stats().renewed);
        assert!(two.lock("job").try_acquire().await.unwrap().held().is_none());
    }
    assert!(one.stats().renewed >= 3);
    guard.release().await.unwrap();
}

async fn a_kept_alive_lease_ends_with_its_release(stage: Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = one.lock("job").ttl(ms(300)).keep_alive().acquire().await.unwrap();
    eventually("it is renewed", async || one.stats().renewed >= 1).await;
    guard.release().await.unwrap();
    let renewed = one.stats().renewed;
    let next = two.lock("job").try_acquire().await.unwrap().held().expect("a free lock");
    sleep(ms(600)).await;
    assert_eq!(one.stats().renewed, renewed, "renewed after its release");
    next.release().await.unwrap();
}

async fn a_force_released_holder_learns_that_it_lost(stage: Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = one.lock("job").ttl(ms(1_000)).keep_alive().acquire().await.unwrap();
    two.force_release("job", guard.fence()).await.unwrap();
    let next = two.lock("job").acquire().await.unwrap();
    soon("the loss is told", guard.lost()).await;
    assert!(!guard.is_held());
    drop(guard);
    one.close().await.unwrap();
    next.extend().await.expect("the next holder keeps it");
}

async fn a_handed_over_lease_is_kept_alive_too(stage: Stage) {
    let (one, two) = (stage.client().await, stage.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let lock = two.lock("job").ttl(ms(1_000)).keep_alive();
    let waiter = super::stage::enqueue(&one, lock, "job", 0).await;
    guard.release().await.unwrap();
    let next = soon("its turn", waiter).await.unwrap();
    for _ in 0..8 {
        sleep(ms(250)).await;
        assert!(next.is_held());
    }
    next.release().await.unwrap();
}

async fn leases_of_different_ttls_are_kept_side_by_side(stage: Stage) {
    let client = stage.client().await;
    let locks =
        [800, 1_500, 20_000].map(|ttl| client.lock(format!("ttl:{ttl}")).ttl(ms(ttl)).keep_alive().acquire());
    let guards: Vec<_> = join_all(locks).await.into_iter().map(Result::unwrap).collect();
    let fixed = client.lock("fixed").ttl(ms(500)).acquire().await.unwrap();
    soon("the fixed one is lost", fixed.lost()).await;
    sleep(ms(1_500)).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(client.stats().lost, 1);
}
