//! Who executes, and what the others are told.

use std::sync::Arc;

use futures_util::FutureExt;
use leasehold::{
    Fence, Holder,
    engine::records::{Begin, Begun, Outcome, Settled},
    owner::Owner,
};

use super::{Party, completed, end, outcomes, request, short, told, wish};
use crate::conformance::{
    Stage,
    stage::{ms, sleep},
};

cases! {
    what_a_store_does_not_keep_it_refuses_with_a_reason: Contract,
    one_begins_and_others_see_who_is_at_it: Contract Records,
    beginning_again_is_the_same_execution_refreshed: Contract Records,
    a_hundred_begin_one_key_and_one_executes: Contract Records,
    another_request_is_a_mismatch_while_it_runs: Contract Records,
    another_request_is_a_mismatch_after_it_ended: Contract Records,
    without_a_fingerprint_nothing_is_compared: Contract Records,
    a_record_compares_its_owner_in_full: Contract Records,
    an_execution_that_died_is_followed_under_a_higher_fence: Contract Records,
    every_execution_of_a_key_has_a_higher_fence: Contract Records,
    keys_that_look_alike_are_different_records: Contract Records,
    an_execution_that_nobody_waited_for_is_ended_by_its_settlement: Contract Records,
}

async fn what_a_store_does_not_keep_it_refuses_with_a_reason(stage: Stage) {
    let engine = stage.engine();
    let refusals = [engine.records().err(), engine.deadlines().err()];
    if stage.capabilities().engine == "redlock" {
        assert!(refusals.iter().all(Option::is_some), "nodes that vote cannot agree on records");
    }
    for why in refusals.into_iter().flatten() {
        assert!(why.split(' ').count() > 4, "{why:?} is no reason");
    }
}

async fn one_begins_and_others_see_who_is_at_it(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let mine = wish(&one.name("payout"));
    let asked = one.now();
    let grant = one.granted(&mine).await;
    assert!(grant.since >= asked && grant.since <= one.now());
    assert_eq!(grant.ttl, mine.lease);
    for party in [&one, &two] {
        match party.begin(&wish(&mine.key)).await {
            Begun::Running { holder, expires_in } => {
                assert_eq!(holder, mine.owner.holder());
                assert!(!expires_in.is_zero() && expires_in <= mine.lease, "{expires_in:?}");
            }
            other => panic!("begun twice: {other:?}"),
        }
    }
}

async fn beginning_again_is_the_same_execution_refreshed(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = request(&party.name("payout"), "a");
    let first = party.granted(&mine).await;
    sleep(ms(300)).await;
    let before = party.expires_in(&mine.key).await;
    let again = party.granted(&mine).await;
    assert_eq!(again.fence, first.fence);
    assert!(again.since > first.since, "its lease is counted from the first time only");
    assert!(party.expires_in(&mine.key).await > before, "the answer was repeated without a refresh");
}

async fn a_hundred_begin_one_key_and_one_executes(stage: Stage) {
    let parties = [Arc::new(Party::join(&stage).await), Arc::new(Party::join(&stage).await)];
    let key = parties[0].name("payout");
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (party, mine) = (parties[number % 2].clone(), wish(&key));
            tokio::spawn(async move { party.begin(&mine).await })
        })
        .collect();
    let mut executing = 0;
    for task in tasks {
        match task.await.unwrap() {
            Begun::Yours(_) => executing += 1,
            Begun::Running { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(executing, 1);
}

async fn another_request_is_a_mismatch_while_it_runs(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("payout");
    let mine = request(&key, "a");
    let fence = party.yours(&mine).await;
    assert_eq!(party.begin(&request(&key, "b")).await, Begun::Mismatch);
    assert!(matches!(party.begin(&request(&key, "a")).await, Begun::Running { .. }));
    assert_eq!(party.stored(&key).await.fence, fence);
}

async fn another_request_is_a_mismatch_after_it_ended(stage: Stage) {
    let party = Party::join(&stage).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let key = party.name(&format!("payout:{number}"));
        let mine = request(&key, "a");
        let fence = party.yours(&mine).await;
        party.settle(&end(&mine, fence, outcome.clone())).await;
        let Some(told) = told(&outcome) else { continue };
        assert_eq!(party.begin(&request(&key, "b")).await, Begun::Mismatch, "{outcome:?}");
        assert_eq!(party.begin(&request(&key, "a")).await, told);
    }
}

async fn without_a_fingerprint_nothing_is_compared(stage: Stage) {
    let party = Party::join(&stage).await;
    let (with, without) = (party.name("with"), party.name("without"));
    for (mine, other) in [(request(&with, "a"), wish(&with)), (wish(&without), request(&without, "b"))] {
        let fence = party.yours(&mine).await;
        assert!(matches!(party.begin(&other).await, Begun::Running { .. }));
        party.complete(&mine, fence, "paid").await;
        assert_eq!(Some(party.begin(&other).await), told(&completed("paid")));
    }
}

async fn a_record_compares_its_owner_in_full(stage: Stage) {
    let party = Party::join(&stage).await;
    let with = |label| Owner::new(0xabcd, &Holder::this_process(label, 5_000));
    let mine = Begin { owner: with("abc"), ..wish(&party.name("payout")) };
    let prefix = Begin { owner: with("a"), ..mine.clone() };
    let fence = party.yours(&mine).await;
    assert!(matches!(party.begin(&prefix).await, Begun::Running { .. }));
    let other = end(&prefix, leasehold::Fence::new(fence.get() - 1), Outcome::Retry);
    assert_eq!(party.settle(&other).await, Settled::FencedOff { by: Some(fence) });
    assert_eq!(party.yours(&mine).await, fence);
}

async fn an_execution_that_died_is_followed_under_a_higher_fence(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let dead = short(&one.name("payout"));
    let fence = one.yours(&dead).await;
    one.until_gone(&dead.key).await;
    assert!(two.yours(&wish(&dead.key)).await > fence);
}

async fn every_execution_of_a_key_has_a_higher_fence(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let key = one.name("payout");
    let mut last = leasehold::Fence::new(0);
    for _ in 0..20 {
        for party in [&one, &two] {
            let mine = wish(&key);
            let fence = party.yours(&mine).await;
            assert!(fence > last, "{fence} after {last}");
            assert_eq!(party.settle(&end(&mine, fence, Outcome::Retry)).await, Settled::Stored);
            last = fence;
        }
    }
}

async fn keys_that_look_alike_are_different_records(stage: Stage) {
    let party = Party::join(&stage).await;
    let keys =
        ["a", "A", "a:", "a:b", "a b", "a%", "a*", "ä", "{a}:b", "a'\"", "1"].map(|key| party.name(key));
    for key in &keys {
        party.yours(&wish(key)).await;
    }
    for key in &keys {
        assert!(matches!(party.begin(&wish(key)).await, Begun::Running { .. }), "{key}");
    }
}

async fn an_execution_that_nobody_waited_for_is_ended_by_its_settlement(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = wish(&party.name("payout"));
    let _dropped = party.records().begin(&mine, party.until()).now_or_never();
    party.settle(&end(&mine, Fence::new(0), Outcome::Retry)).await;
    party.yours(&wish(&mine.key)).await;
}
