//! Some of a limited number of permits.

use std::{
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use futures_util::future::join_all;
use leasehold::{
    ErrorKind, Event, Mode, Released,
    engine::{Answer, HOLDERS_SHOWN},
};

use super::{
    TestContext,
    context::{enqueue, eventually, ms, soon},
    engine_client::EngineClient,
};

cases! {
    no_more_permits_are_held_than_there_are: Permits,
    a_small_request_never_overtakes_a_large_one: Permits,
    a_dead_holder_s_permits_come_back: Permits,
    another_limit_is_an_error_with_both_numbers: Permits,
    a_raised_limit_admits_as_many_as_fit: Permits,
    a_lowered_limit_takes_nothing_away: Permits,
    numbers_that_can_never_be_granted_are_refused: Permits,
    a_lock_is_no_semaphore_at_the_same_time: Permits,
    permits_are_inspected_with_their_limit: Permits,
    permits_of_holders_that_are_not_listed_count: Permits,
    permits_are_counted_and_observed_as_such: Permits,
    a_permit_is_given_back_once: Permits,
    a_permit_that_ran_out_is_not_given_back_again: Permits,
    a_stranger_gives_no_permit_back: Permits Contract,
    five_thousand_permits_are_taken_at_once: Permits,
    a_permit_does_not_become_a_read_lock: Permits,
}

async fn no_more_permits_are_held_than_there_are(test: TestContext) {
    const LIMIT: u32 = 5;
    let clients = [test.client().await, test.client().await, test.client().await];
    let (taken, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let tasks = (0..18).map(|number| {
        let (client, taken, most) = (clients[number % 3].clone(), taken.clone(), most.clone());
        tokio::spawn(async move {
            for round in 0..5 {
                let want = 1 + ((number + round) % 3) as u32;
                let lock = client.semaphore("gpu", LIMIT).permits(want).wait(ms(20_000));
                let guard = lock.acquire().await.unwrap();
                let now = taken.fetch_add(want, Ordering::SeqCst) + want;
                assert!(now <= LIMIT, "{now} of {LIMIT}");
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                taken.fetch_sub(want, Ordering::SeqCst);
                assert!(guard.release().await.unwrap().was_held());
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    assert!(most.load(Ordering::SeqCst) > 1, "nothing was shared");
    test.assert_empty().await;
}

async fn a_small_request_never_overtakes_a_large_one(test: TestContext) {
    let client = test.client().await;
    let one = client.semaphore("gpu", 5).keep_alive().acquire().await.unwrap();
    let large = enqueue(&client, client.semaphore("gpu", 5).permits(5).wait(ms(20_000)), "gpu", 0).await;
    assert!(client.semaphore("gpu", 5).try_acquire().await.unwrap().held().is_none(), "4 are free, and kept");
    let small = enqueue(&client, client.semaphore("gpu", 5).wait(ms(20_000)), "gpu", 1).await;
    assert!(matches!(one.release().await.unwrap(), Released::HandedOver { to: 1, .. }));
    let large = soon("the large request", large).await.unwrap();
    assert!(!small.is_finished());
    assert!(large.release().await.unwrap().was_held());
    assert!(soon("the small request", small).await.unwrap().release().await.unwrap().was_held());
}

async fn a_dead_holder_s_permits_come_back(test: TestContext) {
    let client = test.client().await;
    let dead = client.semaphore("gpu", 5).permits(3).ttl(ms(300)).acquire().await.unwrap().detach();
    let guard = client.semaphore("gpu", 5).permits(5).wait(ms(10_000)).acquire().await.unwrap();
    assert!(guard.fence() > dead.fence());
    assert_eq!(
        dead.release(&client).await.unwrap(),
        Released::Expired,
        "a late release frees nobody's permits"
    );
    assert!(guard.is_held() && client.semaphore("gpu", 5).try_acquire().await.unwrap().held().is_none());
    assert!(guard.release().await.unwrap().was_held());
}

async fn another_limit_is_an_error_with_both_numbers(test: TestContext) {
    let client = test.client().await;
    let guard = client.semaphore("gpu", 4).acquire().await.unwrap();
    let error = client.semaphore("gpu", 8).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OtherLimit);
    assert!(error.to_string().contains("4 permits") && error.to_string().contains('8'), "{error}");
    assert!(guard.release().await.unwrap().was_held());
    assert!(client.semaphore("gpu", 8).acquire().await.is_err(), "the limit outlives its holders");
    client.set_limit("gpu", 8).await.unwrap();
    for named in [4, 8] {
        let guard = client.semaphore("gpu", named).acquire().await.unwrap();
        assert!(guard.release().await.unwrap().was_held(), "both numbers work while programs are replaced");
    }
}

async fn a_raised_limit_admits_as_many_as_fit(test: TestContext) {
    let client = test.client().await;
    let held = join_all((0..3).map(|_| client.semaphore("gpu", 3).keep_alive().acquire())).await;
    let mut waiting = Vec::new();
    for number in 0..9 {
        let lock = client.semaphore("gpu", 3).wait(ms(20_000)).keep_alive();
        waiting.push(enqueue(&client, lock, "gpu", number).await);
    }
    client.set_limit("gpu", 10).await.unwrap();
    let last = waiting.split_off(7);
    let admitted = soon("seven more", join_all(waiting)).await;
    assert!(last.iter().all(|task| !task.is_finished()), "more than the limit");
    for guard in held.into_iter().map(Result::unwrap).chain(admitted.into_iter().map(Result::unwrap)) {
        assert!(guard.release().await.unwrap().was_held());
    }
    for guard in soon("the last two", join_all(last)).await {
        assert!(guard.unwrap().release().await.unwrap().was_held());
    }
}

async fn a_lowered_limit_takes_nothing_away(test: TestContext) {
    let client = test.client().await;
    let mut held = join_all((0..10).map(|_| client.semaphore("gpu", 10).acquire())).await;
    client.set_limit("gpu", 3).await.unwrap();
    assert!(held.iter().all(|guard| guard.as_ref().unwrap().is_held()));
    for guard in held.split_off(3) {
        assert!(client.semaphore("gpu", 10).try_acquire().await.unwrap().held().is_none());
        assert!(guard.unwrap().release().await.unwrap().was_held());
    }
    assert!(client.semaphore("gpu", 10).try_acquire().await.unwrap().held().is_none(), "3 of 3 are held");
    assert!(held.pop().unwrap().unwrap().release().await.unwrap().was_held());
    assert!(client.semaphore("gpu", 10).try_acquire().await.unwrap().held().is_some());
    let error = client.semaphore("gpu", 10).permits(4).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

async fn numbers_that_can_never_be_granted_are_refused(test: TestContext) {
    let client = test.client().await;
    for (limit, permits) in [(0, 1), (3, 0), (3, 4)] {
        let error = client.semaphore("gpu", limit).permits(permits).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{permits} of {limit}: {error}");
    }
    assert_eq!(client.set_limit("gpu", 0).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(client.lock("job").permits(2).acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    test.assert_empty().await;
}

async fn a_lock_is_no_semaphore_at_the_same_time(test: TestContext) {
    let client = test.client().await;
    let lock = client.lock("both").acquire().await.unwrap();
    let error = client.semaphore("both", 2).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OtherMode);
    assert!(
        error.to_string().contains("read-write lock") && error.to_string().contains("semaphore"),
        "{error}"
    );
    assert_eq!(client.set_limit("both", 2).await.unwrap_err().kind(), ErrorKind::OtherMode);
    assert!(lock.release().await.unwrap().was_held());
    let permit = client.semaphore("both", 2).acquire().await.unwrap();
    assert_eq!(client.lock("both").acquire().await.unwrap_err().kind(), ErrorKind::OtherMode);
    assert!(permit.release().await.unwrap().was_held());
}

async fn permits_are_inspected_with_their_limit(test: TestContext) {
    let client = test.client().await;
    let guard = client.semaphore("gpu", 4).permits(3).acquire().await.unwrap();
    let seen = client.inspect("gpu").await.unwrap();
    assert_eq!((seen.holders.total, seen.limit.map(u32::from)), (1, Some(4)));
    let Mode::Permits { take, of } = seen.held().unwrap().mode else { panic!("{seen:?}") };
    assert_eq!((take.get(), of.get()), (3, 4));
    assert_eq!((seen.permits_used(), seen.permits_free()), (Some(3), Some(1)));
    client.set_limit("gpu", 2).await.unwrap();
    let seen = client.inspect("gpu").await.unwrap();
    assert_eq!((seen.permits_used(), seen.permits_free()), (Some(3), Some(0)), "nothing was taken away");
    assert!(guard.release().await.unwrap().was_held());
    let lock = client.lock("job").acquire().await.unwrap();
    assert_eq!(client.inspect("job").await.unwrap().permits_used(), None, "no semaphore");
    assert!(lock.release().await.unwrap().was_held());
}

async fn permits_of_holders_that_are_not_listed_count(test: TestContext) {
    const HOLDERS: u32 = HOLDERS_SHOWN as u32 + 5;
    let client = test.client().await;
    let permit = || client.semaphore("gpu", 1_000).permits(2).ttl(ms(60_000)).acquire();
    let held = join_all((0..HOLDERS).map(|_| permit())).await;
    let seen = client.inspect("gpu").await.unwrap();
    assert_eq!((seen.holders.total, seen.holders.shown.len()), (HOLDERS, HOLDERS_SHOWN));
    assert_eq!((seen.permits_used(), seen.permits_free()), (Some(2 * HOLDERS), Some(1_000 - 2 * HOLDERS)));
    for guard in held {
        assert!(guard.unwrap().release().await.unwrap().was_held());
    }
}

async fn permits_are_counted_and_observed_as_such(test: TestContext) {
    let modes = Arc::new(Mutex::new(Vec::new()));
    let sink = modes.clone();
    let observer = move |event: &Event| {
        if let Event::Acquired { mode, .. } | Event::Released { mode, .. } = event {
            sink.lock().unwrap().push(mode.to_string());
        }
    };
    let client = test.client_with(|builder| builder.observer(observer)).await;
    let two = client.semaphore("gpu", 3).permits(2).acquire().await.unwrap();
    assert!(client.semaphore("gpu", 3).permits(2).try_acquire().await.unwrap().held().is_none());
    assert!(two.release().await.unwrap().was_held());
    assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    let stats = client.stats();
    let of = |mode: &str| (stats.by_mode[mode].attempts, stats.by_mode[mode].released);
    assert_eq!((of("permits"), of("exclusive"), stats.attempts), ((2, 1), (1, 1), 3));
    assert!(!stats.by_mode.contains_key("shared"), "never asked for");
    assert_eq!(*modes.lock().unwrap(), ["2 of 3 permits", "2 of 3 permits", "exclusive", "exclusive"]);
}

async fn a_permit_is_given_back_once(test: TestContext) {
    let client = test.client().await;
    let handle = client.semaphore("gpu", 2).acquire().await.unwrap().detach();
    let other = client.semaphore("gpu", 2).acquire().await.unwrap();
    assert_eq!(handle.release(&client).await.unwrap(), Released::Free);
    assert!(!handle.release(&client).await.unwrap().was_held(), "a second release");
    let third = client.semaphore("gpu", 2).try_acquire().await.unwrap().held().expect("one is free");
    assert!(client.semaphore("gpu", 2).try_acquire().await.unwrap().held().is_none(), "only one");
    assert!(other.release().await.unwrap().was_held() && third.release().await.unwrap().was_held());
}

async fn a_permit_that_ran_out_is_not_given_back_again(test: TestContext) {
    let client = test.client().await;
    let handle = client.semaphore("gpu", 2).permits(2).ttl(ms(300)).acquire().await.unwrap().detach();
    let one = client.semaphore("gpu", 2).wait(ms(20_000)).keep_alive().acquire().await.unwrap();
    let two = client.semaphore("gpu", 2).keep_alive().acquire().await.unwrap();
    for _ in 0..2 {
        assert!(!handle.release(&client).await.unwrap().was_held(), "it has ended");
    }
    assert!(client.semaphore("gpu", 2).try_acquire().await.unwrap().held().is_none(), "two of two are held");
    assert!(one.release().await.unwrap().was_held() && two.release().await.unwrap().was_held());
}

async fn a_stranger_gives_no_permit_back(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mode = Mode::Permits { take: NonZeroU32::MIN, of: NonZeroU32::MIN };
    let (first, second, third) =
        (client.claim_lock("gpu", mode), client.claim_lock("gpu", mode), client.claim_lock("gpu", mode));
    let Answer::Granted(grant) = client.leases().claim(&first, client.until()).await.unwrap() else {
        panic!("it is free")
    };
    let foreign = client.leases().release(&second.hold(grant.fence), client.until()).await.unwrap();
    assert!(!foreign.was_held(), "{foreign:?}");
    client.leases().abandon(&second, client.until()).await.unwrap();
    let third = client.leases().claim(&third, client.until()).await.unwrap();
    assert!(matches!(third, Answer::Busy { .. }), "{third:?}");
    assert!(client.leases().release(&first.hold(grant.fence), client.until()).await.unwrap().was_held());
    client.close().await;
}

async fn five_thousand_permits_are_taken_at_once(test: TestContext) {
    let client = test.client().await;
    let all = client.semaphore("gpu", 5_000).permits(5_000).acquire().await.unwrap();
    assert!(client.semaphore("gpu", 5_000).try_acquire().await.unwrap().held().is_none());
    assert_eq!(all.release().await.unwrap(), Released::Free);
}

async fn a_permit_does_not_become_a_read_lock(test: TestContext) {
    let client = test.client().await;
    let permit = client.semaphore("gpu", 2).keep_alive().acquire().await.unwrap();
    assert_eq!(permit.downgrade().await.unwrap_err().kind(), ErrorKind::Unsupported);
    eventually("the permit is given back", async || client.inspect("gpu").await.unwrap().holders.total == 0)
        .await;
    assert_eq!(client.inspect("gpu").await.unwrap().limit.map(u32::from), Some(2));
}
