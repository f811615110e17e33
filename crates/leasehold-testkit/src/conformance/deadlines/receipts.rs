//! Only who claimed a deadline last may end it.

use leasehold::engine::deadlines::Receipt;

use super::{HIDDEN, LATER, NOW, Party, many};
use crate::conformance::{Stage, eventually, stage::ms};

cases! {
    a_receipt_is_void_after_the_next_claim: Contract Deadlines,
    a_receipt_is_good_until_somebody_claims_again: Contract Deadlines,
    a_postponed_deadline_comes_back_with_its_attempts: Contract Deadlines,
    what_was_postponed_can_still_be_ended: Contract Deadlines,
    a_receipt_is_void_after_it_was_set_again: Contract Deadlines,
    what_is_set_again_while_claimed_is_claimed_anew: Contract Deadlines,
    a_receipt_is_void_after_a_cancellation: Contract Deadlines,
    a_receipt_that_nobody_got_is_void: Contract Deadlines,
    of_many_receipts_each_is_answered: Contract Deadlines,
}

async fn a_receipt_is_void_after_the_next_claim(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let pool = one.pool("payments", 2).await;
    one.set(&pool, "deal", NOW).await;
    let slow = one.claim_one(&pool, ms(200)).await.receipt;
    let later = two.claim_when_due(&pool, HIDDEN).await.receipt;
    one.assert_void(&pool, &slow).await;
    one.assert_nothing_due(&pool).await;
    assert!(two.acknowledge(&pool, &later).await, "the later claim goes on");
    assert_eq!(one.stats(&pool).await.pending, 0);
}

async fn a_receipt_is_good_until_somebody_claims_again(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 2).await;
    party.set(&pool, "deal", NOW).await;
    let receipt = party.claim_one(&pool, ms(200)).await.receipt;
    eventually("it is visible again", async || party.stats(&pool).await.due == 1).await;
    assert!(party.acknowledge(&pool, &receipt).await, "the work was done once");
    party.assert_nothing_due(&pool).await;
}

async fn a_postponed_deadline_comes_back_with_its_attempts(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 2).await;
    party.set_with(&pool, "deal", NOW, b"context").await;
    let first = party.claim_one(&pool, HIDDEN).await;
    let asked = party.now();
    assert!(party.postpone(&pool, &first.receipt, ms(400)).await);
    let again = party.claim_when_due(&pool, HIDDEN).await;
    let waited = party.now().since(asked);
    assert!(waited >= ms(395), "came back after {waited:?}");
    assert_eq!((again.attempt, again.context), (2, first.context));
    party.assert_void(&pool, &first.receipt).await;
    // At once is a time, too.
    assert!(party.postpone(&pool, &again.receipt, ms(0)).await);
    assert_eq!(party.claim_when_due(&pool, HIDDEN).await.attempt, 3);
}

async fn what_was_postponed_can_still_be_ended(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 2).await;
    party.set_all(&pool, &many("deal:", 3, NOW)).await;
    let claimed = party.claim(&pool, 3, HIDDEN).await.due;
    for due in &claimed {
        assert!(party.postpone(&pool, &due.receipt, HIDDEN).await);
        assert!(party.postpone(&pool, &due.receipt, HIDDEN * 2).await, "it was sent again");
    }
    assert!(party.acknowledge(&pool, &claimed[0].receipt).await);
    assert!(party.bury(&pool, &claimed[1].receipt, "why").await);
    assert!(party.postpone(&pool, &claimed[2].receipt, ms(0)).await);
    assert_eq!(party.claim_when_due(&pool, HIDDEN).await.attempt, 2);
    let stats = party.stats(&pool).await;
    assert_eq!((stats.pending, stats.dead), (1, 1));
}

async fn a_receipt_is_void_after_it_was_set_again(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 2).await;
    party.set(&pool, "deal", NOW).await;
    let old = party.claim_one(&pool, HIDDEN).await.receipt;
    party.set_with(&pool, "deal", LATER, b"another").await;
    party.assert_void(&pool, &old).await;
    party.assert_nothing_due(&pool).await;
    let stats = party.stats(&pool).await;
    assert_eq!((stats.pending, stats.tried, stats.dead), (1, 0, 0));
}

async fn what_is_set_again_while_claimed_is_claimed_anew(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
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

async fn a_receipt_is_void_after_a_cancellation(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 2).await;
    party.set(&pool, "deal", NOW).await;
    let old = party.claim_one(&pool, HIDDEN).await.receipt;
    assert!(party.cancel(&pool, "deal").await);
    party.assert_void(&pool, &old).await;
    assert_eq!(party.stats(&pool).await.pending, 0);
    party.set(&pool, "deal", NOW).await;
    let new = party.claim_when_due(&pool, HIDDEN).await;
    assert_eq!(new.attempt, 1);
    assert!(new.receipt.number > old.number);
    party.assert_void(&pool, &old).await;
}

async fn a_receipt_that_nobody_got_is_void(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 2).await;
    party.set(&pool, "waiting", LATER).await;
    party.set(&pool, "claimed", NOW).await;
    let good = party.claim_one(&pool, HIDDEN).await.receipt;
    for id in ["waiting", "claimed", "nobody"] {
        for number in [0, 1, good.number - 1, good.number + 1, u64::MAX] {
            party.assert_void(&pool, &Receipt { id: id.into(), number }).await;
        }
    }
    assert!(party.acknowledge(&pool, &good).await);
}

async fn of_many_receipts_each_is_answered(stage: Stage) {
    let party = Party::join(&stage).await;
    let pool = party.pool("payments", 8).await;
    party.set_all(&pool, &many("deal:", 90, NOW)).await;
    let mut receipts: Vec<_> =
        party.claim(&pool, 90, HIDDEN).await.due.into_iter().map(|due| due.receipt).collect();
    assert_eq!(receipts.len(), 90);
    receipts.iter_mut().skip(1).step_by(2).for_each(|receipt| receipt.number -= 1);
    let expected: Vec<_> = (0..30).map(|number| number % 2 == 0).collect();
    let deadlines = party.deadlines();
    let done = deadlines.acknowledge(&pool, &receipts[..30], party.until()).await.unwrap();
    assert_eq!(done, expected);
    let again: Vec<_> = receipts[30..60].iter().map(|receipt| (receipt.clone(), HIDDEN)).collect();
    assert_eq!(deadlines.postpone(&pool, &again, party.until()).await.unwrap(), expected);
    let dead: Vec<_> = receipts[60..].iter().map(|receipt| (receipt.clone(), "why".to_owned())).collect();
    assert_eq!(deadlines.bury(&pool, &dead, party.until()).await.unwrap(), expected);
    let stats = party.stats(&pool).await;
    assert_eq!((stats.pending, stats.dead), (60, 15));
}
