//! A client on a paused clock, which advances only when every task waits.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{Attempt, Clock, Error, Event, Guard, Leasehold, Lock, Retry, lease::validity};

use super::{
    TestContext,
    context::{ms, until_waiting},
};

cases! {
    the_same_seed_gives_the_same_story: PausedTime,
    a_loss_is_reported_exactly_on_time: PausedTime,
    a_wait_ends_exactly_when_it_must: PausedTime,
    an_hour_of_renewals_loses_nothing: PausedTime,
    a_waiter_takes_over_right_after_expiry: PausedTime,
}

async fn paused_client(test: &TestContext) -> (Leasehold, Clock) {
    let clock = Clock::tokio();
    (test.builder_on(clock.clone()).connect().await.unwrap(), clock)
}

async fn the_same_seed_gives_the_same_story(test: TestContext) {
    let (one, two) = (story(&test, "one", 7).await, story(&test, "two", 7).await);
    assert!(one.len() > 20, "{one:?}");
    assert_eq!(one, two);
    assert_ne!(one, story(&test, "three", 8).await, "the seed changes nothing");
}

/// Three clients that compete under one seed; returns the events of each, with their times.
async fn story(test: &TestContext, name: &'static str, seed: u64) -> Vec<String> {
    test.on_own_thread(true, async move |test| {
        let (clock, reported) = (Clock::tokio(), Arc::new(Mutex::new(Vec::new())));
        let began = clock.now();
        let mut tasks = Vec::new();
        for who in 0..3 {
            let (sink, reads) = (reported.clone(), clock.clone());
            let observer = move |event: &Event| {
                let at = reads.now().since(began);
                sink.lock().unwrap().push(format!("{at:?} {who} {}", without_fence(event)));
            };
            let builder = test.builder_on(clock.clone()).seed(seed + who).observer(observer);
            let client = builder.connect().await.unwrap();
            tasks.push(tokio::spawn(compete(client, name)));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let reported = reported.lock().unwrap();
        reported.clone()
    })
    .await
}

async fn compete(client: Leasehold, name: &str) {
    for round in 0..6 {
        let lock = client.lock(name).ttl(ms(400)).wait(ms(3_000)).retry(Retry::fixed(ms(30)));
        let guard = if round % 2 == 0 { lock.acquire().await.unwrap() } else { try_until_held(lock).await };
        tokio::time::sleep(ms(70)).await;
        // Sometimes nobody releases, and the lease expires.
        if round % 3 == 0 {
            let _handle = guard.detach();
        } else {
            assert!(guard.release().await.unwrap().was_held());
        }
    }
    client.close().await.unwrap();
}

/// Retries after the suggested pause, which is random.
async fn try_until_held(lock: Lock) -> Guard {
    loop {
        match lock.clone().try_acquire().await.unwrap() {
            Attempt::Held(guard) => return guard,
            Attempt::Busy { retry_after, .. } => tokio::time::sleep(retry_after).await,
        }
    }
}

/// Runs are compared although their fences differ.
fn without_fence(event: &Event) -> String {
    match event {
        Event::Acquired { waited, .. } => format!("acquired after {waited:?}"),
        Event::Released { .. } => "released".into(),
        Event::Lost { .. } => "lost".into(),
        other => format!("{other:?}"),
    }
}

async fn a_loss_is_reported_exactly_on_time(test: TestContext) {
    test.on_own_thread(true, async |test| {
        let (client, clock) = paused_client(&test).await;
        for ttl in [ms(50), ms(1_000), ms(30_000), ms(300_000)] {
            let began = clock.now();
            let guard = client.lock("job").ttl(ttl).acquire().await.unwrap();
            assert_eq!(guard.remaining(), ttl - validity::drift(ttl));
            guard.lost().await;
            // Timers tick in milliseconds.
            let reported = clock.now().since(began);
            let must = ttl - validity::drift(ttl) - validity::margin(ttl);
            assert!(
                reported >= must && reported <= must + ms(2),
                "reported after {reported:?} instead of {must:?}"
            );
            assert!(guard.release().await.unwrap().was_held());
        }
    })
    .await;
}

async fn a_wait_ends_exactly_when_it_must(test: TestContext) {
    test.on_own_thread(true, async |test| {
        let (client, _) = paused_client(&test).await;
        let _guard = client.lock("job").ttl(ms(300_000)).acquire().await.unwrap();
        for wait in [ms(1), ms(100), ms(5_000), ms(60_000)] {
            match client.lock("job").wait(wait).acquire().await.unwrap_err() {
                Error::TimedOut { waited, .. } => {
                    assert!(waited >= wait && waited <= wait + ms(2), "{waited:?} instead of {wait:?}");
                }
                other => panic!("{other}"),
            }
        }
    })
    .await;
}

async fn an_hour_of_renewals_loses_nothing(test: TestContext) {
    test.on_own_thread(true, async |test| {
        let (client, _) = paused_client(&test).await;
        let hour = Duration::from_secs(3_600);
        let guard = client.lock("job").ttl(ms(30_000)).keep_alive().acquire().await.unwrap();
        tokio::time::sleep(hour).await;
        assert!(guard.is_held());
        let renewed = client.stats().renewed;
        assert!((350..=370).contains(&renewed), "{renewed} renewals in an hour");
    })
    .await;
}

async fn a_waiter_takes_over_right_after_expiry(test: TestContext) {
    test.on_own_thread(true, async |test| {
        let (client, clock) = paused_client(&test).await;
        let began = clock.now();
        let _gone = client.lock("job").ttl(ms(10_000)).acquire().await.unwrap().detach();
        let waiter = tokio::spawn(client.lock("job").wait(ms(60_000)).acquire());
        until_waiting(&client, "job", 1).await;
        let _guard = waiter.await.unwrap().unwrap();
        let after = clock.now().since(began);
        assert!(after >= ms(10_000) && after <= ms(10_100), "taken over after {after:?}");
    })
    .await;
}
