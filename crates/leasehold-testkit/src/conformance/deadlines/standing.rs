//! Statistics of a pool, for people.

use leasehold::engine::deadlines::{Deadline, DueTime};

use super::{EngineClient, HIDDEN, LATER, NOW};
use crate::conformance::{TestContext, context::ms, eventually};

cases! {
    peeking_shows_the_oldest_and_claims_nothing: Contract Deadlines,
    peeking_returns_attempts_and_hides_claimed_deadlines: Contract Deadlines,
    the_numbers_of_a_pool_are_right: Contract Deadlines,
    deadlines_outlive_every_client: Contract Deadlines Durable,
}

async fn peeking_shows_the_oldest_and_claims_nothing(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 4).await;
    let began = client.now_ms() - 100_000;
    let due = |age: u64| DueTime::AtMs(began + age * 10);
    let deadlines: Vec<_> = (0..20)
        .map(|number| number * 7 % 20)
        .map(|age| Deadline { id: format!("deal:{age}").into(), due: due(age), context: None })
        .collect();
    client.set_all(&pool, &deadlines).await;
    client.set(&pool, "later", LATER).await;
    for limit in [5, 20, 100] {
        let seen = client.deadlines().peek(&pool, limit, client.until()).await.unwrap();
        let shown: Vec<_> = seen.iter().map(|pending| pending.id.to_string()).collect();
        let expected: Vec<_> = (0..limit.min(20)).map(|age| format!("deal:{age}")).collect();
        assert_eq!(shown, expected);
        assert!(seen.iter().all(|pending| pending.attempts == 0 && pending.overdue >= ms(99_000)));
    }
    assert_eq!(client.claim(&pool, 20, HIDDEN).await.due.len(), 20);
}

async fn peeking_returns_attempts_and_hides_claimed_deadlines(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set(&pool, "deal", NOW).await;
    let mut seen = Vec::new();
    client.claim_one(&pool, ms(300)).await;
    eventually("it is visible again", async || {
        seen = client.deadlines().peek(&pool, 10, client.until()).await.unwrap();
        !seen.is_empty()
    })
    .await;
    assert_eq!((&*seen[0].id, seen[0].attempts), ("deal", 1));
    assert_eq!(client.claim_one(&pool, HIDDEN).await.attempt, 2);
    assert!(client.deadlines().peek(&pool, 10, client.until()).await.unwrap().is_empty());
}

async fn the_numbers_of_a_pool_are_right(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 4).await;
    for id in ["claimed", "buried", "done"] {
        one.set(&pool, id, NOW).await;
    }
    for due in one.claim(&pool, 10, HIDDEN).await.due {
        match &*due.receipt.id {
            "buried" => assert!(one.bury(&pool, &due.receipt, "why").await),
            "done" => assert!(one.acknowledge(&pool, &due.receipt).await),
            _ => {}
        }
    }
    for number in 0..5 {
        one.set(&pool, &format!("later:{number}"), LATER).await;
    }
    one.set(&pool, "old", DueTime::AtMs(one.now_ms() - 50_000)).await;
    one.set(&pool, "due", NOW).await;
    let stats = two.stats(&pool).await;
    assert_eq!((stats.pending, stats.due, stats.tried, stats.dead), (8, 2, 1, 1));
    assert!(stats.overdue >= ms(49_000) && stats.overdue < ms(500_000), "{:?}", stats.overdue);
    one.claim(&pool, 10, HIDDEN).await;
    let stats = two.stats(&pool).await;
    assert_eq!((stats.pending, stats.due, stats.tried, stats.dead), (8, 0, 3, 1));
    assert!(stats.overdue.is_zero(), "{:?}", stats.overdue);
}

async fn deadlines_outlive_every_client(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 4).await;
    client.set_with(&pool, "deal", NOW, b"context").await;
    client.set(&pool, "claimed", NOW).await;
    let claimed = client.claim(&pool, 10, HIDDEN).await.due;
    let (deal, rest): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|due| &*due.receipt.id == "deal");
    assert!(client.postpone(&pool, &deal[0].receipt, ms(0)).await);
    client.close().await;
    let next = EngineClient::connect(&test).await;
    let pool = next.pool("payments", 4).await;
    let due = next.claim_when_due(&pool, HIDDEN).await;
    assert_eq!((&*due.receipt.id, due.attempt, due.context.as_deref()), ("deal", 2, Some(&b"context"[..])));
    assert!(next.acknowledge(&pool, &rest[0].receipt).await, "a receipt outlives its claimer");
}
