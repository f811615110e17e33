//! A due deadline is claimed once, in order, and becomes due again if its claimer dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use leasehold::engine::deadlines::{Batch, Deadline, DeadlineId, DueTime};

use super::{EngineClient, HIDDEN, LATER, NOW, ids, many};
use crate::conformance::{TestContext, context::ms};

cases! {
    a_claim_hides_until_its_visibility_is_over: Contract Deadlines,
    nothing_is_claimed_before_its_time: Contract Deadlines,
    ten_claimers_never_share_a_deadline: Contract Deadlines,
    a_due_deadline_is_claimed_and_acknowledged: Contract Deadlines,
    the_oldest_is_claimed_first: Contract Deadlines,
    a_claim_has_a_limit_per_bucket_and_reports_when_more_is_due: Contract Deadlines,
    a_claim_takes_from_every_bucket: Contract Deadlines,
    attempts_are_counted_one_by_one: Contract Deadlines,
    a_pool_that_nobody_used_has_nothing_due: Contract Deadlines,
}

async fn a_claim_hides_until_its_visibility_is_over(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 4).await;
    one.set_with(&pool, "deal", NOW, b"context").await;
    let asked = one.now();
    let first = one.claim_one(&pool, ms(500)).await;
    // Its claimer dies.
    let second = two.claim_when_due(&pool, HIDDEN).await;
    let hidden = two.now().since(asked);
    assert!(hidden >= ms(495), "claimed again after {hidden:?}");
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!((first.receipt.id, first.context), (second.receipt.id.clone(), second.context.clone()));
    assert!(second.receipt.number > first.receipt.number);
    assert!(second.overdue < hidden, "{:?} counts from before it was hidden", second.overdue);
    one.assert_nothing_due(&pool).await;
    two.assert_nothing_due(&pool).await;
}

async fn nothing_is_claimed_before_its_time(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 4).await;
    client.set(&pool, "later", LATER).await;
    client.set(&pool, "at", DueTime::AtMs(client.now_ms() + 600_000)).await;
    client.assert_nothing_due(&pool).await;
    let asked = client.now();
    client.set(&pool, "soon", DueTime::In(ms(400))).await;
    let due = client.claim_when_due(&pool, HIDDEN).await;
    let waited = client.now().since(asked);
    assert!(waited >= ms(395), "claimed after {waited:?}");
    assert_eq!((&*due.receipt.id, due.attempt), ("soon", 1));
    assert_eq!(client.stats(&pool).await.pending, 3);
}

async fn ten_claimers_never_share_a_deadline(test: TestContext) {
    let clients =
        [Arc::new(EngineClient::connect(&test).await), Arc::new(EngineClient::connect(&test).await)];
    let pool = clients[0].pool("payments", 16).await;
    let all = many("deal:", 600, NOW);
    clients[0].set_all(&pool, &all).await;
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (client, pool) = (clients[number % 2].clone(), pool.clone());
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let claimed = client.claim(&pool, 2, HIDDEN).await;
                    if claimed.due.is_empty() {
                        return mine;
                    }
                    mine.extend(claimed.due);
                }
            })
        })
        .collect();
    let mut claimed = Vec::new();
    for task in tasks {
        claimed.extend(task.await.unwrap());
    }
    assert!(claimed.iter().all(|due| due.attempt == 1));
    assert_eq!((claimed.len(), ids(&claimed).len()), (600, 600));
}

async fn a_due_deadline_is_claimed_and_acknowledged(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 4).await;
    one.set_with(&pool, "deal", DueTime::AtMs(one.now_ms() - 5_000), b"context").await;
    one.set(&pool, "bare", LATER).await;
    let due = two.claim_one(&pool, HIDDEN).await;
    assert_eq!((&*due.receipt.id, due.attempt), ("deal", 1));
    assert_eq!(due.context.as_deref(), Some(&b"context"[..]));
    assert!(due.overdue >= ms(4_900), "{:?} is not how late it is", due.overdue);
    one.assert_nothing_due(&pool).await;
    assert!(two.acknowledge(&pool, &due.receipt).await);
    assert!(!two.acknowledge(&pool, &due.receipt).await);
    assert_eq!(one.stats(&pool).await.pending, 1);
    one.set(&pool, "bare", NOW).await;
    assert_eq!(two.claim_one(&pool, HIDDEN).await.context, None);
}

async fn the_oldest_is_claimed_first(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 1).await;
    let began = client.now_ms() - 100_000;
    // Set in another order than they are due.
    let deadlines: Vec<_> = (0..20)
        .map(|number| {
            let age = number * 7 % 20;
            Deadline { id: format!("deal:{age}").into(), due: DueTime::AtMs(began + age), context: None }
        })
        .collect();
    client.set_all(&pool, &deadlines).await;
    let mut order = Vec::new();
    for more in [true, true, true, false] {
        let claimed = client.claim(&pool, 5, HIDDEN).await;
        assert_eq!((claimed.due.len(), claimed.more), (5, more));
        order.extend(claimed.due.into_iter().map(|due| due.receipt.id.to_string()));
    }
    let expected: Vec<_> = (0..20).map(|age| format!("deal:{age}")).collect();
    assert_eq!(order, expected);
}

async fn a_claim_has_a_limit_per_bucket_and_reports_when_more_is_due(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 4).await;
    let all = many("deal:", 100, NOW);
    client.set_all(&pool, &all).await;
    let mut left = BTreeMap::<u16, usize>::new();
    all.iter().for_each(|deadline| *left.entry(pool.bucket_of(&deadline.id)).or_default() += 1);
    loop {
        let Batch { due, more } = client.claim(&pool, 3, HIDDEN).await;
        let mut taken = BTreeMap::<u16, usize>::new();
        due.iter().for_each(|due| *taken.entry(pool.bucket_of(&due.receipt.id)).or_default() += 1);
        for (bucket, left) in &mut left {
            let taken = taken.get(bucket).copied().unwrap_or_default();
            assert_eq!(taken, (*left).min(3), "of bucket {bucket}");
            *left -= taken;
        }
        assert_eq!(more, left.values().any(|left| *left > 0));
        if !more {
            break;
        }
    }
    client.assert_nothing_due(&pool).await;
}

async fn a_claim_takes_from_every_bucket(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    for buckets in [1, 3, 16, 64] {
        let pool = client.pool(&format!("pool of {buckets}"), buckets).await;
        client.set_all(&pool, &many("deal:", 300, NOW)).await;
        let claimed = client.claim(&pool, 300, HIDDEN).await;
        let filled: BTreeSet<_> = claimed.due.iter().map(|due| pool.bucket_of(&due.receipt.id)).collect();
        assert_eq!((claimed.due.len(), filled.len()), (300, usize::from(buckets)));
        assert!(!claimed.more);
    }
}

async fn attempts_are_counted_one_by_one(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "deal", NOW).await;
    let mut last = 0;
    for attempt in 1..=4 {
        let due = client.claim_when_due(&pool, ms(200)).await;
        assert_eq!(due.attempt, attempt);
        assert!(due.receipt.number > last, "receipts grow");
        last = due.receipt.number;
    }
}

async fn a_pool_that_nobody_used_has_nothing_due(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 16).await;
    client.assert_nothing_due(&pool).await;
    let nobody: DeadlineId = "nobody".into();
    let deadlines = client.deadlines();
    assert!(deadlines.peek(&pool, 10, client.until()).await.unwrap().is_empty());
    assert_eq!(deadlines.cancel(&pool, &[nobody], client.until()).await.unwrap(), [false]);
    assert!(client.dead(&pool, 10).await.is_empty());
    assert_eq!(client.stats(&pool).await, leasehold::engine::deadlines::PoolStats::default());
    // An empty call succeeds.
    deadlines.set(&pool, &[], client.until()).await.unwrap();
    assert!(deadlines.settle(&pool, &[], client.until()).await.unwrap().is_empty());
    assert!(deadlines.cancel(&pool, &[], client.until()).await.unwrap().is_empty());
}
