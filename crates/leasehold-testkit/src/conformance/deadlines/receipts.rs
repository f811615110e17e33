//! Only the latest claimer of a deadline may settle it.

use leasehold::engine::deadlines::{Receipt, Settle};

use super::{EngineClient, HIDDEN, LATER, NOW, many};
use crate::conformance::{TestContext, context::ms, eventually};

cases! {
    a_receipt_is_void_after_the_next_claim: Contract Deadlines,
    a_receipt_is_valid_until_the_next_claim: Contract Deadlines,
    a_postponed_deadline_comes_back_with_its_attempts: Contract Deadlines,
    a_postponed_deadline_can_still_be_settled: Contract Deadlines,
    a_receipt_is_void_after_it_was_set_again: Contract Deadlines,
    a_claimed_deadline_that_is_set_again_is_claimed_anew: Contract Deadlines,
    a_receipt_is_void_after_a_cancellation: Contract Deadlines,
    a_receipt_that_nobody_got_is_void: Contract Deadlines,
    of_many_receipts_each_is_answered: Contract Deadlines,
    a_deadline_given_back_is_due_at_once_and_has_its_attempt_again: Contract Deadlines,
    of_two_settlements_in_one_call_the_first_decides: Contract Deadlines,
}

async fn a_receipt_is_void_after_the_next_claim(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 2).await;
    one.set(&pool, "deal", NOW).await;
    let slow = one.claim_one(&pool, ms(200)).await.receipt;
    let later = two.claim_when_due(&pool, HIDDEN).await.receipt;
    one.assert_void(&pool, &slow).await;
    one.assert_nothing_due(&pool).await;
    assert!(two.acknowledge(&pool, &later).await, "the later claim goes on");
    assert_eq!(one.stats(&pool).await.pending, 0);
}

async fn a_receipt_is_valid_until_the_next_claim(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "deal", NOW).await;
    let receipt = client.claim_one(&pool, ms(200)).await.receipt;
    eventually("it is visible again", async || client.stats(&pool).await.due == 1).await;
    assert!(client.acknowledge(&pool, &receipt).await, "the work was done once");
    client.assert_nothing_due(&pool).await;
}

async fn a_postponed_deadline_comes_back_with_its_attempts(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set_with(&pool, "deal", NOW, b"context").await;
    let first = client.claim_one(&pool, HIDDEN).await;
    let asked = client.now();
    assert!(client.postpone(&pool, &first.receipt, ms(400)).await);
    let again = client.claim_when_due(&pool, HIDDEN).await;
    let waited = client.now().since(asked);
    assert!(waited >= ms(395), "came back after {waited:?}");
    assert_eq!((again.attempt, again.context), (2, first.context));
    client.assert_void(&pool, &first.receipt).await;
    // A postponement by zero is valid, too.
    assert!(client.postpone(&pool, &again.receipt, ms(0)).await);
    assert_eq!(client.claim_when_due(&pool, HIDDEN).await.attempt, 3);
}

async fn a_postponed_deadline_can_still_be_settled(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set_all(&pool, &many("deal:", 3, NOW)).await;
    let claimed = client.claim(&pool, 3, HIDDEN).await.due;
    for due in &claimed {
        assert!(client.postpone(&pool, &due.receipt, HIDDEN).await);
        assert!(client.postpone(&pool, &due.receipt, HIDDEN * 2).await, "it was sent again");
    }
    assert!(client.acknowledge(&pool, &claimed[0].receipt).await);
    assert!(client.bury(&pool, &claimed[1].receipt, "why").await);
    assert!(client.postpone(&pool, &claimed[2].receipt, ms(0)).await);
    assert_eq!(client.claim_when_due(&pool, HIDDEN).await.attempt, 2);
    let stats = client.stats(&pool).await;
    assert_eq!((stats.pending, stats.dead), (1, 1));
}

async fn a_receipt_is_void_after_it_was_set_again(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "deal", NOW).await;
    let old = client.claim_one(&pool, HIDDEN).await.receipt;
    client.set_with(&pool, "deal", LATER, b"another").await;
    client.assert_void(&pool, &old).await;
    client.assert_nothing_due(&pool).await;
    let stats = client.stats(&pool).await;
    assert_eq!((stats.pending, stats.tried, stats.dead), (1, 0, 0));
}

async fn a_claimed_deadline_that_is_set_again_is_claimed_anew(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 2).await;
    one.set_with(&pool, "deal", NOW, b"old").await;
    let old = one.claim_one(&pool, HIDDEN).await;
    one.set_with(&pool, "deal", NOW, b"new").await;
    let new = two.claim_when_due(&pool, HIDDEN).await;
    assert_eq!((new.attempt, new.context.as_deref()), (1, Some(&b"new"[..])));
    assert!(new.receipt.number > old.receipt.number);
    one.assert_void(&pool, &old.receipt).await;
    one.set(&pool, "deal", NOW).await;
    assert_eq!(two.claim_when_due(&pool, HIDDEN).await.context, None, "its context stayed");
}

async fn a_receipt_is_void_after_a_cancellation(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "deal", NOW).await;
    let old = client.claim_one(&pool, HIDDEN).await.receipt;
    assert!(client.cancel(&pool, "deal").await);
    client.assert_void(&pool, &old).await;
    assert_eq!(client.stats(&pool).await.pending, 0);
    client.set(&pool, "deal", NOW).await;
    let new = client.claim_when_due(&pool, HIDDEN).await;
    assert_eq!(new.attempt, 1);
    assert!(new.receipt.number > old.number);
    client.assert_void(&pool, &old).await;
}

async fn a_receipt_that_nobody_got_is_void(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "waiting", LATER).await;
    client.set(&pool, "claimed", NOW).await;
    let good = client.claim_one(&pool, HIDDEN).await.receipt;
    for id in ["waiting", "claimed", "nobody"] {
        for number in [0, 1, good.number - 1, good.number + 1, u64::MAX] {
            client.assert_void(&pool, &Receipt { id: id.into(), number }).await;
        }
    }
    assert!(client.acknowledge(&pool, &good).await);
}

async fn of_many_receipts_each_is_answered(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 8).await;
    client.set_all(&pool, &many("deal:", 90, NOW)).await;
    let mut receipts: Vec<_> =
        client.claim(&pool, 90, HIDDEN).await.due.into_iter().map(|due| due.receipt).collect();
    assert_eq!(receipts.len(), 90);
    receipts.iter_mut().skip(1).step_by(2).for_each(|receipt| receipt.number -= 1);
    let settle = |number: usize| match number % 3 {
        0 => Settle::Done,
        1 => Settle::Postpone(HIDDEN),
        _ => Settle::Bury("why".into()),
    };
    let all: Vec<_> =
        receipts.iter().enumerate().map(|(at, receipt)| (receipt.clone(), settle(at / 2))).collect();
    let expected: Vec<_> = (0..90).map(|number| number % 2 == 0).collect();
    assert_eq!(client.deadlines().settle(&pool, &all, client.until()).await.unwrap(), expected);
    let stats = client.stats(&pool).await;
    assert_eq!((stats.pending, stats.dead), (60, 15));
}

async fn a_deadline_given_back_is_due_at_once_and_has_its_attempt_again(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 2).await;
    one.set_with(&pool, "deal", NOW, b"context").await;
    for attempt in [1, 1, 1] {
        let due = one.claim_one(&pool, HIDDEN).await;
        assert_eq!((due.attempt, due.context.as_deref()), (attempt, Some(&b"context"[..])));
        assert!(one.give_back(&pool, &due.receipt).await);
        // A repeated call must not undo an earlier attempt.
        one.assert_void(&pool, &due.receipt).await;
        let stats = two.stats(&pool).await;
        assert_eq!((stats.pending, stats.due, stats.tried), (1, 1, 0));
    }
    let made = two.claim_one(&pool, HIDDEN).await;
    assert!(two.postpone(&pool, &made.receipt, ms(0)).await);
    for _ in 0..3 {
        let due = one.claim_when_due(&pool, HIDDEN).await;
        assert_eq!(due.attempt, 2);
        assert!(due.receipt.number > made.receipt.number);
        assert!(one.give_back(&pool, &due.receipt).await && !one.give_back(&pool, &due.receipt).await);
        assert_eq!(one.stats(&pool).await.tried, 1);
    }
}

async fn of_two_settlements_in_one_call_the_first_decides(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set_all(&pool, &many("deal:", 3, NOW)).await;
    let claimed = client.claim(&pool, 3, HIDDEN).await.due;
    let [a, b, c] = &claimed[..] else { panic!("{claimed:?}") };
    let twice = |receipt: &Receipt, first, second| [(receipt.clone(), first), (receipt.clone(), second)];
    let all = [
        twice(&a.receipt, Settle::Done, Settle::Bury("why".into())),
        twice(&b.receipt, Settle::GiveBack, Settle::GiveBack),
        twice(&c.receipt, Settle::Postpone(ms(0)), Settle::Done),
    ];
    let settled = client.deadlines().settle(&pool, all.as_flattened(), client.until()).await.unwrap();
    // A receipt that was used to postpone stays valid.
    assert_eq!(settled, [true, false, true, false, true, true]);
    let left = client.claim_when_due(&pool, HIDDEN).await;
    assert_eq!((left.receipt.id, left.attempt), (b.receipt.id.clone(), 1));
    let stats = client.stats(&pool).await;
    assert_eq!((stats.pending, stats.dead), (1, 0));
}
