//! The end of a client, and its beginning.

use futures_util::future::join_all;
use leasehold::{Error, ErrorKind, Fence};

use super::{
    TestContext,
    context::{ms, soon, until_waiting},
    eventually,
};

cases! {
    closing_settles_everything_that_was_dropped,
    a_call_after_close_is_an_error,
    closing_twice_is_harmless,
    closing_ends_waiting_attempts,
    closing_one_client_leaves_others_alone,
    a_lease_that_outlives_its_client_reports_its_loss,
    a_client_can_be_made_without_reaching_the_store,
    a_client_reports_its_store,
    a_healthy_store_has_facts,
}

async fn closing_settles_everything_that_was_dropped(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let locks = (0..50).map(|number| one.lock(format!("job:{number}")).ttl(ms(60_000)).acquire());
    drop(join_all(locks).await);
    one.close().await.unwrap();
    // Checked at once: closing returns when everything is settled, not some time later.
    assert!(two.list_page("job:", None, 100).await.unwrap().items.is_empty());
    test.assert_empty().await;
}

async fn a_call_after_close_is_an_error(test: TestContext) {
    let client = test.client().await;
    let lock = client.lock("made before");
    client.close().await.unwrap();
    let errors: [Error; 6] = [
        lock.acquire().await.unwrap_err(),
        client.lock("job").try_acquire().await.unwrap_err(),
        client.lock("job").run(async |_| ()).await.unwrap_err().into(),
        client.inspect("job").await.unwrap_err(),
        client.list_page("", None, 10).await.unwrap_err(),
        client.force_release("job", Fence::new(1)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("close") && !error.is_retryable(), "{error}");
    }
}

async fn closing_twice_is_harmless(test: TestContext) {
    let client = test.client().await;
    assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    client.close().await.unwrap();
    client.clone().close().await.unwrap();
}

async fn closing_ends_waiting_attempts(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").ttl(ms(60_000)).acquire().await.unwrap();
    let waiter = tokio::spawn(two.lock("job").ttl(ms(1_000)).wait(ms(60_000)).acquire());
    until_waiting(&one, "job", 1).await;
    two.close().await.unwrap();
    let error = soon("the attempt ends", waiter).await.unwrap().unwrap_err();
    assert_ne!(error.kind(), ErrorKind::TimedOut, "{error}");
    until_waiting(&one, "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
}

async fn closing_one_client_leaves_others_alone(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = two.lock("job").ttl(ms(1_500)).keep_alive().acquire().await.unwrap();
    one.close().await.unwrap();
    eventually("it is renewed", async || two.stats().renewed >= 2).await;
    assert!(guard.is_held());
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_lease_that_outlives_its_client_reports_its_loss(test: TestContext) {
    let client = test.client().await;
    let guard = client.lock("job").ttl(ms(400)).keep_alive().acquire().await.unwrap();
    client.close().await.unwrap();
    soon("the loss is reported", guard.lost()).await;
    assert!(!guard.is_held());
}

async fn a_client_can_be_made_without_reaching_the_store(test: TestContext) {
    let client = test.builder().connect_lazy().unwrap();
    assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    client.close().await.unwrap();
}

async fn a_client_reports_its_store(test: TestContext) {
    let client = test.client().await;
    assert!(!client.store().is_empty() && !client.capabilities().engine.is_empty());
    assert!(format!("{client:?}").contains(client.store()));
}

async fn a_healthy_store_has_facts(test: TestContext) {
    let client = test.client().await;
    let health = client.health().await.unwrap();
    assert!(!health.facts.is_empty());
    assert!(health.facts.iter().all(|(what, value)| !what.is_empty() && !value.is_empty()));
}
