//! Work under a lock.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
};

use futures_util::FutureExt;
use leasehold::{ErrorKind, OnOutage, Protection, RunError};

use super::{
    TestContext,
    context::{ANSWERED, is_closed, ms, sleep, soon},
};

cases! {
    a_run_returns_the_bodys_value_and_releases,
    a_run_gives_its_body_the_lease,
    a_run_releases_when_its_body_fails,
    a_run_is_kept_alive,
    a_fixed_run_is_cancelled_when_its_time_is_over,
    a_run_is_cancelled_when_its_lock_is_taken_away,
    a_busy_body_that_ends_too_late_is_lost_with_its_value,
    a_panic_in_the_body_releases_and_goes_on,
    a_run_without_the_lock_does_not_run,
    a_lost_run_leaves_the_next_holder_alone,
    a_lost_run_with_a_delay_keeps_the_delay,
    a_lock_on_a_healthy_store_is_held_whatever_the_policy,
    a_held_lock_is_no_reason_to_go_on,
}

async fn a_run_returns_the_bodys_value_and_releases(test: TestContext) {
    let client = test.client().await;
    let value = client.lock("job").run(async |_| 42).await.unwrap();
    assert_eq!(value, 42);
    assert!(!is_closed(&client, "job").await);
    assert_eq!((client.stats().released, client.stats().dropped), (1, 0));
}

async fn a_run_gives_its_body_the_lease(test: TestContext) {
    let client = test.client().await;
    let observer = test.client().await;
    let lease = client
        .lock("job")
        .run(async |lease| {
            let held = observer.inspect("job").await.unwrap().held().cloned().unwrap();
            assert_eq!(held.fence, lease.fence());
            assert!(lease.is_held() && lease.name().as_str() == "job");
            lease
        })
        .await
        .unwrap();
    assert!(!lease.is_held(), "the lease ended with the run");
}

async fn a_run_releases_when_its_body_fails(test: TestContext) {
    let client = test.client().await;
    let outcome = client.lock("job").run(async |_| Err::<(), _>("no luck")).await.unwrap();
    assert_eq!(outcome, Err("no luck"));
    assert!(!is_closed(&client, "job").await);
}

async fn a_run_is_kept_alive(test: TestContext) {
    let client = test.client().await;
    let body = async |_| {
        sleep(ms(3_200)).await;
        "done"
    };
    assert_eq!(client.lock("job").ttl(ms(1_500)).run(body).await.unwrap(), "done");
    assert!(client.stats().renewed >= 2);
}

async fn a_fixed_run_is_cancelled_when_its_time_is_over(test: TestContext) {
    let client = test.client().await;
    let (alive, dropped) = tokio::sync::oneshot::channel::<()>();
    let body = async move |_| {
        let _alive = alive;
        std::future::pending::<()>().await;
    };
    let outcome = soon("the run ends", client.lock("job").ttl(ms(300)).without_keep_alive().run(body)).await;
    match outcome.unwrap_err() {
        RunError::Lost { value: None, name, .. } => assert_eq!(name.as_str(), "job"),
        other => panic!("{other:?}"),
    }
    soon("the body was dropped", dropped).await.unwrap_err();
    assert_eq!((client.stats().lost, client.stats().renewed), (1, 0));
}

async fn a_run_is_cancelled_when_its_lock_is_taken_away(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let body = async |lease: leasehold::Lease| {
        assert!(two.force_release("job", lease.fence()).await.unwrap().was_held());
        std::future::pending::<()>().await;
    };
    let outcome = soon("the run ends", one.lock("job").ttl(ms(1_000)).run(body)).await;
    let error = leasehold::Error::from(outcome.unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("\"job\""), "{error}");
}

async fn a_busy_body_that_ends_too_late_is_lost_with_its_value(test: TestContext) {
    test.on_own_thread(false, async |test| {
        let client = test.client().await;
        let busy = async |_| {
            std::thread::sleep(ms(500));
            42
        };
        match client.lock("job").ttl(ms(300)).run(busy).await.unwrap_err() {
            RunError::Lost { value, .. } => assert_eq!(value, Some(42)),
            other => panic!("{other:?}"),
        }
        client.close().await.unwrap();
    })
    .await;
}

async fn a_panic_in_the_body_releases_and_goes_on(test: TestContext) {
    let client = test.client().await;
    let run = client.lock("job").run(async |_| {
        if true {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    });
    let panic = AssertUnwindSafe(run).catch_unwind().await.map(drop).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(!is_closed(&client, "job").await);
}

async fn a_run_without_the_lock_does_not_run(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    let not_run = async |_| panic!("ran without the lock");
    match client.lock("job").wait(ANSWERED).run(not_run).await.unwrap_err() {
        RunError::NotRun(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
        other => panic!("{other:?}"),
    }
    match client.lock("").run(not_run).await.unwrap_err() {
        RunError::NotRun(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
        other => panic!("{other:?}"),
    }
}

async fn a_lost_run_leaves_the_next_holder_alone(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let taken = Arc::new(Mutex::new(None));
    let (keeps, taker) = (taken.clone(), two.clone());
    let body = async move |lease: leasehold::Lease| {
        // A task of its own, because the body is cancelled at once.
        let takes = tokio::spawn(async move {
            assert!(taker.force_release("job", lease.fence()).await.unwrap().was_held());
            taker.lock("job").acquire().await.unwrap()
        });
        *keeps.lock().unwrap() = Some(takes);
        std::future::pending::<()>().await;
    };
    soon("the run ends", one.lock("job").ttl(ms(1_000)).run(body)).await.unwrap_err();
    one.close().await.unwrap();
    let taken = taken.lock().unwrap().take().expect("the body ran");
    let next = soon("the next holder", taken).await.unwrap();
    next.extend().await.expect("the next holder keeps it");
    assert_eq!(two.inspect("job").await.unwrap().held().unwrap().fence, next.fence());
}

async fn a_lost_run_with_a_delay_keeps_the_delay(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let lock = one.lock("job").ttl(ms(300)).lock_delay(ms(60_000)).without_keep_alive();
    soon("the run ends", lock.run(async |_| std::future::pending::<()>().await)).await.unwrap_err();
    one.close().await.unwrap();
    assert!(is_closed(&two, "job").await, "the delay ended with the run");
}

async fn a_lock_on_a_healthy_store_is_held_whatever_the_policy(test: TestContext) {
    let client = test.client().await;
    for policy in [OnOutage::Deny, OnOutage::Proceed] {
        match client.lock("job").on_outage(policy).acquire_or_proceed().await.unwrap() {
            Protection::Held(guard) => guard.release().await.map(drop).unwrap(),
            Protection::Unprotected { cause } => panic!("{cause}"),
        }
    }
    assert_eq!(client.stats().degraded, 0);
}

async fn a_held_lock_is_no_reason_to_go_on(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    for policy in [OnOutage::Deny, OnOutage::Proceed] {
        let lock = client.lock("job").wait(ANSWERED).on_outage(policy);
        let error = lock.acquire_or_proceed().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    assert_eq!(client.stats().degraded, 0);
}
