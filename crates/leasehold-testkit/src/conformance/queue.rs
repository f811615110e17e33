//! The order of the queue.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use leasehold::{Retry, engine::Released};

use super::{
    TestContext,
    context::{enqueue, eventually, ms, soon, until_waiting},
};

cases! {
    ten_waiters_are_served_in_the_order_they_came: Order,
    waiters_of_different_clients_share_one_queue: Order,
    a_newcomer_never_overtakes_a_waiter,
    a_newcomer_never_takes_an_expired_lock_before_a_waiter,
    a_newcomer_that_waits_goes_to_the_end: Order,
    a_cancelled_waiters_place_goes_to_the_next,
    a_waiter_that_timed_out_is_passed_over,
    a_hundred_waiters_are_served_once_each,
    the_queue_goes_on_when_holders_never_release,
    a_waiter_whose_program_ended_is_passed_over,
}

async fn ten_waiters_are_served_in_the_order_they_came(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    served_in_order(&[one], &two, 10).await;
}

async fn waiters_of_different_clients_share_one_queue(test: TestContext) {
    let clients = [test.client().await, test.client().await, test.client().await];
    served_in_order(&clients, &clients[0], 6).await;
}

async fn served_in_order(clients: &[leasehold::Leasehold], holder: &leasehold::Leasehold, waiters: u32) {
    let guard = holder.lock("job").acquire().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..waiters {
        let lock = clients[number as usize % clients.len()].lock("job").wait(ms(20_000));
        let served = served.clone();
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.lock().unwrap().push((number, guard.fence()));
            assert!(guard.release().await.unwrap().was_held());
        }));
        until_waiting(holder, "job", number + 1).await;
    }
    assert!(guard.release().await.unwrap().was_held());
    for task in tasks {
        soon("every waiter's turn", task).await.unwrap();
    }
    let served = served.lock().unwrap();
    let order: Vec<_> = served.iter().map(|(number, _)| *number).collect();
    assert_eq!(order, (0..waiters).collect::<Vec<_>>());
    assert!(served.is_sorted_by(|a, b| a.1 < b.1), "fences do not grow: {served:?}");
}

async fn a_newcomer_never_overtakes_a_waiter(test: TestContext) {
    let (one, two, new) = (test.client().await, test.client().await, test.client().await);
    for _ in 0..10 {
        let guard = one.lock("job").acquire().await.unwrap();
        let waiter = enqueue(&one, two.lock("job").wait(ms(20_000)), "job", 0).await;
        assert!(guard.release().await.unwrap().was_held());
        while !waiter.is_finished() {
            let attempt = new.lock("job").try_acquire().await.unwrap();
            assert!(attempt.held().is_none(), "a newcomer overtook the waiter");
            tokio::task::yield_now().await;
        }
        assert!(waiter.await.unwrap().release().await.unwrap().was_held());
    }
}

async fn a_newcomer_never_takes_an_expired_lock_before_a_waiter(test: TestContext) {
    let (one, two, new) = (test.client().await, test.client().await, test.client().await);
    for _ in 0..3 {
        let _gone = one.lock("job").ttl(ms(300)).acquire().await.unwrap().detach();
        let lock = two.lock("job").wait(ms(20_000));
        let waiter = tokio::spawn(async move { lock.acquire().await.expect("acquired after waiting") });
        // On a busy machine the lease may be over before anybody sees it wait.
        eventually("it waits, or has the lock", async || {
            waiter.is_finished() || one.inspect("job").await.unwrap().waiting == 1
        })
        .await;
        while !waiter.is_finished() {
            let attempt = new.lock("job").try_acquire().await.unwrap();
            assert!(attempt.held().is_none(), "a newcomer overtook the waiter");
            tokio::task::yield_now().await;
        }
        assert!(waiter.await.unwrap().release().await.unwrap().was_held());
    }
}

async fn a_newcomer_that_waits_goes_to_the_end(test: TestContext) {
    let (one, two, new) = (test.client().await, test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let first = enqueue(&one, two.lock("job"), "job", 0).await;
    // It retries as often as it can, and gains nothing by it.
    let eager = new.lock("job").retry(Retry::fixed(ms(1)));
    let second = enqueue(&one, eager, "job", 1).await;
    assert!(guard.release().await.unwrap().was_held());
    let guard = soon("the first", first).await.unwrap();
    assert!(!second.is_finished(), "the newcomer was served beside the first");
    let fence = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("the newcomer", second).await.unwrap().fence() > fence);
}

async fn a_cancelled_waiters_place_goes_to_the_next(test: TestContext) {
    let (one, two, three) = (test.client().await, test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let first = enqueue(&one, two.lock("job"), "job", 0).await;
    let second = enqueue(&one, three.lock("job"), "job", 1).await;
    first.abort();
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("the second", second).await.unwrap().release().await.unwrap().was_held());
    assert!(first.await.unwrap_err().is_cancelled());
    two.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_waiter_that_timed_out_is_passed_over(test: TestContext) {
    let (one, two, three) = (test.client().await, test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let lock = two.lock("job").wait(ms(2_000));
    let first = tokio::spawn(lock.acquire());
    until_waiting(&one, "job", 1).await;
    let second = enqueue(&one, three.lock("job").wait(ms(20_000)), "job", 1).await;
    soon("the first gives up", first).await.unwrap().unwrap_err();
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    assert!(soon("the second", second).await.unwrap().release().await.unwrap().was_held());
}

async fn a_hundred_waiters_are_served_once_each(test: TestContext) {
    const WAITERS: u64 = 100;
    let clients = [test.client().await, test.client().await, test.client().await, test.client().await];
    let guard = clients[0].lock("job").acquire().await.unwrap();
    let tasks: Vec<_> = (0..WAITERS as usize)
        .map(|number| {
            let lock = clients[number % clients.len()].lock("job").wait(ms(40_000));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let fence = guard.fence();
                assert!(guard.release().await.unwrap().was_held());
                fence
            })
        })
        .collect();
    until_waiting(&clients[0], "job", WAITERS as u32).await;
    assert!(guard.release().await.unwrap().was_held());
    let mut fences: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len() as u64, WAITERS, "two waiters had the same grant");
    let acquired: u64 = clients.iter().map(|client| client.stats().acquired).sum();
    assert_eq!(acquired, WAITERS + 1);
}

async fn the_queue_goes_on_when_holders_never_release(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let lock = || two.lock("job").ttl(ms(2_000)).wait(ms(20_000));
    let first = one.lock("job").ttl(ms(2_000)).acquire().await.unwrap().detach();
    let waiters = [enqueue(&one, lock(), "job", 0).await, enqueue(&one, lock(), "job", 1).await];
    let mut last = first.fence();
    for waiter in waiters {
        let handle = soon("its turn", waiter).await.unwrap().detach();
        assert!(handle.fence() > last);
        last = handle.fence();
    }
}

async fn a_waiter_whose_program_ended_is_passed_over(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    let watcher = one.clone();
    // Its runtime ends with it, so it cannot leave the queue.
    test.on_own_thread(false, async move |test| {
        let client = test.client().await;
        let attempt = client.lock("job").ttl(ms(300)).wait(ms(60_000)).acquire();
        tokio::select! {
            _ = attempt => panic!("granted while it was held"),
            () = until_waiting(&watcher, "job", 1) => {}
        }
    })
    .await;
    let next = tokio::spawn(two.lock("job").ttl(ms(300)).wait(ms(30_000)).acquire());
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("the next live waiter", next).await.unwrap().unwrap().release().await.unwrap().was_held());
}
