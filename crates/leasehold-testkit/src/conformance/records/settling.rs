//! How executions end, and which outcome counts.

use bytes::Bytes;
use leasehold::{
    Fence,
    engine::records::{Begin, Begun, Outcome, Settle, Settled, State},
};

use super::{EngineClient, attempt, completed, end, outcomes, reply_for, request, short};
use crate::conformance::{TestContext, context::ms};

cases! {
    an_outcome_goes_away_when_its_time_is_over: Contract Records,
    a_slow_execution_is_fenced_off_by_a_later_one: Contract Records,
    a_slow_execution_is_fenced_off_by_one_that_has_ended: Contract Records,
    a_slow_execution_is_fenced_off_by_one_that_left_nothing: Contract Records,
    a_late_settlement_that_nobody_followed_counts: Contract Records,
    a_settlement_of_a_lost_record_counts: Contract Records,
    every_attempt_gets_the_outcome: Contract Records,
    an_outcome_is_shown_with_its_fence_and_request: Contract Records,
    a_retry_frees_the_key: Contract Records,
    a_result_is_any_bytes: Contract Records,
    a_repeated_settlement_returns_the_same: Contract Records,
    a_stranger_settles_nothing: Contract Records,
    a_settlement_that_meets_a_mark_changes_nothing: Contract Records,
    a_result_outlives_every_client: Contract Records Durable,
}

async fn an_outcome_goes_away_when_its_time_is_over(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("payout");
    let mut last = Fence::new(0);
    for outcome in outcomes() {
        let mine = request(&key, "a");
        let fence = client.yours(&mine).await;
        assert!(fence > last);
        let brief = Settle { keep: ms(250), ..end(&mine, fence, outcome) };
        assert_eq!(client.settle(&brief).await, Settled::Stored);
        client.until_gone(&key).await;
        last = fence;
    }
    assert!(
        client.yours(&request(&key, "b")).await > last,
        "the fingerprint of a removed record is compared"
    );
}

/// An execution whose lease has expired, and one that began after it.
async fn slow_and_later(client: &EngineClient) -> ((Begin, Fence), (Begin, Fence)) {
    let slow = short(&client.name("payout"));
    let old = client.yours(&slow).await;
    client.until_gone(&slow.key).await;
    let later = attempt(&slow.key);
    let fence = client.yours(&later).await;
    assert!(fence > old);
    ((slow, old), (later, fence))
}

async fn a_slow_execution_is_fenced_off_by_a_later_one(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let ((slow, old), (later, fence)) = slow_and_later(&client).await;
    for outcome in outcomes() {
        let said = client.settle(&end(&slow, old, outcome)).await;
        assert_eq!(said, Settled::FencedOff { by: Some(fence) });
    }
    assert_eq!(client.yours(&later).await, fence, "the later one goes on");
    assert_eq!(client.complete(&later, fence, "later").await, Settled::Stored);
    assert_eq!(client.result(&later.key).await, "later");
}

async fn a_slow_execution_is_fenced_off_by_one_that_has_ended(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let ((slow, old), (later, fence)) = slow_and_later(&client).await;
    client.complete(&later, fence, "later").await;
    for outcome in outcomes() {
        let said = client.settle(&end(&slow, old, outcome)).await;
        assert_eq!(said, Settled::FencedOff { by: Some(fence) });
    }
    assert_eq!(client.result(&later.key).await, "later");
}

async fn a_slow_execution_is_fenced_off_by_one_that_left_nothing(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let ((slow, old), (later, fence)) = slow_and_later(&client).await;
    client.settle(&end(&later, fence, Outcome::Retry)).await;
    match client.complete(&slow, old, "slow").await {
        Settled::FencedOff { by } => assert_eq!(by, Some(fence)),
        Settled::Stored => panic!("a slow execution counts although another one came after it"),
    }
    assert_eq!(client.read(&slow.key).await, None);
}

async fn a_late_settlement_that_nobody_followed_counts(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let late = short(&one.name(&format!("payout:{number}")));
        let fence = one.yours(&late).await;
        one.until_gone(&late.key).await;
        assert_eq!(one.settle(&end(&late, fence, outcome.clone())).await, Settled::Stored);
        match reply_for(&outcome) {
            Some(expected) => assert_eq!(two.begin(&attempt(&late.key)).await, expected),
            None => assert!(two.yours(&attempt(&late.key)).await > fence),
        }
    }
}

async fn every_attempt_gets_the_outcome(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let Some(expected) = reply_for(&outcome) else { continue };
        let mine = attempt(&one.name(&format!("payout:{number}")));
        let fence = one.yours(&mine).await;
        assert_eq!(one.settle(&end(&mine, fence, outcome)).await, Settled::Stored);
        assert_eq!(one.begin(&mine).await, expected, "the same execution begins again");
        assert_eq!(two.begin(&attempt(&mine.key)).await, expected);
        assert_eq!(two.begin(&attempt(&mine.key)).await, expected, "reading the outcome changed it");
    }
}

async fn an_outcome_is_shown_with_its_fence_and_request(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let mine = request(&client.name(&format!("payout:{number}")), "a");
        let fence = client.yours(&mine).await;
        let running = client.stored(&mine.key).await;
        assert!(matches!(&running.state, State::Running(owner) if *owner == mine.owner));
        assert_eq!((running.fence, &running.fingerprint), (fence, &mine.fingerprint));
        client.settle(&end(&mine, fence, outcome.clone())).await;
        let expected = match outcome {
            Outcome::Completed(bytes) => State::Completed(bytes),
            Outcome::Failed(bytes) => State::Failed(bytes),
            Outcome::Quarantined(bytes) => State::Quarantined(bytes),
            _ => continue,
        };
        let settled = client.stored(&mine.key).await;
        assert!(settled.state == expected, "{:?}", settled.state);
        assert_eq!((settled.fence, settled.fingerprint), (fence, mine.fingerprint.clone()));
        let left = client.expires_in(&mine.key).await;
        assert!(left > mine.lease && left <= ms(60_000), "{left:?} is not how long it is kept");
    }
}

async fn a_retry_frees_the_key(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = request(&client.name("payout"), "a");
    let fence = client.yours(&mine).await;
    let retry = end(&mine, fence, Outcome::Retry);
    assert_eq!(client.settle(&retry).await, Settled::Stored);
    assert_eq!(client.read(&mine.key).await, None);
    let next = request(&mine.key, "b");
    assert!(client.yours(&next).await > fence);
    // A repeated call that arrived late.
    assert!(matches!(client.settle(&retry).await, Settled::FencedOff { by: Some(_) }));
    assert!(matches!(client.begin(&attempt(&mine.key)).await, Begun::Running { .. }));
}

async fn a_result_is_any_bytes(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let large: Bytes = (0..256 * 1024).map(|number: u32| (number % 251) as u8).collect();
    let odd: [&[u8]; 5] = [b"", b"1", b" ", b"\0\xff\r\n$-1\r\n", b"leasehold:1 running 1 - x"];
    let results = odd.into_iter().map(Bytes::copy_from_slice).chain([large]);
    for (number, result) in results.enumerate() {
        let mine = attempt(&client.name(&format!("payout:{number}")));
        let fence = client.yours(&mine).await;
        client.settle(&end(&mine, fence, Outcome::Completed(result.clone()))).await;
        assert!(client.result(&mine.key).await == result, "result {number}");
        assert!(client.begin(&attempt(&mine.key)).await == Begun::Completed(result), "result {number}");
    }
}

async fn a_repeated_settlement_returns_the_same(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let mine = attempt(&client.name(&format!("payout:{number}")));
        let fence = client.yours(&mine).await;
        let settle = end(&mine, fence, outcome.clone());
        for _ in 0..3 {
            assert_eq!(client.settle(&settle).await, Settled::Stored, "{outcome:?}");
        }
        match reply_for(&outcome) {
            Some(expected) => assert_eq!(client.begin(&attempt(&mine.key)).await, expected),
            None => assert_eq!(client.read(&mine.key).await, None),
        }
    }
}

async fn a_stranger_settles_nothing(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (mine, stranger) = (attempt(&client.name("payout")), attempt(&client.name("payout")));
    let fence = client.yours(&mine).await;
    for outcome in outcomes() {
        for guess in [1, fence.get() - 1, fence.get() + 1] {
            let said = client.settle(&end(&stranger, Fence::new(guess), outcome.clone())).await;
            assert_eq!(said, Settled::FencedOff { by: Some(fence) });
        }
    }
    assert_eq!(client.yours(&mine).await, fence);
}

/// A record that the store has lost is like one that was never begun.
async fn a_settlement_of_a_lost_record_counts(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let fence = one.yours(&attempt(&one.name("another"))).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let forgotten = attempt(&one.name(&format!("payout:{number}")));
        let settle = end(&forgotten, fence, outcome.clone());
        for _ in 0..2 {
            assert_eq!(one.settle(&settle).await, Settled::Stored, "{outcome:?}");
        }
        match reply_for(&outcome) {
            Some(expected) => assert_eq!(two.begin(&attempt(&forgotten.key)).await, expected),
            None => assert!(two.yours(&attempt(&forgotten.key)).await > fence),
        }
    }
}

async fn a_settlement_that_meets_a_mark_changes_nothing(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let slow = short(&client.name("payout"));
    let fence = client.yours(&slow).await;
    client.until_gone(&slow.key).await;
    assert!(client.mark(&slow.key, ms(60_000), true).await);
    for outcome in outcomes() {
        assert_eq!(client.settle(&end(&slow, fence, outcome)).await, Settled::FencedOff { by: None });
    }
    assert_eq!(client.begin(&attempt(&slow.key)).await, Begun::DoneElsewhere);
}

async fn a_result_outlives_every_client(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = attempt(&client.name("payout"));
    let fence = client.yours(&mine).await;
    client.complete(&mine, fence, "paid").await;
    let marked = client.name("marked");
    assert!(client.mark(&marked, ms(60_000), false).await);
    client.close().await;
    let next = EngineClient::connect(&test).await;
    assert_eq!(Some(next.begin(&attempt(&mine.key)).await), reply_for(&completed("paid")));
    assert_eq!(next.begin(&attempt(&marked)).await, Begun::DoneElsewhere);
}
