//! How an execution ends: as policies say, with results that cannot be stored, dropped, lost.

use std::{collections::HashMap, time::Duration};

use leasehold::{
    Error, ErrorKind,
    idempotency::{Begun, Idempotent, OnFailure, Settled},
};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, LONG};

async fn a_failure_is_retried_replayed_or_kept(fixture: Fixture) {
    let run = |policy, fails: bool| {
        let key = fixture.leases.idempotency("payout").key(format!("{policy:?}")).on_failure(policy);
        let body = async move |_| if fails { Err("no funds") } else { Ok(5) };
        async move { key.run(body).await.unwrap() }
    };
    for policy in [OnFailure::Retry, OnFailure::Replay, OnFailure::Quarantine] {
        assert!(matches!(run(policy, true).await, Idempotent::Failed("no funds")), "{policy:?}");
    }
    assert!(matches!(run(OnFailure::Retry, false).await, Idempotent::Executed(5)));
    assert!(
        matches!(run(OnFailure::Replay, false).await, Idempotent::ReplayedFailure(why) if why == "no funds")
    );
    assert!(
        matches!(run(OnFailure::Quarantine, false).await, Idempotent::Quarantined { why } if why == "no funds")
    );
    // Somebody has looked.
    assert!(fixture.leases.idempotency("payout").key("Quarantine").remove().await.unwrap());
    assert!(matches!(run(OnFailure::Quarantine, false).await, Idempotent::Executed(5)));
}

async fn a_result_that_is_too_large_is_given_back_and_never_computed_again(fixture: Fixture) {
    let run = || {
        let key = fixture.leases.idempotency("report").key(1).result_max(1000);
        key.run(async |_| Ok::<_, String>("x".repeat(2000)))
    };
    match run().await.unwrap() {
        Idempotent::Unstored { result, why } => {
            assert_eq!((result.len(), why.kind()), (2000, ErrorKind::Invalid));
            assert!(why.to_string().contains("2002 bytes"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(run().await.unwrap(), Idempotent::Quarantined { why } if why.contains("at most 1000 bytes"))
    );
}

async fn a_result_that_cannot_be_written_is_given_back_and_never_computed_again(fixture: Fixture) {
    let run = || {
        let key = fixture.leases.idempotency("report").key(1);
        key.run(async |_| Ok::<_, String>(HashMap::from([((1, 2), 3)])))
    };
    let outcome = run().await.unwrap();
    assert!(matches!(outcome, Idempotent::Unstored { result, .. } if result[&(1, 2)] == 3));
    assert!(matches!(run().await.unwrap(), Idempotent::Quarantined { .. }));
}

async fn the_largest_result_is_replayed(fixture: Fixture) {
    let run = || {
        let key = fixture.leases.idempotency("report").key(1);
        key.run(async |_| Ok::<_, String>("ä".repeat(128 * 1024 - 1)))
    };
    assert!(matches!(run().await.unwrap(), Idempotent::Executed(_)));
    assert!(matches!(run().await.unwrap(), Idempotent::Replayed(result) if result.chars().all(|c| c == 'ä')));
}

async fn a_result_of_another_type_is_corrupt_and_left_alone(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(1);
    key().begin::<u32>().await.unwrap().yours().unwrap().complete(&7).await.unwrap();
    match key().begin::<Vec<String>>().await.unwrap_err() {
        Error::Corrupt { key, .. } => assert_eq!(key.as_str(), "idempotency:payout:1"),
        other => panic!("{other}"),
    }
    assert!(matches!(key().begin::<u32>().await.unwrap(), Begun::Completed(7)));
}

async fn an_execution_that_is_dropped_is_the_next_ones(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(1).lease_ttl(Duration::from_secs(300));
    drop(key().begin::<u32>().await.unwrap());
    let next = key().wait(LONG).begin::<u32>().await.unwrap();
    assert!(next.yours().is_some());
}

async fn a_body_that_is_dropped_or_panics_is_the_next_ones(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(1).lease_ttl(Duration::from_secs(300)).wait(LONG);
    let running = tokio::spawn(key().run(async |_| std::future::pending::<Result<u32, String>>().await));
    eventually_async(LONG, "it runs", || async { key().get().await.unwrap().is_some() }).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let panics = tokio::spawn(key().run(async |_| -> Result<u32, String> { panic!("as the test wants") }));
    assert!(panics.await.unwrap_err().is_panic());
    assert!(matches!(key().run(async |_| Ok::<_, String>(3)).await.unwrap(), Idempotent::Executed(3)));
}

async fn what_is_to_be_kept_is_left_to_its_lease_when_dropped(fixture: Fixture) {
    let key = || {
        let key = fixture.leases.idempotency("payout").key(1);
        key.lease_ttl(Duration::from_millis(800)).on_failure(OnFailure::Quarantine)
    };
    let began = fixture.clock.now();
    drop(key().begin::<u32>().await.unwrap());
    let next = key().wait(LONG).begin::<u32>().await.unwrap().yours().unwrap();
    assert!(fixture.clock.now().since(began) >= Duration::from_millis(790));
    assert_eq!(next.complete(&1).await.unwrap(), Settled::Stored);
}

async fn a_result_is_stored_although_nobody_waits_for_the_answer(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(1);
    let execution = key().begin::<u32>().await.unwrap().yours().unwrap();
    {
        // Polled once, then dropped.
        let complete = execution.complete(&7);
        tokio::pin!(complete);
        let _ = futures_util::poll!(&mut complete);
    }
    eventually_async(LONG, "the result", || async {
        matches!(key().begin::<u32>().await.unwrap(), Begun::Completed(7))
    })
    .await;
}

async fn closing_waits_for_what_was_dropped(fixture: Fixture) {
    let key = |leases: &leasehold::Leasehold| leases.idempotency("payout").key(1);
    drop(key(&fixture.leases).begin::<u32>().await.unwrap());
    fixture.leases.close().await.unwrap();
    assert!(key(&fixture.other).begin::<u32>().await.unwrap().yours().is_some());
}

async fn a_body_whose_lease_is_lost_is_cancelled(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(1).lease_ttl(Duration::from_secs(1));
    let running = tokio::spawn(key().run(async |_| std::future::pending::<Result<u32, String>>().await));
    eventually_async(LONG, "it runs", || async { key().get().await.unwrap().is_some() }).await;
    assert!(fixture.other.idempotency("payout").key(1).remove().await.unwrap());
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert_eq!(fixture.leases.stats().lost, 1);
}

async fn a_body_that_ends_late_is_fenced_off_with_its_result(fixture: Fixture) {
    let key = |leases: &leasehold::Leasehold| leases.idempotency("payout").key(1);
    let slow = key(&fixture.leases).begin::<u32>().await.unwrap().yours().unwrap();
    assert!(key(&fixture.other).remove().await.unwrap());
    let second = key(&fixture.other).begin::<u32>().await.unwrap().yours().unwrap();
    let settled = slow.complete(&1).await.unwrap();
    assert_eq!(settled, Settled::FencedOff { by: Some(second.fence()) });
    assert_eq!(second.complete(&2).await.unwrap(), Settled::Stored);
    assert!(matches!(key(&fixture.leases).begin::<u32>().await.unwrap(), Begun::Completed(2)));
    assert_eq!(fixture.leases.stats().fenced_off, 1);
}

on_every_store!(
    a_failure_is_retried_replayed_or_kept,
    a_result_that_is_too_large_is_given_back_and_never_computed_again,
    a_result_that_cannot_be_written_is_given_back_and_never_computed_again,
    the_largest_result_is_replayed,
    a_result_of_another_type_is_corrupt_and_left_alone,
    an_execution_that_is_dropped_is_the_next_ones,
    a_body_that_is_dropped_or_panics_is_the_next_ones,
    what_is_to_be_kept_is_left_to_its_lease_when_dropped,
    a_result_is_stored_although_nobody_waits_for_the_answer,
    closing_waits_for_what_was_dropped,
    a_body_whose_lease_is_lost_is_cancelled,
    a_body_that_ends_late_is_fenced_off_with_its_result,
);
