//! Deadlines that were given up.

use std::collections::BTreeSet;

use super::{Dead, EngineClient, HIDDEN, NOW, Receipt, Settle, ids, many};
use crate::conformance::{TestContext, context::ms};

cases! {
    a_buried_deadline_is_kept_with_its_context: Contract Deadlines,
    the_dead_are_listed_page_by_page: Contract Deadlines,
    setting_a_dead_deadline_revives_it: Contract Deadlines,
    cancelling_a_dead_deadline_removes_it: Contract Deadlines,
}

async fn a_buried_deadline_is_kept_with_its_context(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 4).await;
    one.set_with(&pool, "deal", NOW, b"context \0\xff").await;
    one.claim_one(&pool, ms(200)).await;
    let last = one.claim_when_due(&pool, HIDDEN).await;
    let before = one.now_ms();
    assert!(one.bury(&pool, &last.receipt, "the bank said no").await);
    assert!(!one.bury(&pool, &last.receipt, "again").await);
    let found = two.dead(&pool, 10).await;
    let [Dead { id, attempts, buried_at_ms, why, context }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&**id, *attempts, why.as_str()), ("deal", 2, "the bank said no"));
    assert_eq!(*context, last.context);
    assert!(*buried_at_ms + 1_000 >= before && *buried_at_ms <= one.now_ms() + 1_000);
    two.assert_nothing_due(&pool).await;
    let stats = two.stats(&pool).await;
    assert_eq!((stats.pending, stats.tried, stats.dead), (0, 0, 1));
    two.assert_void(&pool, &last.receipt).await;
}

async fn the_dead_are_listed_page_by_page(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 4).await;
    client.set_all(&pool, &many("deal:", 40, NOW)).await;
    let claimed = client.claim(&pool, 40, HIDDEN).await.due;
    let bury = |receipt: &Receipt| (receipt.clone(), Settle::Bury(receipt.id.to_string()));
    let dead: Vec<_> = claimed.iter().map(|due| bury(&due.receipt)).collect();
    assert_eq!(client.deadlines().settle(&pool, &dead, client.until()).await.unwrap(), [true; 40]);
    for page in [1, 7, 40, 100] {
        let found = client.dead(&pool, page).await;
        assert!(found.iter().all(|dead| *dead.why == *dead.id && dead.context.is_none()));
        let found: BTreeSet<_> = found.into_iter().map(|dead| dead.id).collect();
        assert_eq!(found, ids(&claimed), "pages of {page}");
    }
}

async fn setting_a_dead_deadline_revives_it(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set_with(&pool, "deal", NOW, b"old").await;
    let due = client.claim_one(&pool, HIDDEN).await;
    assert!(client.bury(&pool, &due.receipt, "why").await);
    client.set_with(&pool, "deal", NOW, b"new").await;
    assert!(client.dead(&pool, 10).await.is_empty());
    let again = client.claim_one(&pool, HIDDEN).await;
    assert_eq!((again.attempt, again.context.as_deref()), (1, Some(&b"new"[..])));
    let stats = client.stats(&pool).await;
    assert_eq!((stats.pending, stats.dead), (1, 0));
}

async fn cancelling_a_dead_deadline_removes_it(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "deal", NOW).await;
    let due = client.claim_one(&pool, HIDDEN).await;
    assert!(client.bury(&pool, &due.receipt, "why").await);
    assert!(client.cancel(&pool, "deal").await);
    assert!(!client.cancel(&pool, "deal").await);
    assert!(client.dead(&pool, 10).await.is_empty());
    assert_eq!(client.stats(&pool).await.dead, 0);
}
