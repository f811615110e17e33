//! How long a lease can be trusted, and how its end is reported.

use std::time::Instant;

use leasehold::{Error, ErrorKind, Guard, Leasehold, lease::validity};

use super::{
    TestContext,
    context::{enqueue, is_closed, ms, sleep, soon},
    eventually,
};

cases! {
    remaining_decreases_and_is_never_above_the_ttl_less_drift,
    a_lease_never_outlives_the_store,
    a_fixed_lease_is_lost_when_its_time_is_over,
    a_loss_is_reported_before_the_store_lets_go,
    a_loss_is_final,
    extending_a_lost_lease_revives_nothing,
    extending_extends,
    extending_after_a_force_release_reports_the_loss,
    a_maximum_lifetime_ends_a_kept_alive_lease,
    extending_never_passes_the_maximum_lifetime,
    a_lock_delay_keeps_it_closed_after_expiry,
    a_release_opens_a_lock_with_a_delay_at_once,
    a_lost_guard_with_a_delay_releases_nothing,
    a_minimum_hold_time_keeps_it_closed_after_a_release,
    a_minimum_hold_time_keeps_it_closed_after_a_drop,
    a_minimum_hold_time_that_is_over_changes_nothing,
    a_minimum_hold_time_does_not_start_the_lock_delay,
    the_shortest_ttl_can_be_acquired,
}

async fn remaining_decreases_and_is_never_above_the_ttl_less_drift(test: TestContext) {
    let client = test.client().await;
    let ttl = ms(3_000);
    let guard = client.lock("job").ttl(ttl).acquire().await.unwrap();
    let mut last = guard.remaining();
    assert!(last <= ttl - validity::drift(ttl), "{last:?}");
    for _ in 0..5 {
        sleep(ms(10)).await;
        let now = guard.remaining();
        assert!(now < last, "{now:?} after {last:?}");
        last = now;
    }
    let lease = guard.lease();
    assert!(guard.release().await.unwrap().was_held());
    assert!(lease.remaining().is_zero() && !lease.is_held());
}

/// The holder's validity must end before the lease does in the store.
async fn assert_within_the_stores_lease(client: &Leasehold, guard: &Guard) {
    let asked = Instant::now();
    let believed = guard.remaining();
    let held = client.inspect(guard.name()).await.unwrap().held().cloned().expect("held");
    assert_eq!(held.fence, guard.fence());
    let kept = held.expires_in.expect("a lease ends") + asked.elapsed();
    assert!(believed <= kept, "valid for {believed:?} at the holder, {kept:?} in the store");
}

async fn a_lease_never_outlives_the_store(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(2_000)).acquire().await.unwrap();
    assert_within_the_stores_lease(&two, &guard).await;
    guard.extend().await.unwrap();
    assert_within_the_stores_lease(&two, &guard).await;
    let waiter = enqueue(&one, two.lock("job").ttl(ms(2_000)), "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
    let guard = soon("the waiter's turn", waiter).await.unwrap();
    assert_within_the_stores_lease(&one, &guard).await;
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_fixed_lease_is_lost_when_its_time_is_over(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(300)).acquire().await.unwrap();
    soon("the loss is reported", guard.lost()).await;
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(client.stats().lost, 1);
}

async fn a_loss_is_reported_before_the_store_lets_go(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    // A busy machine may be late once; an engine that is wrong is late always.
    for _ in 0..4 {
        let guard = one.lock("job").ttl(ms(1_500)).acquire().await.unwrap();
        soon("the loss is reported", guard.lost()).await;
        let held = two.inspect("job").await.unwrap().held().cloned();
        if held.is_some_and(|held| held.fence == guard.fence()) {
            return;
        }
        assert!(guard.release().await.unwrap().was_held());
    }
    panic!("the lease expired in the store before the holder was notified");
}

async fn a_loss_is_final(test: TestContext) {
    let client = test.client().await;
    let lost = client.lock("job").ttl(ms(200)).acquire().await.unwrap();
    soon("the loss is reported", lost.lost()).await;
    eventually("the lease expires", async || !is_closed(&client, "job").await).await;
    let again = client.lock("job").acquire().await.unwrap();
    assert!(again.is_held() && again.fence() > lost.fence());
    assert!(!lost.is_held() && lost.remaining().is_zero());
    soon("a loss stays reported", lost.lost()).await;
    assert_eq!(lost.extend().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!lost.is_held());
}

async fn extending_a_lost_lease_revives_nothing(test: TestContext) {
    let client = test.client().await;
    // The delay keeps it in the store, so that a renewal would succeed there.
    let guard = client.lock("job").ttl(ms(200)).lock_delay(ms(3_000)).acquire().await.unwrap();
    soon("the loss is reported", guard.lost()).await;
    assert_eq!(guard.extend().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!guard.is_held() && guard.remaining().is_zero());
}

async fn extending_extends(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(3_000)).acquire().await.unwrap();
    for _ in 0..5 {
        sleep(ms(700)).await;
        let before = guard.remaining();
        guard.extend().await.unwrap();
        assert!(guard.remaining() > before);
    }
    assert!(guard.is_held(), "held for longer than one ttl");
    assert!(is_closed(&client, "job").await);
}

async fn extending_after_a_force_release_reports_the_loss(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    assert!(two.force_release("job", guard.fence()).await.unwrap().was_held());
    match guard.extend().await.unwrap_err() {
        Error::Lost { name, fence } => assert_eq!((name.as_str(), fence), ("job", guard.fence())),
        other => panic!("{other}"),
    }
    soon("the loss is reported", guard.lost()).await;
    assert!(!guard.is_held());
}

async fn a_maximum_lifetime_ends_a_kept_alive_lease(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let lock = one.lock("job").ttl(ms(1_500)).keep_alive().max_lifetime(ms(3_000));
    let (began, guard) = (Instant::now(), lock.acquire().await.unwrap());
    assert!(guard.remaining() <= ms(3_000));
    soon("the loss is reported", guard.lost()).await;
    assert!(began.elapsed() > ms(1_500), "it was not kept alive at all");
    drop(guard);
    let next = soon("the next holder", two.lock("job").wait(ms(10_000)).acquire()).await.unwrap();
    assert!(next.release().await.unwrap().was_held());
}

async fn extending_never_passes_the_maximum_lifetime(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(2_000)).max_lifetime(ms(2_000)).acquire().await.unwrap();
    sleep(ms(200)).await;
    guard.extend().await.unwrap();
    assert!(guard.remaining() <= ms(1_800), "{:?}", guard.remaining());
}

async fn a_lock_delay_keeps_it_closed_after_expiry(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let began = Instant::now();
    let guard = one.lock("job").ttl(ms(200)).lock_delay(ms(1_200)).acquire().await.unwrap();
    let next = soon("the next holder", two.lock("job").wait(ms(15_000)).acquire()).await.unwrap();
    assert!(began.elapsed() >= ms(1_400), "opened {:?} after the lease began", began.elapsed());
    assert!(!guard.is_held() && next.fence() > guard.fence());
}

async fn a_release_opens_a_lock_with_a_delay_at_once(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(20_000)).lock_delay(ms(20_000)).acquire().await.unwrap();
    assert!(guard.release().await.unwrap().was_held());
    let next = two.lock("job").try_acquire().await.unwrap().held().expect("a free lock");
    assert!(next.release().await.unwrap().was_held());
}

async fn a_lost_guard_with_a_delay_releases_nothing(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(200)).lock_delay(ms(20_000)).acquire().await.unwrap();
    let fence = guard.fence();
    soon("the loss is reported", guard.lost()).await;
    drop(guard);
    one.close().await.unwrap();
    let held = two.inspect("job").await.unwrap().held().cloned().expect("the delay keeps it closed");
    assert_eq!(held.fence, fence);
    assert!(two.lock("job").try_acquire().await.unwrap().held().is_none());
}

async fn a_minimum_hold_time_keeps_it_closed_after_a_release(test: TestContext) {
    use leasehold::engine::Released;
    let (one, two) = (test.client().await, test.client().await);
    let began = Instant::now();
    let guard = one.lock("job").ttl(ms(20_000)).hold_at_least(ms(800)).acquire().await.unwrap();
    let lease = guard.lease();
    match guard.release().await.unwrap() {
        Released::Closed { remaining } => assert!(remaining <= ms(800), "{remaining:?}"),
        other => panic!("{other:?}"),
    }
    assert!(!lease.is_held(), "its holder has released it");
    let next = soon("the next holder", two.lock("job").wait(ms(15_000)).acquire()).await.unwrap();
    assert!(began.elapsed() >= ms(800), "opened after {:?}", began.elapsed());
    assert!(began.elapsed() < ms(20_000), "kept for its whole ttl");
    assert!(next.release().await.unwrap().was_held());
}

async fn a_minimum_hold_time_keeps_it_closed_after_a_drop(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let began = Instant::now();
    let guard = one.lock("job").ttl(ms(20_000)).hold_at_least(ms(800)).acquire().await.unwrap();
    drop(guard);
    one.close().await.unwrap();
    let next = soon("the next holder", two.lock("job").wait(ms(15_000)).acquire()).await.unwrap();
    assert!(began.elapsed() >= ms(800), "opened after {:?}", began.elapsed());
    assert!(next.release().await.unwrap().was_held());
}

async fn a_minimum_hold_time_that_is_over_changes_nothing(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").hold_at_least(ms(50)).acquire().await.unwrap();
    sleep(ms(60)).await;
    assert!(guard.release().await.unwrap().was_held());
    assert!(!is_closed(&client, "job").await);
}

async fn a_minimum_hold_time_does_not_start_the_lock_delay(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    for drops in [false, true] {
        let lock = one.lock("job").ttl(ms(60_000)).lock_delay(ms(60_000)).hold_at_least(ms(300));
        let guard = lock.acquire().await.unwrap();
        if drops {
            drop(guard);
        } else {
            assert!(guard.release().await.unwrap().was_held());
        }
        let next = two.lock("job").wait(ms(8_000)).acquire().await;
        assert!(next.expect("open once the minimum is over").release().await.unwrap().was_held());
    }
}

async fn the_shortest_ttl_can_be_acquired(test: TestContext) {
    let client = test.client().await;
    let lock = client.lock("job").ttl(validity::TTL_MIN).wait(ms(10_000));
    let guard = lock.acquire().await.unwrap();
    assert!(guard.remaining() <= validity::TTL_MIN);
}
