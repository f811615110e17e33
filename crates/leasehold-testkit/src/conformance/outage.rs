//! A store that is unreachable for a while.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use futures_util::future::join_all;
use leasehold::{Builder, Error, ErrorKind, Event, Leasehold, OnOutage, Protection};

use super::{
    TestContext,
    context::{is_closed, ms, sleep, soon},
    eventually,
};

cases! {
    an_unreachable_store_is_reported_as_such: Outage,
    an_outage_is_never_reported_as_a_timeout: Outage,
    a_policy_decides_whether_to_go_on: Outage,
    a_client_can_be_made_while_the_store_is_away: Outage,
    a_loss_is_reported_during_an_outage: Outage,
    a_short_break_loses_nothing: Outage,
    a_waiter_waits_out_a_break: Outage,
    a_release_without_an_answer_is_made_good: Outage,
    a_dropped_guard_is_given_back_after_a_break: Outage,
    an_observer_sees_an_outage: Outage,
}

/// Short, so that an outage is detected soon, but long enough for a busy disk.
fn impatient(builder: Builder) -> Builder {
    builder.command_timeout(ms(1_000))
}

async fn impatient_client(test: &TestContext) -> Leasehold {
    test.client_with(impatient).await
}

async fn an_unreachable_store_is_reported_as_such(test: TestContext) {
    let client = impatient_client(&test).await;
    test.cut().await;
    let errors = [
        ("acquiring \"job\"", client.lock("job").wait(ms(200)).acquire().await.unwrap_err()),
        ("acquiring \"job\"", client.lock("job").try_acquire().await.unwrap_err()),
        ("inspecting \"job\"", client.inspect("job").await.unwrap_err()),
        ("listing", client.list_page("", None, 10).await.unwrap_err()),
    ];
    test.mend().await;
    for (doing, error) in errors {
        assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}");
        assert!(error.is_retryable() && error.to_string().contains(doing), "{error}");
        assert!(error.to_string().contains(client.store()), "{error}");
    }
    let lock = client.lock("job").wait(ms(10_000));
    eventually("it works again", async || lock.clone().try_acquire().await.is_ok()).await;
}

async fn an_outage_is_never_reported_as_a_timeout(test: TestContext) {
    let client = impatient_client(&test).await;
    test.cut().await;
    // Waits of many lengths, so that some end in the middle of a pause.
    let attempts = (0..20).map(|number| client.lock("job").wait(ms(55 + number * 10)).acquire());
    let outcomes = join_all(attempts).await;
    test.mend().await;
    for outcome in outcomes {
        let error = outcome.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}");
    }
}

async fn a_policy_decides_whether_to_go_on(test: TestContext) {
    let client = impatient_client(&test).await;
    test.cut().await;
    let lock = || client.lock("job").wait(ms(200));
    let denied = lock().on_outage(OnOutage::Deny).acquire_or_proceed().await;
    let went_on = lock().on_outage(OnOutage::Proceed).acquire_or_proceed().await;
    let default = lock().acquire_or_proceed().await;
    test.mend().await;
    assert_eq!(denied.map(drop).unwrap_err().kind(), ErrorKind::StoreUnreachable);
    assert_eq!(default.map(drop).unwrap_err().kind(), ErrorKind::StoreUnreachable);
    match went_on.unwrap() {
        Protection::Unprotected { cause } => assert_eq!(cause.kind(), ErrorKind::StoreUnreachable),
        Protection::Held(_) => panic!("held without a store"),
    }
    assert_eq!(client.stats().degraded, 1);
}

async fn a_client_can_be_made_while_the_store_is_away(test: TestContext) {
    test.cut().await;
    let connected = impatient(test.builder()).connect().await;
    let lazy = impatient(test.builder()).connect_lazy();
    test.mend().await;
    assert_eq!(connected.map(drop).unwrap_err().kind(), ErrorKind::StoreUnreachable);
    let client = lazy.unwrap();
    let mut guard = None;
    eventually("the store is back", async || {
        guard = client.lock("job").wait(ms(1_000)).acquire().await.ok();
        guard.is_some()
    })
    .await;
    assert!(guard.unwrap().release().await.unwrap().was_held());
    client.close().await.unwrap();
}

async fn a_loss_is_reported_during_an_outage(test: TestContext) {
    let client = impatient_client(&test).await;
    let guard = client.lock("job").ttl(ms(1_500)).keep_alive().acquire().await.unwrap();
    eventually("it is renewed", async || client.stats().renewed >= 1).await;
    let cut = Instant::now();
    test.cut().await;
    soon("the loss is reported", guard.lost()).await;
    let reported = cut.elapsed();
    test.mend().await;
    assert!(reported <= ms(6_000), "reported {reported:?} after the store went away");
    assert!(!guard.is_held());
    sleep(ms(600)).await;
    assert!(!guard.is_held(), "a store that came back revived it");
}

async fn a_short_break_loses_nothing(test: TestContext) {
    let client = impatient_client(&test).await;
    let guard = client.lock("job").ttl(ms(6_000)).keep_alive().acquire().await.unwrap();
    test.cut().await;
    eventually("a renewal is missed", async || client.stats().renew_miss >= 1).await;
    let renewed = client.stats().renewed;
    test.mend().await;
    eventually("it is renewed again", async || client.stats().renewed > renewed).await;
    assert!(guard.is_held() && client.stats().lost == 0);
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_waiter_waits_out_a_break(test: TestContext) {
    let (one, two) = (impatient_client(&test).await, impatient_client(&test).await);
    let guard = one.lock("job").ttl(ms(20_000)).acquire().await.unwrap();
    let waiter = super::context::enqueue(&one, two.lock("job").wait(ms(30_000)), "job", 0).await;
    test.cut().await;
    sleep(ms(700)).await;
    test.mend().await;
    assert!(!waiter.is_finished(), "gave up during the break");
    let lease = guard.lease();
    let mut guard = Some(guard);
    eventually("the store is back", async || one.inspect("job").await.is_ok()).await;
    assert!(lease.is_held());
    assert!(guard.take().unwrap().release().await.unwrap().was_held());
    assert!(soon("its turn", waiter).await.unwrap().release().await.unwrap().was_held());
}

async fn a_release_without_an_answer_is_made_good(test: TestContext) {
    let client = impatient_client(&test).await;
    let guard = client.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    test.cut().await;
    let error = guard.release().await.unwrap_err();
    test.mend().await;
    assert!(
        matches!(&error, Error::StoreUnreachable { doing, .. } if doing.contains("releasing")),
        "{error}"
    );
    let observer = test.client().await;
    eventually("the lock is free", async || !is_closed(&observer, "job").await).await;
    assert_eq!(client.stats().release_failed, 1);
}

async fn a_dropped_guard_is_given_back_after_a_break(test: TestContext) {
    let client = impatient_client(&test).await;
    let guard = client.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    test.cut().await;
    drop(guard);
    sleep(ms(400)).await;
    test.mend().await;
    let observer = test.client().await;
    eventually("the lock is free", async || !is_closed(&observer, "job").await).await;
}

async fn an_observer_sees_an_outage(test: TestContext) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let observer = move |event: &Event| sink.lock().unwrap().push(event.clone());
    let client = test.client_with(|builder| impatient(builder).observer(observer)).await;
    test.cut().await;
    client.lock("job").wait(ms(100)).acquire().await.unwrap_err();
    test.mend().await;
    let reported = events.lock().unwrap();
    let error = reported.iter().find_map(|event| match event {
        Event::Error { kind, name, text } => Some((*kind, name.as_ref()?.to_string(), text.clone())),
        _ => None,
    });
    let (kind, name, text) = error.expect("an error was reported");
    assert_eq!((kind, name.as_str()), (ErrorKind::StoreUnreachable, "job"));
    assert!(text.contains("acquiring"), "{text}");
}
