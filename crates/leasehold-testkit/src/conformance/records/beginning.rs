//! Which attempt executes, and what the others get.

use std::sync::Arc;

use futures_util::FutureExt;
use leasehold::{
    Fence, Holder,
    engine::records::{Begin, Begun, Outcome, Settled},
    owner::Owner,
};

use super::{EngineClient, attempt, completed, end, outcomes, reply_for, request, short};
use crate::conformance::{
    TestContext,
    context::{ms, sleep},
};

cases! {
    an_unsupported_feature_is_refused_with_a_reason: Contract,
    one_begins_and_others_see_who_executes: Contract Records,
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

async fn an_unsupported_feature_is_refused_with_a_reason(test: TestContext) {
    let engine = test.engine();
    let refusals = [engine.records().err(), engine.deadlines().err()];
    if test.capabilities().engine == "redlock" {
        assert!(refusals.iter().all(Option::is_some), "a quorum does not support records");
    }
    for why in refusals.into_iter().flatten() {
        assert!(why.split(' ').count() > 4, "{why:?} is no reason");
    }
}

async fn one_begins_and_others_see_who_executes(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let mine = attempt(&one.name("payout"));
    let asked = one.now();
    let grant = one.granted(&mine).await;
    assert!(grant.since >= asked && grant.since <= one.now());
    assert_eq!(grant.ttl, mine.lease);
    for client in [&one, &two] {
        match client.begin(&attempt(&mine.key)).await {
            Begun::Running { holder, expires_in } => {
                assert_eq!(holder, mine.owner.holder());
                assert!(!expires_in.is_zero() && expires_in <= mine.lease, "{expires_in:?}");
            }
            other => panic!("begun twice: {other:?}"),
        }
    }
}

async fn beginning_again_is_the_same_execution_refreshed(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = request(&client.name("payout"), "a");
    let first = client.granted(&mine).await;
    sleep(ms(300) + test.step()).await;
    let before = client.expires_in(&mine.key).await;
    let again = client.granted(&mine).await;
    assert_eq!(again.fence, first.fence);
    assert!(again.since > first.since, "its lease is counted from the first time only");
    assert!(client.expires_in(&mine.key).await > before, "the answer was repeated without a refresh");
}

async fn a_hundred_begin_one_key_and_one_executes(test: TestContext) {
    let clients =
        [Arc::new(EngineClient::connect(&test).await), Arc::new(EngineClient::connect(&test).await)];
    let key = clients[0].name("payout");
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (client, mine) = (clients[number % 2].clone(), attempt(&key));
            tokio::spawn(async move { client.begin(&mine).await })
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

async fn another_request_is_a_mismatch_while_it_runs(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("payout");
    let mine = request(&key, "a");
    let fence = client.yours(&mine).await;
    assert_eq!(client.begin(&request(&key, "b")).await, Begun::Mismatch);
    assert!(matches!(client.begin(&request(&key, "a")).await, Begun::Running { .. }));
    assert_eq!(client.stored(&key).await.fence, fence);
}

async fn another_request_is_a_mismatch_after_it_ended(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let key = client.name(&format!("payout:{number}"));
        let mine = request(&key, "a");
        let fence = client.yours(&mine).await;
        client.settle(&end(&mine, fence, outcome.clone())).await;
        let Some(expected) = reply_for(&outcome) else { continue };
        assert_eq!(client.begin(&request(&key, "b")).await, Begun::Mismatch, "{outcome:?}");
        assert_eq!(client.begin(&request(&key, "a")).await, expected);
    }
}

async fn without_a_fingerprint_nothing_is_compared(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (with, without) = (client.name("with"), client.name("without"));
    for (mine, other) in [(request(&with, "a"), attempt(&with)), (attempt(&without), request(&without, "b"))]
    {
        let fence = client.yours(&mine).await;
        assert!(matches!(client.begin(&other).await, Begun::Running { .. }));
        client.complete(&mine, fence, "paid").await;
        assert_eq!(Some(client.begin(&other).await), reply_for(&completed("paid")));
    }
}

async fn a_record_compares_its_owner_in_full(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let with = |label| Owner::new(0xabcd, &Holder::this_process(label, 5_000));
    let mine = Begin { owner: with("abc"), ..attempt(&client.name("payout")) };
    let prefix = Begin { owner: with("a"), ..mine.clone() };
    let fence = client.yours(&mine).await;
    assert!(matches!(client.begin(&prefix).await, Begun::Running { .. }));
    let other = end(&prefix, leasehold::Fence::new(fence.get() - 1), Outcome::Retry);
    assert_eq!(client.settle(&other).await, Settled::FencedOff { by: Some(fence) });
    assert_eq!(client.yours(&mine).await, fence);
}

async fn an_execution_that_died_is_followed_under_a_higher_fence(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let dead = short(&one.name("payout"));
    let fence = one.yours(&dead).await;
    one.until_gone(&dead.key).await;
    assert!(two.yours(&attempt(&dead.key)).await > fence);
}

async fn every_execution_of_a_key_has_a_higher_fence(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let key = one.name("payout");
    let mut last = leasehold::Fence::new(0);
    for _ in 0..20 {
        for client in [&one, &two] {
            let mine = attempt(&key);
            let fence = client.yours(&mine).await;
            assert!(fence > last, "{fence} after {last}");
            assert_eq!(client.settle(&end(&mine, fence, Outcome::Retry)).await, Settled::Stored);
            last = fence;
        }
    }
}

async fn keys_that_look_alike_are_different_records(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let keys =
        ["a", "A", "a:", "a:b", "a b", "a%", "a*", "ä", "{a}:b", "a'\"", "1"].map(|key| client.name(key));
    for key in &keys {
        client.yours(&attempt(key)).await;
    }
    for key in &keys {
        assert!(matches!(client.begin(&attempt(key)).await, Begun::Running { .. }), "{key}");
    }
}

async fn an_execution_that_nobody_waited_for_is_ended_by_its_settlement(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = attempt(&client.name("payout"));
    let _dropped = client.records().begin(&mine, client.until()).now_or_never();
    client.settle(&end(&mine, Fence::new(0), Outcome::Retry)).await;
    client.yours(&attempt(&mine.key)).await;
}
