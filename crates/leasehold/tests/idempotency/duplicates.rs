//! One of many executes, and all get its result.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold::idempotency::{Begun, Idempotent, Settled};

use crate::fixture::{Fixture, LONG, SHORT};

type Payout = Idempotent<String, String>;

async fn a_second_call_gets_the_first_ones_result(fixture: Fixture) {
    let run = |result: &'static str| {
        let key = fixture.leases.idempotency("payout").key(42);
        async move { key.run(async |_| Ok::<_, String>(result.to_owned())).await.unwrap() }
    };
    assert!(matches!(run("first").await, Payout::Executed(result) if result == "first"));
    assert!(matches!(run("second").await, Payout::Replayed(result) if result == "first"));
    let stats = fixture.leases.stats();
    assert_eq!((stats.executed, stats.replayed), (1, 1));
    assert!(stats.prometheus().contains("leasehold_replayed_total 1"));
}

async fn of_a_hundred_at_once_one_executes_and_all_have_its_result(fixture: Fixture) {
    let executions = Arc::new(AtomicU32::new(0));
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let leases = if number % 2 == 0 { &fixture.leases } else { &fixture.other };
            let key = leases.idempotency("payout").key(42).fingerprint(&("EUR", 5)).wait(LONG);
            let executions = executions.clone();
            tokio::spawn(async move {
                let body = async |_| {
                    executions.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    Ok::<_, String>(number)
                };
                key.run(body).await.unwrap().result().unwrap()
            })
        })
        .collect();
    let mut results = Vec::new();
    for call in calls {
        results.push(call.await.unwrap());
    }
    results.dedup();
    assert_eq!((executions.load(Ordering::SeqCst), results.len()), (1, 1));
}

async fn without_a_wait_duplicates_are_told_who_is_at_it(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(42).label("first");
    let execution = key().begin::<u32>().await.unwrap().yours().unwrap();
    match fixture.other.idempotency("payout").key(42).begin::<u32>().await.unwrap() {
        Begun::InProgress { holder, look_again } => {
            assert!(holder.to_string().contains("first"), "{holder}");
            assert!(look_again <= Duration::from_secs(30) && look_again > Duration::from_secs(1));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(execution.complete(&7).await.unwrap(), Settled::Stored);
    assert!(matches!(key().begin::<u32>().await.unwrap(), Begun::Completed(7)));
}

async fn the_slow_first_cannot_overwrite_the_second(fixture: Fixture) {
    let slow = fixture.die_at("idempotency:payout:42", SHORT).await;
    let key = fixture.leases.idempotency("payout").key(42).wait(LONG);
    let second = key.clone().begin::<String>().await.unwrap().yours().unwrap();
    assert!(second.fence() > slow.fence);
    let fenced_off = Settled::FencedOff { by: Some(second.fence()) };
    assert_eq!(fixture.late(&slow, b"\"slow\"").await, fenced_off);
    assert_eq!(second.complete(&"second".into()).await.unwrap(), Settled::Stored);
    assert_eq!(fixture.late(&slow, b"\"slow\"").await, fenced_off);
    assert!(matches!(key.begin::<String>().await.unwrap(), Begun::Completed(result) if result == "second"));
}

async fn a_late_first_that_nobody_followed_counts(fixture: Fixture) {
    let late = fixture.die_at("idempotency:payout:42", Duration::from_millis(100)).await;
    let key = fixture.leases.idempotency("payout").key(42);
    leasehold_testkit::eventually_async(LONG, "the lease is over", || async {
        key.get().await.unwrap().is_none()
    })
    .await;
    assert_eq!(fixture.late(&late, b"\"late\"").await, Settled::Stored);
    assert!(matches!(key.begin::<String>().await.unwrap(), Begun::Completed(result) if result == "late"));
}

async fn an_execution_lives_longer_than_its_lease(fixture: Fixture) {
    let key = fixture.leases.idempotency("payout").key(42).lease_ttl(Duration::from_secs(1));
    let execution = key.clone().begin::<u32>().await.unwrap().yours().unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(execution.is_held());
    assert!(matches!(key.begin::<u32>().await.unwrap(), Begun::InProgress { .. }));
    assert_eq!(execution.complete(&1).await.unwrap(), Settled::Stored);
}

async fn another_payload_under_the_same_key_is_a_mismatch(fixture: Fixture) {
    let key = |amount: u32| fixture.leases.idempotency("payout").key(42).fingerprint(&("EUR", amount));
    let execution = key(5).begin::<u32>().await.unwrap().yours().unwrap();
    assert!(matches!(key(6).begin::<u32>().await.unwrap(), Begun::Mismatch));
    execution.complete(&1).await.unwrap();
    assert!(matches!(key(6).begin::<u32>().await.unwrap(), Begun::Mismatch));
    assert!(matches!(key(5).begin::<u32>().await.unwrap(), Begun::Completed(1)));
    assert_eq!(fixture.leases.stats().mismatched, 2);
}

async fn at_most_once_lets_one_of_many_go_on(fixture: Fixture) {
    let calls = (0..50).map(|number| {
        let leases = if number % 2 == 0 { &fixture.leases } else { &fixture.other };
        leases.idempotency("mail").key("a@b").at_most_once()
    });
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers.into_iter().filter(|answer| answer.as_ref().unwrap().is_first()).count(), 1);
    // The three-state call takes the bare mark for something that was done.
    let key = || fixture.leases.idempotency("mail").key("a@b");
    assert!(matches!(key().begin::<u32>().await.unwrap(), Begun::DoneElsewhere));
    // And the other way round it skips.
    let begun = fixture.leases.idempotency("mail").key(1).begin::<u32>().await.unwrap().yours().unwrap();
    assert!(!fixture.other.idempotency("mail").key(1).at_most_once().await.unwrap().is_first());
    begun.complete(&1).await.unwrap();
    assert!(!fixture.other.idempotency("mail").key(1).at_most_once().await.unwrap().is_first());
}

on_every_store!(
    a_second_call_gets_the_first_ones_result,
    of_a_hundred_at_once_one_executes_and_all_have_its_result,
    without_a_wait_duplicates_are_told_who_is_at_it,
    the_slow_first_cannot_overwrite_the_second,
    a_late_first_that_nobody_followed_counts,
    an_execution_lives_longer_than_its_lease,
    another_payload_under_the_same_key_is_a_mismatch,
    at_most_once_lets_one_of_many_go_on,
);
