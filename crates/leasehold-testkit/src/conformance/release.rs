//! Releasing a lock: in time, too late, by force, or not at all.

use std::time::Instant;

use leasehold::{
    ErrorKind, Fence, Handle,
    engine::{Handover, Released},
};

use super::{
    TestContext,
    context::{enqueue, is_closed, ms, poll_at_most, soon},
    eventually,
};

cases! {
    a_release_leaves_the_lock_free,
    a_release_with_a_waiter_hands_over,
    releasing_an_expired_lock_returns_expired,
    releasing_a_taken_lock_reports_the_holder,
    a_late_release_leaves_the_second_holder_alone,
    a_force_release_compares_the_fence,
    force_releasing_a_free_lock_returns_expired,
    dropping_a_guard_releases_in_the_background,
    dropping_a_guard_outside_of_a_runtime_does_not_panic,
    dropping_a_guard_after_its_runtime_ended_does_not_panic,
    a_release_dropped_at_any_poll_still_releases,
    a_detached_lock_stays_and_its_handle_releases_it,
    a_handle_extends_its_lease,
    a_handle_becomes_a_guard_again,
    an_attached_lock_is_kept_alive,
    a_handle_of_a_lost_lock_does_not_become_a_guard,
    a_handle_whose_times_are_out_of_range_is_refused,
    a_lock_outlives_every_client: Durable,
}

async fn a_release_leaves_the_lock_free(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    let inspection = client.inspect("job").await.unwrap();
    assert!(inspection.held().is_none() && inspection.waiting == 0);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_release_with_a_waiter_hands_over(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job"), "job", 0).await;
    let Released::HandedOver { to: 1, next } = guard.release().await.unwrap() else {
        panic!("not handed over")
    };
    let guard = soon("its turn", waiter).await.unwrap();
    match test.capabilities().handover {
        Handover::Push => assert_eq!(next, Some(guard.fence())),
        _ => assert!(next.is_none_or(|next| next == guard.fence())),
    }
    assert_eq!(guard.release().await.unwrap(), Released::Free);
}

async fn releasing_an_expired_lock_returns_expired(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(150)).acquire().await.unwrap();
    let granted = Instant::now();
    // Copies on several nodes expire one after the other. While some are left and a node is down, it is unknown whether a
    // majority still has it.
    let has_ended = async || granted.elapsed() > ms(300) && !is_closed(&client, "job").await;
    eventually("every copy of the lease expires", has_ended).await;
    assert_eq!(guard.release().await.unwrap(), Released::Expired);
    assert_eq!(client.stats().release_not_ours, 1);
}

async fn releasing_a_taken_lock_reports_the_holder(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let late = one.lock("job").ttl(ms(150)).acquire().await.unwrap();
    let next = soon("the next holder", two.lock("job").wait(ms(15_000)).acquire()).await.unwrap();
    let Released::Taken { by: Some(by) } = late.release().await.unwrap() else { panic!("not taken") };
    // A node of a quorum may have given a later one than those that made the grant.
    let is_of_quorum = one.quorum().is_ok();
    assert!(by == next.fence() || is_of_quorum && by > next.fence(), "{by} is not {}", next.fence());
}

async fn a_late_release_leaves_the_second_holder_alone(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let late = one.lock("job").ttl(ms(150)).acquire().await.unwrap();
    let dropped = one.lock("other").ttl(ms(150)).acquire().await.unwrap();
    let next = soon("the next holder", two.lock("job").wait(ms(15_000)).acquire()).await.unwrap();
    let other = soon("the next holder", two.lock("other").wait(ms(15_000)).acquire()).await.unwrap();
    assert!(!late.release().await.unwrap().was_held());
    drop(dropped);
    one.close().await.unwrap();
    for (name, guard) in [("job", &next), ("other", &other)] {
        let held = two.inspect(name).await.unwrap().held().cloned().expect("still held");
        assert_eq!(held.fence, guard.fence());
        guard.extend().await.expect("still extended");
        assert!(guard.is_held());
    }
}

async fn a_force_release_compares_the_fence(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let fence = guard.fence();
    for wrong in [fence.get() - 1, fence.get() + 1, 0] {
        let outcome = two.force_release("job", Fence::new(wrong)).await.unwrap();
        assert_eq!(outcome, Released::Taken { by: Some(fence) });
    }
    guard.extend().await.expect("a wrong fence takes nothing away");
    assert_eq!(two.force_release("job", fence).await.unwrap(), Released::Free);
    assert!(!is_closed(&two, "job").await);
    assert_eq!(two.force_release("job", fence).await.unwrap(), Released::Expired);
}

async fn force_releasing_a_free_lock_returns_expired(test: TestContext) {
    let client = test.client().await;
    assert_eq!(client.force_release("job", Fence::new(1)).await.unwrap(), Released::Expired);
    let guard = client.lock("job").acquire().await.unwrap();
    let fence = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    assert_eq!(client.force_release("job", fence).await.unwrap(), Released::Expired);
}

async fn dropping_a_guard_releases_in_the_background(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    let lease = guard.lease();
    drop(guard);
    assert!(!lease.is_held(), "a dropped guard's lease is not trusted");
    eventually("the lock is free", async || !is_closed(&two, "job").await).await;
    assert_eq!(one.stats().dropped, 1);
}

async fn dropping_a_guard_outside_of_a_runtime_does_not_panic(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    std::thread::spawn(move || drop(guard)).join().expect("no panic");
    eventually("the lock is free", async || !is_closed(&client, "job").await).await;
}

async fn dropping_a_guard_after_its_runtime_ended_does_not_panic(test: TestContext) {
    let client = test.client().await;
    let guard = test
        .on_own_thread(false, async |test| {
            let gone = test.client().await;
            gone.lock("job").ttl(ms(300)).keep_alive().acquire().await.unwrap()
        })
        .await;
    std::thread::spawn(move || drop(guard)).join().expect("no panic");
    eventually("the ttl frees it", async || !is_closed(&client, "job").await).await;
}

async fn a_release_dropped_at_any_poll_still_releases(test: TestContext) {
    let client = test.client().await;
    for polls in 0..10 {
        let guard = client.lock("job").ttl(ms(60_000)).wait(ms(15_000)).acquire().await.unwrap();
        let _ended = poll_at_most(polls, guard.release()).await;
    }
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_detached_lock_stays_and_its_handle_releases_it(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let handle = one.lock("job").ttl(ms(20_000)).acquire().await.unwrap().detach();
    one.close().await.unwrap();
    assert!(is_closed(&two, "job").await);
    let text = handle.expose();
    let handle = text.parse::<Handle>().unwrap();
    assert_eq!(handle.name().as_str(), "job");
    assert_eq!(two.inspect("job").await.unwrap().held().unwrap().fence, handle.fence());
    assert_eq!(handle.release(&two).await.unwrap(), Released::Free);
    assert!(!is_closed(&two, "job").await);
}

async fn a_handle_extends_its_lease(test: TestContext) {
    let client = test.client().await;
    let handle = client.lock("job").ttl(ms(2_000)).acquire().await.unwrap().detach();
    handle.extend(&client, Some(ms(50_000))).await.unwrap();
    let left = client.inspect("job").await.unwrap().held().unwrap().expires_in.unwrap();
    assert!(left > ms(2_000), "{left:?}");
    assert!(handle.release(&client).await.unwrap().was_held());
    let error = handle.extend(&client, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!is_closed(&client, "job").await, "an extension revived it");
}

async fn a_handle_becomes_a_guard_again(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let handle = one.lock("job").ttl(ms(20_000)).acquire().await.unwrap().detach();
    one.close().await.unwrap();
    let fence = handle.fence();
    let guard = two.attach(handle.expose().parse().unwrap()).await.unwrap();
    assert_eq!((guard.name().as_str(), guard.fence()), ("job", fence));
    assert!(guard.is_held() && guard.remaining() > ms(10_000), "{guard:?}");
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    assert!(!is_closed(&two, "job").await);
}

async fn an_attached_lock_is_kept_alive(test: TestContext) {
    let client = test.client().await;
    let handle = client.lock("job").ttl(ms(20_000)).acquire().await.unwrap().detach();
    let guard = client.attach(handle).ttl(ms(2_000)).keep_alive().await.unwrap();
    assert!(!guard.lost_within(ms(3_000)).await, "it was not renewed");
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_handle_of_a_lost_lock_does_not_become_a_guard(test: TestContext) {
    let client = test.client().await;
    let handle = client.lock("job").ttl(ms(20_000)).acquire().await.unwrap().detach();
    assert!(client.force_release("job", handle.fence()).await.unwrap().was_held());
    let next = client.lock("job").ttl(ms(20_000)).acquire().await.unwrap();
    let error = client.attach(handle).keep_alive().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(next.is_held());
    assert_eq!(next.release().await.unwrap(), Released::Free);
}

async fn a_handle_whose_times_are_out_of_range_is_refused(test: TestContext) {
    let client = test.client().await;
    let handle = client.lock("job").ttl(ms(20_000)).acquire().await.unwrap().detach();
    let text = handle.expose();
    let ttl_and_delay = "\n20000\n0\n";
    assert!(text.contains(ttl_and_delay));
    // Otherwise the file of a script could close a lock for years.
    for out_of_range in
        ["\n0\n0\n", "\n99999999999\n0\n", "\n20000\n99999999999\n", "\n20000\n18446744073709551615\n"]
    {
        let bad: Handle = text.replace(ttl_and_delay, out_of_range).parse().unwrap();
        assert_eq!(
            bad.extend(&client, None).await.unwrap_err().kind(),
            ErrorKind::Invalid,
            "{out_of_range:?}"
        );
        assert_eq!(client.attach(bad).await.unwrap_err().kind(), ErrorKind::Invalid, "{out_of_range:?}");
    }
    assert_eq!(handle.release(&client).await.unwrap(), Released::Free);
}

async fn a_lock_outlives_every_client(test: TestContext) {
    let first = test.builder().connect().await.unwrap();
    let handle = first.lock("job").ttl(ms(60_000)).acquire().await.unwrap().detach();
    first.close().await.unwrap();
    drop(first);
    let second = test.client().await;
    assert_eq!(second.inspect("job").await.unwrap().held().expect("still held").fence, handle.fence());
    assert!(second.lock("job").try_acquire().await.unwrap().held().is_none());
    assert!(handle.release(&second).await.unwrap().was_held());
}
