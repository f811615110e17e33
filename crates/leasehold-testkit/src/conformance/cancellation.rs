//! Futures that are dropped: nothing stays held and nobody stays in a queue.

use futures_util::future::join_all;
use leasehold::Retry;

use super::{
    TestContext,
    context::{ms, poll_at_most, sleep, soon, until_waiting},
    eventually,
};

/// More polls than an attempt needs here; it then completes.
const POLLS: usize = 41;

cases! {
    an_acquire_of_a_free_lock_dropped_at_any_poll_leaves_nothing,
    an_acquire_of_a_held_lock_dropped_at_any_poll_leaves_nothing,
    an_acquire_dropped_while_it_is_handed_over_leaves_nothing,
    a_try_dropped_at_any_poll_leaves_nothing,
    a_run_dropped_midway_drops_its_body_and_releases,
    an_aborted_task_leaves_the_queue,
    cancelled_attempts_are_counted,
}

async fn an_acquire_of_a_free_lock_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let client = test.client().await;
    let attempts = (0..POLLS).map(|polls| {
        let lock = client.lock(format!("free:{polls}")).ttl(ms(60_000));
        poll_at_most(polls, lock.acquire())
    });
    let ended = join_all(attempts).await;
    assert!(ended[0].is_none() && ended[POLLS - 1].is_some());
    drop(ended);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn an_acquire_of_a_held_lock_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let names: Vec<_> = (0..POLLS).map(|polls| format!("held:{polls}")).collect();
    let guards = join_all(names.iter().map(|name| holder.lock(name).ttl(ms(60_000)).acquire())).await;
    let attempts = names.iter().enumerate().map(|(polls, name)| {
        let lock = client.lock(name).ttl(ms(60_000)).wait(ms(400)).retry(Retry::fixed(ms(5)));
        poll_at_most(polls, lock.acquire())
    });
    for ended in join_all(attempts).await.into_iter().flatten() {
        ended.expect_err("it was held all the time");
    }
    client.close().await.unwrap();
    for (name, guard) in names.iter().zip(guards) {
        let inspection = holder.inspect(name).await.unwrap();
        assert_eq!(inspection.waiting, 0, "{name} is still waited for");
        assert!(guard.unwrap().release().await.unwrap().was_held());
    }
    holder.close().await.unwrap();
    test.assert_empty().await;
}

async fn an_acquire_dropped_while_it_is_handed_over_leaves_nothing(test: TestContext) {
    let (holder, client) = (test.client().await, test.client().await);
    let rounds = (0..POLLS).map(|polls| {
        let (name, holder, client) = (format!("handed:{polls}"), holder.clone(), client.clone());
        async move {
            let guard = holder.lock(&name).ttl(ms(60_000)).acquire().await.unwrap();
            let lock = client.lock(&name).ttl(ms(60_000)).wait(ms(5_000)).retry(Retry::fixed(ms(5)));
            // Released while the attempt is somewhere between its first and its last poll.
            let release = async {
                sleep(ms(polls as u64 * 2)).await;
                assert!(guard.release().await.unwrap().was_held());
            };
            let (ended, ()) = tokio::join!(poll_at_most(polls, lock.acquire()), release);
            drop(ended);
        }
    });
    join_all(rounds).await;
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_try_dropped_at_any_poll_leaves_nothing(test: TestContext) {
    let client = test.client().await;
    let attempts = (0..POLLS).map(|polls| {
        let lock = client.lock(format!("try:{polls}")).ttl(ms(60_000));
        poll_at_most(polls, lock.try_acquire())
    });
    drop(join_all(attempts).await);
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn a_run_dropped_midway_drops_its_body_and_releases(test: TestContext) {
    let client = test.client().await;
    let (starts, started) = tokio::sync::oneshot::channel();
    let (alive, dropped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn({
        let lock = client.lock("job").ttl(ms(60_000));
        async move {
            let body = async move |_| {
                let _alive = alive;
                starts.send(()).unwrap();
                std::future::pending::<()>().await;
            };
            lock.run(body).await.map_err(leasehold::Error::from)
        }
    });
    soon("the body runs", started).await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    soon("the body is dropped", dropped).await.unwrap_err();
    client.close().await.unwrap();
    test.assert_empty().await;
}

async fn an_aborted_task_leaves_the_queue(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    for _ in 0..3 {
        let waiter = tokio::spawn(two.lock("job").wait(ms(60_000)).acquire());
        until_waiting(&one, "job", 1).await;
        waiter.abort();
        until_waiting(&one, "job", 0).await;
    }
    assert!(guard.release().await.unwrap().was_held());
}

async fn cancelled_attempts_are_counted(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    let waiter = tokio::spawn(client.lock("job").wait(ms(60_000)).acquire());
    until_waiting(&client, "job", 1).await;
    waiter.abort();
    eventually("it is counted", async || client.stats().cancelled == 1).await;
    assert_eq!(client.stats().attempts, 2);
}
