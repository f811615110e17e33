//! How long an attempt waits, how often it polls, and what it reports.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use leasehold::{Error, ErrorKind, Holder, OnOutage, Retry, engine::Released};

use super::{
    Slow, TestContext, Wrapped,
    context::{ANSWERED, enqueue, ms, sleep, soon, until_waiting},
};

cases! {
    a_timeout_reports_name_time_attempts_and_holder,
    a_wait_of_zero_asks_once,
    one_attempt_asks_once,
    max_attempts_bound_how_often_the_store_is_asked,
    a_fixed_retry_polls_at_its_interval,
    an_exponential_retry_asks_less_and_less,
    progress_is_reported_while_waiting,
    waiting_for_ever_waits_until_it_is_free,
    awaiting_a_lock_is_acquiring_it,
    a_free_lock_is_acquired_by_the_first_question,
    a_lock_freed_by_expiry_goes_to_the_waiter,
    a_waiter_outwaits_a_renewed_lease,
    a_force_release_wakes_the_waiter,
    a_hand_over_reaches_a_waiter_that_asked_only_once: Push,
    a_waiter_that_gave_up_is_not_granted,
    a_wait_that_ends_during_a_question_is_a_timeout: Contract,
}

async fn a_timeout_reports_name_time_attempts_and_holder(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let _guard = one.lock("job").label("nightly").acquire().await.unwrap();
    let error = two.lock("job").wait(ms(300)).acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::TimedOut && error.is_retryable());
    assert!(error.to_string().contains("\"job\""), "{error}");
    assert!(error.to_string().contains("held by this process, nightly ("), "{error}");
    let Error::TimedOut { name, waited, attempts, holder } = error else { unreachable!() };
    assert_eq!(name.as_str(), "job");
    assert!(waited >= ms(300), "{waited:?}");
    assert!(attempts >= 1);
    assert!(matches!(holder, Some(Holder::Leasehold { label, .. }) if label == "nightly"));
    assert_eq!(two.stats().timed_out, 1);
}

async fn a_wait_of_zero_asks_once(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").wait(Duration::ZERO).acquire().await.unwrap();
    match client.lock("job").wait(Duration::ZERO).acquire().await.unwrap_err() {
        Error::TimedOut { attempts: 1, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(guard.release().await.unwrap().was_held());
}

async fn one_attempt_asks_once(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    let began = Instant::now();
    match client.lock("job").wait(ms(60_000)).max_attempts(1).acquire().await.unwrap_err() {
        Error::TimedOut { attempts: 1, .. } => {}
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() < ms(30_000));
}

async fn max_attempts_bound_how_often_the_store_is_asked(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").acquire().await.unwrap();
    let lock = client.lock("job").wait(ms(60_000)).max_attempts(3).retry(Retry::fixed(ms(10)));
    match soon("three attempts", lock.acquire()).await.unwrap_err() {
        Error::TimedOut { attempts: 3, .. } => {}
        other => panic!("{other:?}"),
    }
    until_waiting(&client, "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_fixed_retry_polls_at_its_interval(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    let lock = client.lock("job").wait(ms(2_400)).retry(Retry::fixed(ms(60)));
    match lock.acquire().await.unwrap_err() {
        // Each pause is between half and all of 60 ms.
        Error::TimedOut { attempts, .. } => assert!((5..=82).contains(&attempts), "{attempts} attempts"),
        other => panic!("{other:?}"),
    }
}

async fn an_exponential_retry_asks_less_and_less(test: TestContext) {
    let client = test.client().await;
    let _guard = client.lock("job").acquire().await.unwrap();
    let attempts = async |retry| match client.lock("job").wait(ms(800)).retry(retry).acquire().await {
        Err(Error::TimedOut { attempts, .. }) => attempts,
        other => panic!("{other:?}"),
    };
    let (fixed, growing) = tokio::join!(
        attempts(Retry::fixed(ms(10))),
        attempts(Retry::exponential(ms(10), 10.0).up_to(ms(30_000)))
    );
    assert!(growing < fixed, "{growing} growing, {fixed} fixed");
}

async fn progress_is_reported_while_waiting(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").label("nightly").acquire().await.unwrap();
    let first = enqueue(&one, two.lock("job"), "job", 0).await;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let sink = reported.clone();
    let lock = two.lock("job").on_wait(move |state| {
        let holder = state.holder.map(ToString::to_string).unwrap_or_default();
        sink.lock().unwrap().push((state.ahead, holder, state.waited));
    });
    let second = enqueue(&one, lock, "job", 1).await;
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("the first", first).await.unwrap().release().await.unwrap().was_held());
    assert!(soon("the second", second).await.unwrap().release().await.unwrap().was_held());
    let reported = reported.lock().unwrap();
    let (ahead, holder, _) = reported.first().expect("reported at least once");
    // The nodes of a quorum may still list an owner value that the first one has spent.
    let most = if test.capabilities().engine == "redlock" { u32::MAX } else { 1 };
    assert!((1..=most).contains(ahead) && holder.contains("nightly"), "{reported:?}");
    assert!(reported.is_sorted_by_key(|(_, _, waited)| *waited));
}

async fn waiting_for_ever_waits_until_it_is_free(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job").wait_forever(), "job", 0).await;
    sleep(ms(200)).await;
    assert!(!waiter.is_finished());
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("its turn", waiter).await.unwrap().release().await.unwrap().was_held());
}

async fn awaiting_a_lock_is_acquiring_it(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").await.unwrap();
    assert!(guard.is_held() && guard.name().as_str() == "job");
}

async fn a_free_lock_is_acquired_by_the_first_question(test: TestContext) {
    let client = test.client().await;
    let asked = Arc::new(AtomicU32::new(0));
    let counts = asked.clone();
    let lock = client.lock("job").on_wait(move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
    });
    let guard = lock.acquire().await.unwrap();
    assert_eq!((asked.load(Ordering::SeqCst), client.stats().contended), (0, 0));
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_lock_freed_by_expiry_goes_to_the_waiter(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let began = Instant::now();
    let guard = one.lock("job").ttl(ms(400)).acquire().await.unwrap();
    let next = soon("the next holder", two.lock("job").wait(ms(15_000)).acquire()).await.unwrap();
    assert!(!guard.is_held(), "two holders at once");
    assert!(began.elapsed() >= ms(400) && next.fence() > guard.fence());
}

async fn a_waiter_outwaits_a_renewed_lease(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(1_500)).keep_alive().acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job").ttl(ms(1_500)).wait(ms(20_000)), "job", 0).await;
    for _ in 0..10 {
        sleep(ms(200)).await;
        assert!(!waiter.is_finished(), "granted while it was held");
    }
    assert!(guard.is_held());
    assert!(guard.release().await.unwrap().was_held());
    assert!(soon("its turn", waiter).await.unwrap().release().await.unwrap().was_held());
}

async fn a_force_release_wakes_the_waiter(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job"), "job", 0).await;
    let outcome = one.force_release("job", guard.fence()).await.unwrap();
    assert!(matches!(outcome, Released::HandedOver { .. }), "{outcome:?}");
    let next = soon("its turn", waiter).await.unwrap();
    assert!(next.fence() > guard.fence());
}

async fn a_hand_over_reaches_a_waiter_that_asked_only_once(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let counts = asked.clone();
    let lock = two.lock("job").ttl(ms(60_000)).retry(Retry::fixed(ms(60_000))).on_wait(move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
    });
    let waiter = enqueue(&one, lock.wait(ms(60_000)), "job", 0).await;
    let Released::HandedOver { next: Some(next), .. } = guard.release().await.unwrap() else {
        panic!("not handed over")
    };
    let guard = soon("its turn", waiter).await.unwrap();
    assert_eq!(guard.fence(), next);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the waiter had to poll again");
    assert_eq!((two.stats().handed_over, two.stats().contended), (1, 1));
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_waiter_that_gave_up_is_not_granted(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let error = two.lock("job").wait(ANSWERED).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    until_waiting(&one, "job", 0).await;
    assert_eq!(guard.release().await.unwrap(), Released::Free);
    let next = one.lock("job").try_acquire().await.unwrap().held().expect("a free lock");
    assert!(next.release().await.unwrap().was_held());
}

async fn a_wait_that_ends_during_a_question_is_a_timeout(test: TestContext) {
    let slow = Arc::new(Wrapped::new(test.engine(), Slow::claims(ms(80))));
    let (one, two) = (test.client().await, test.client_with(|builder| builder.engine(slow)).await);
    let _guard = one.lock("job").acquire().await.unwrap();
    let attempts = (0..20).map(|number| {
        // Long enough for a first answer from a busy store, without which it would be an outage.
        let lock = two.lock("job").wait(ms(1_500 + number * 10)).retry(Retry::fixed(ms(20)));
        lock.on_outage(OnOutage::Proceed).acquire_or_proceed()
    });
    for outcome in join_all(attempts).await {
        match outcome {
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            Ok(went_on) => panic!("continued beside the holder: {went_on:?}"),
        }
    }
}
