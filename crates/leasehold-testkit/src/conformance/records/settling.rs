//! How executions end, and which ends count.

use bytes::Bytes;
use leasehold::{
    Fence,
    engine::records::{Begin, Begun, Outcome, Settle, Settled, State},
};

use super::{Party, completed, end, outcomes, request, short, told, wish};
use crate::conformance::{Stage, stage::ms};

cases! {
    an_outcome_goes_away_when_its_time_is_over: Contract Records,
    a_slow_execution_is_fenced_off_by_a_later_one: Contract Records,
    a_slow_execution_is_fenced_off_by_one_that_has_ended: Contract Records,
    a_slow_execution_is_fenced_off_by_one_that_left_nothing: Contract Records,
    a_late_settlement_that_nobody_followed_counts: Contract Records,
    a_settlement_of_a_forgotten_execution_counts: Contract Records,
    everybody_is_told_how_it_ended: Contract Records,
    an_outcome_is_shown_with_its_fence_and_request: Contract Records,
    a_retry_frees_the_key: Contract Records,
    a_result_is_any_bytes: Contract Records,
    a_settlement_that_is_sent_again_says_the_same: Contract Records,
    a_stranger_settles_nothing: Contract Records,
    a_settlement_that_meets_a_mark_changes_nothing: Contract Records,
    a_result_outlives_every_client: Contract Records Durable,
}

async fn an_outcome_goes_away_when_its_time_is_over(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("payout");
    let mut last = Fence::new(0);
    for outcome in outcomes() {
        let mine = request(&key, "a");
        let fence = party.yours(&mine).await;
        assert!(fence > last);
        let brief = Settle { keep: ms(250), ..end(&mine, fence, outcome) };
        assert_eq!(party.settle(&brief).await, Settled::Stored);
        party.until_gone(&key).await;
        last = fence;
    }
    assert!(party.yours(&request(&key, "b")).await > last, "a request that was forgotten is compared");
}

/// An execution that is over its lease, and one that began after it.
async fn slow_and_later(party: &Party) -> ((Begin, Fence), (Begin, Fence)) {
    let slow = short(&party.name("payout"));
    let old = party.yours(&slow).await;
    party.until_gone(&slow.key).await;
    let later = wish(&slow.key);
    let fence = party.yours(&later).await;
    assert!(fence > old);
    ((slow, old), (later, fence))
}

async fn a_slow_execution_is_fenced_off_by_a_later_one(stage: Stage) {
    let party = Party::join(&stage).await;
    let ((slow, old), (later, fence)) = slow_and_later(&party).await;
    for outcome in outcomes() {
        let said = party.settle(&end(&slow, old, outcome)).await;
        assert_eq!(said, Settled::FencedOff { by: Some(fence) });
    }
    assert_eq!(party.yours(&later).await, fence, "the later one goes on");
    assert_eq!(party.complete(&later, fence, "later").await, Settled::Stored);
    assert_eq!(party.result(&later.key).await, "later");
}

async fn a_slow_execution_is_fenced_off_by_one_that_has_ended(stage: Stage) {
    let party = Party::join(&stage).await;
    let ((slow, old), (later, fence)) = slow_and_later(&party).await;
    party.complete(&later, fence, "later").await;
    for outcome in outcomes() {
        let said = party.settle(&end(&slow, old, outcome)).await;
        assert_eq!(said, Settled::FencedOff { by: Some(fence) });
    }
    assert_eq!(party.result(&later.key).await, "later");
}

async fn a_slow_execution_is_fenced_off_by_one_that_left_nothing(stage: Stage) {
    let party = Party::join(&stage).await;
    let ((slow, old), (later, fence)) = slow_and_later(&party).await;
    party.settle(&end(&later, fence, Outcome::Retry)).await;
    match party.complete(&slow, old, "slow").await {
        Settled::FencedOff { by } => assert_eq!(by, Some(fence)),
        Settled::Stored => panic!("a slow execution counts although another one came after it"),
    }
    assert_eq!(party.read(&slow.key).await, None);
}

async fn a_late_settlement_that_nobody_followed_counts(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let late = short(&one.name(&format!("payout:{number}")));
        let fence = one.yours(&late).await;
        one.until_gone(&late.key).await;
        assert_eq!(one.settle(&end(&late, fence, outcome.clone())).await, Settled::Stored);
        match told(&outcome) {
            Some(told) => assert_eq!(two.begin(&wish(&late.key)).await, told),
            None => assert!(two.yours(&wish(&late.key)).await > fence),
        }
    }
}

async fn everybody_is_told_how_it_ended(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let Some(told) = told(&outcome) else { continue };
        let mine = wish(&one.name(&format!("payout:{number}")));
        let fence = one.yours(&mine).await;
        assert_eq!(one.settle(&end(&mine, fence, outcome)).await, Settled::Stored);
        assert_eq!(one.begin(&mine).await, told, "the same execution asks again");
        assert_eq!(two.begin(&wish(&mine.key)).await, told);
        assert_eq!(two.begin(&wish(&mine.key)).await, told, "telling it changed it");
    }
}

async fn an_outcome_is_shown_with_its_fence_and_request(stage: Stage) {
    let party = Party::join(&stage).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let mine = request(&party.name(&format!("payout:{number}")), "a");
        let fence = party.yours(&mine).await;
        let running = party.stored(&mine.key).await;
        assert!(matches!(&running.state, State::Running(owner) if *owner == mine.owner));
        assert_eq!((running.fence, &running.fingerprint), (fence, &mine.fingerprint));
        party.settle(&end(&mine, fence, outcome.clone())).await;
        let expected = match outcome {
            Outcome::Completed(bytes) => State::Completed(bytes),
            Outcome::Failed(bytes) => State::Failed(bytes),
            Outcome::Quarantined(bytes) => State::Quarantined(bytes),
            _ => continue,
        };
        let settled = party.stored(&mine.key).await;
        assert!(settled.state == expected, "{:?}", settled.state);
        assert_eq!((settled.fence, settled.fingerprint), (fence, mine.fingerprint.clone()));
        let left = party.expires_in(&mine.key).await;
        assert!(left > mine.lease && left <= ms(60_000), "{left:?} is not how long it is kept");
    }
}

async fn a_retry_frees_the_key(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = request(&party.name("payout"), "a");
    let fence = party.yours(&mine).await;
    let retry = end(&mine, fence, Outcome::Retry);
    assert_eq!(party.settle(&retry).await, Settled::Stored);
    assert_eq!(party.read(&mine.key).await, None);
    let next = request(&mine.key, "b");
    assert!(party.yours(&next).await > fence);
    // It was sent again, and came late.
    assert!(matches!(party.settle(&retry).await, Settled::FencedOff { by: Some(_) }));
    assert!(matches!(party.begin(&wish(&mine.key)).await, Begun::Running { .. }));
}

async fn a_result_is_any_bytes(stage: Stage) {
    let party = Party::join(&stage).await;
    let large: Bytes = (0..256 * 1024).map(|number: u32| (number % 251) as u8).collect();
    let odd: [&[u8]; 5] = [b"", b"1", b" ", b"\0\xff\r\n$-1\r\n", b"leasehold:1 running 1 - x"];
    let results = odd.into_iter().map(Bytes::copy_from_slice).chain([large]);
    for (number, result) in results.enumerate() {
        let mine = wish(&party.name(&format!("payout:{number}")));
        let fence = party.yours(&mine).await;
        party.settle(&end(&mine, fence, Outcome::Completed(result.clone()))).await;
        assert!(party.result(&mine.key).await == result, "result {number}");
        assert!(party.begin(&wish(&mine.key)).await == Begun::Completed(result), "result {number}");
    }
}

async fn a_settlement_that_is_sent_again_says_the_same(stage: Stage) {
    let party = Party::join(&stage).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let mine = wish(&party.name(&format!("payout:{number}")));
        let fence = party.yours(&mine).await;
        let settle = end(&mine, fence, outcome.clone());
        for _ in 0..3 {
            assert_eq!(party.settle(&settle).await, Settled::Stored, "{outcome:?}");
        }
        match told(&outcome) {
            Some(told) => assert_eq!(party.begin(&wish(&mine.key)).await, told),
            None => assert_eq!(party.read(&mine.key).await, None),
        }
    }
}

async fn a_stranger_settles_nothing(stage: Stage) {
    let party = Party::join(&stage).await;
    let (mine, stranger) = (wish(&party.name("payout")), wish(&party.name("payout")));
    let fence = party.yours(&mine).await;
    for outcome in outcomes() {
        for guess in [1, fence.get() - 1, fence.get() + 1] {
            let said = party.settle(&end(&stranger, Fence::new(guess), outcome.clone())).await;
            assert_eq!(said, Settled::FencedOff { by: Some(fence) });
        }
    }
    assert_eq!(party.yours(&mine).await, fence);
}

/// What a store has forgotten looks like what was never begun.
async fn a_settlement_of_a_forgotten_execution_counts(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let fence = one.yours(&wish(&one.name("another"))).await;
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let forgotten = wish(&one.name(&format!("payout:{number}")));
        let settle = end(&forgotten, fence, outcome.clone());
        for _ in 0..2 {
            assert_eq!(one.settle(&settle).await, Settled::Stored, "{outcome:?}");
        }
        match told(&outcome) {
            Some(told) => assert_eq!(two.begin(&wish(&forgotten.key)).await, told),
            None => assert!(two.yours(&wish(&forgotten.key)).await > fence),
        }
    }
}

async fn a_settlement_that_meets_a_mark_changes_nothing(stage: Stage) {
    let party = Party::join(&stage).await;
    let slow = short(&party.name("payout"));
    let fence = party.yours(&slow).await;
    party.until_gone(&slow.key).await;
    assert!(party.mark(&slow.key, ms(60_000), true).await);
    for outcome in outcomes() {
        assert_eq!(party.settle(&end(&slow, fence, outcome)).await, Settled::FencedOff { by: None });
    }
    assert_eq!(party.begin(&wish(&slow.key)).await, Begun::DoneElsewhere);
}

async fn a_result_outlives_every_client(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = wish(&party.name("payout"));
    let fence = party.yours(&mine).await;
    party.complete(&mine, fence, "paid").await;
    let marked = party.name("marked");
    assert!(party.mark(&marked, ms(60_000), false).await);
    party.leave().await;
    let next = Party::join(&stage).await;
    assert_eq!(Some(next.begin(&wish(&mine.key)).await), told(&completed("paid")));
    assert_eq!(next.begin(&wish(&marked)).await, Begun::DoneElsewhere);
}
