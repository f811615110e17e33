//! Waiting for somebody else's execution.

use std::time::Duration;

use leasehold::{
    ErrorKind,
    idempotency::{Begun, Idempotent, OnFailure},
};

use crate::fixture::{Fixture, LONG, SHORT};

/// Far less than the time after which a waiter asks by itself.
const BY_PUSH: Duration = Duration::from_secs(4);

async fn who_waits_is_woken_with_the_result_and_does_not_poll_for_it(fixture: Fixture) {
    let key = |leases: &leasehold::Leasehold| leases.idempotency("payout").key(42).wait(LONG);
    let execution = key(&fixture.leases).begin::<u32>().await.unwrap().yours().unwrap();
    let waiters: Vec<_> = [&fixture.leases, &fixture.other, &fixture.other]
        .into_iter()
        .map(|leases| tokio::spawn(key(leases).begin::<u32>()))
        .collect();
    // They have asked, and will not ask again for five seconds.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    let told_at = fixture.clock.now();
    execution.complete(&7).await.unwrap();
    for waiter in waiters {
        assert!(matches!(waiter.await.unwrap().unwrap(), Begun::Completed(7)));
    }
    assert!(fixture.clock.now().since(told_at) < BY_PUSH);
}

async fn who_waits_is_woken_to_execute_when_the_first_gives_up(fixture: Fixture) {
    let key = |leases: &leasehold::Leasehold| leases.idempotency("payout").key(42).wait(LONG);
    let execution = key(&fixture.leases).begin::<u32>().await.unwrap().yours().unwrap();
    let waiter = tokio::spawn(key(&fixture.other).begin::<u32>());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let told_at = fixture.clock.now();
    execution.fail("not today").await.unwrap();
    assert!(waiter.await.unwrap().unwrap().yours().is_some());
    assert!(fixture.clock.now().since(told_at) < BY_PUSH);
}

async fn who_waits_is_told_when_an_operator_removes_the_record(fixture: Fixture) {
    let key = |leases: &leasehold::Leasehold| leases.idempotency("payout").key(42).wait(LONG);
    let _dead = fixture.die_at("idempotency:payout:42", Duration::from_secs(300)).await;
    let waiter = tokio::spawn(key(&fixture.other).begin::<u32>());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let told_at = fixture.clock.now();
    assert!(key(&fixture.leases).remove().await.unwrap());
    assert!(waiter.await.unwrap().unwrap().yours().is_some());
    assert!(fixture.clock.now().since(told_at) < BY_PUSH);
}

async fn when_the_executor_dies_one_who_waits_takes_over_and_the_others_get_its_result(fixture: Fixture) {
    let dead = fixture.die_at("idempotency:payout:42", SHORT).await;
    let waiters: Vec<_> = (0..10)
        .map(|number| {
            let leases = if number % 2 == 0 { &fixture.leases } else { &fixture.other };
            let key = leases.idempotency("payout").key(42).wait(LONG);
            tokio::spawn(async move {
                let run = key.run(async |lease| {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Ok::<_, String>(lease.fence().get())
                });
                run.await.unwrap()
            })
        })
        .collect();
    let (mut executed, mut fences) = (0, Vec::new());
    for waiter in waiters {
        let outcome = waiter.await.unwrap();
        executed += usize::from(matches!(outcome, Idempotent::Executed(_)));
        fences.push(outcome.result().unwrap());
    }
    fences.dedup();
    assert_eq!((executed, fences.len()), (1, 1));
    assert!(fences[0] > dead.fence.get());
}

async fn a_wait_ends_with_who_is_at_it(fixture: Fixture) {
    let _dead = fixture.die_at("idempotency:payout:42", LONG).await;
    let key = fixture.leases.idempotency("payout").key(42).wait(Duration::from_millis(300));
    let began = fixture.clock.now();
    assert!(matches!(key.begin::<u32>().await.unwrap(), Begun::InProgress { .. }));
    assert!(fixture.clock.now().since(began) >= Duration::from_millis(300));
    assert_eq!(fixture.leases.stats().in_progress, 1);
}

async fn a_wait_that_is_dropped_leaves_nothing_behind(fixture: Fixture) {
    let key = |wait| fixture.leases.idempotency("payout").key(42).wait(wait);
    let first = key(Duration::ZERO).begin::<u32>().await.unwrap().yours().unwrap();
    let waiter = tokio::spawn(key(LONG).begin::<u32>());
    tokio::time::sleep(Duration::from_millis(300)).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    first.fail("again").await.unwrap();
    assert!(key(Duration::ZERO).begin::<u32>().await.unwrap().yours().is_some());
}

async fn who_waits_learns_that_its_client_was_closed(fixture: Fixture) {
    let _dead = fixture.die_at("idempotency:payout:42", LONG).await;
    let waiter = tokio::spawn(fixture.leases.idempotency("payout").key(42).wait(LONG).begin::<u32>());
    tokio::time::sleep(Duration::from_millis(300)).await;
    fixture.leases.close().await.unwrap();
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
}

async fn who_waits_gets_a_failure_that_is_replayed(fixture: Fixture) {
    let key = |leases: &leasehold::Leasehold| {
        leases.idempotency("payout").key(42).wait(LONG).on_failure(OnFailure::Replay)
    };
    let execution = key(&fixture.leases).begin::<u32>().await.unwrap().yours().unwrap();
    let waiter = tokio::spawn(key(&fixture.other).begin::<u32>());
    tokio::time::sleep(Duration::from_millis(300)).await;
    execution.fail("no funds").await.unwrap();
    assert!(matches!(waiter.await.unwrap().unwrap(), Begun::Failed { why } if why == "no funds"));
}

on_every_store!(
    who_waits_is_woken_with_the_result_and_does_not_poll_for_it,
    who_waits_is_woken_to_execute_when_the_first_gives_up,
    who_waits_is_told_when_an_operator_removes_the_record,
    when_the_executor_dies_one_who_waits_takes_over_and_the_others_get_its_result,
    a_wait_ends_with_who_is_at_it,
    a_wait_that_is_dropped_leaves_nothing_behind,
    who_waits_learns_that_its_client_was_closed,
    who_waits_gets_a_failure_that_is_replayed,
);
