//! Setting, replacing and cancelling deadlines.

use std::collections::BTreeSet;

use bytes::Bytes;
use leasehold::engine::deadlines::{Deadline, DeadlineId, DueTime, Placement, Pool, PoolLayout};

use super::{EngineClient, HIDDEN, LATER, NOW, Settle, ids, many};
use crate::conformance::TestContext;

cases! {
    asking_for_another_layout_returns_the_stored_one: Contract Deadlines,
    a_pool_is_unknown_until_it_is_laid_out: Contract Deadlines,
    pools_do_not_share_deadlines: Contract Deadlines,
    five_thousand_deadlines_take_one_call: Contract Deadlines,
    a_deadline_that_is_set_again_is_moved: Contract Deadlines,
    an_id_is_any_printable_text: Contract Deadlines,
    a_context_is_any_bytes: Contract Deadlines,
    a_cancelled_deadline_never_comes: Contract Deadlines,
    a_time_long_past_or_far_ahead_is_a_time: Contract Deadlines,
}

async fn asking_for_another_layout_returns_the_stored_one(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 16).await;
    for (buckets, placement) in
        [(16, Placement::Spread), (8, Placement::Spread), (16, Placement::Together), (1, Placement::Together)]
    {
        let wanted = Pool { name: pool.name.clone(), layout: PoolLayout { buckets, placement } };
        let found = two.deadlines().layout(&wanted, two.until()).await.unwrap();
        assert_eq!(found, pool.layout, "asked for {wanted:?}");
    }
    let layout = PoolLayout { buckets: 1, placement: Placement::Together };
    let together = Pool { name: one.name("together"), layout };
    assert_eq!(one.deadlines().layout(&together, one.until()).await.unwrap(), layout);
    one.set(&together, "deal", NOW).await;
    assert_eq!(&*two.claim_one(&together, HIDDEN).await.receipt.id, "deal");
}

async fn a_pool_is_unknown_until_it_is_laid_out(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let layout = PoolLayout { buckets: 5, placement: Placement::Together };
    let pool = Pool { name: one.name("payments"), layout };
    for client in [&one, &two, &one] {
        let known = client.deadlines().known_layout(&pool.name, client.until()).await.unwrap();
        assert_eq!(known, None, "reading a layout stored one");
    }
    assert_eq!(one.deadlines().layout(&pool, one.until()).await.unwrap(), layout);
    for client in [&one, &two] {
        let known = client.deadlines().known_layout(&pool.name, client.until()).await.unwrap();
        assert_eq!(known, Some(layout));
    }
}

async fn pools_do_not_share_deadlines(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (one, two) = (client.pool("payments", 4).await, client.pool("payments:4", 4).await);
    client.set_with(&one, "deal", NOW, b"one").await;
    client.assert_nothing_due(&two).await;
    client.set_with(&two, "deal", NOW, b"two").await;
    let claimed = client.claim_one(&one, HIDDEN).await;
    assert_eq!(claimed.context.as_deref(), Some(&b"one"[..]));
    client.assert_void(&two, &claimed.receipt).await;
    assert!(client.cancel(&one, "deal").await);
    assert_eq!(client.claim_one(&two, HIDDEN).await.context.as_deref(), Some(&b"two"[..]));
}

async fn five_thousand_deadlines_take_one_call(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 16).await;
    let all = many("deal:", 5_000, NOW);
    client.set_all(&pool, &all).await;
    assert_eq!(client.stats(&pool).await.pending, 5_000);
    let claimed = client.claim(&pool, 1_000, HIDDEN).await;
    let expected: BTreeSet<DeadlineId> = all.iter().map(|deadline| deadline.id.clone()).collect();
    assert_eq!((ids(&claimed.due), claimed.more), (expected, false));
    let done: Vec<_> = claimed.due.into_iter().map(|due| (due.receipt, Settle::Done)).collect();
    assert_eq!(client.deadlines().settle(&pool, &done, client.until()).await.unwrap(), [true; 5_000]);
    assert_eq!(client.stats(&pool).await.pending, 0);
    client.set_all(&pool, &all).await;
    let every: Vec<_> = all.iter().map(|deadline| deadline.id.clone()).collect();
    let cancelled = client.deadlines().cancel(&pool, &every, client.until()).await.unwrap();
    assert_eq!(cancelled, [true; 5_000]);
}

async fn a_deadline_that_is_set_again_is_moved(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 2).await;
    client.set_with(&pool, "deal", NOW, b"old").await;
    client.set_with(&pool, "deal", LATER, b"new").await;
    client.assert_nothing_due(&pool).await;
    client.set(&pool, "deal", NOW).await;
    assert_eq!(client.stats(&pool).await.pending, 1);
    let due = client.claim_one(&pool, HIDDEN).await;
    assert_eq!((due.attempt, due.context), (1, None));
    // Twice in one call: the last one counts.
    let both = [LATER, NOW].map(|due| Deadline { id: "twice".into(), due, context: None });
    client.set_all(&pool, &both).await;
    assert_eq!(&*client.claim_one(&pool, HIDDEN).await.receipt.id, "twice");
    assert_eq!(client.stats(&pool).await.pending, 2);
}

async fn an_id_is_any_printable_text(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 4).await;
    let long = "x".repeat(512);
    let odd = [
        "a", "A", " ", "a b", "{a}", "}{", "a:b", "'", "\"", "\\", "%s", "*", "ä", "日本", "🦀", "0", "-1",
        "1 2", "nil", &long,
    ];
    let context = |id: &str| Some(Bytes::copy_from_slice(id.as_bytes()));
    let deadlines: Vec<_> =
        odd.iter().map(|id| Deadline { id: (*id).into(), due: NOW, context: context(id) }).collect();
    client.set_all(&pool, &deadlines).await;
    let claimed = client.claim(&pool, 100, HIDDEN).await.due;
    assert_eq!(ids(&claimed), odd.iter().map(|id| DeadlineId::from(*id)).collect::<BTreeSet<_>>());
    for (number, due) in claimed.iter().enumerate() {
        let (id, receipt) = (&*due.receipt.id, &due.receipt);
        assert_eq!(due.context, context(id), "{id}");
        match number % 3 {
            0 => assert!(client.acknowledge(&pool, receipt).await, "{id}"),
            1 => assert!(client.cancel(&pool, id).await, "{id}"),
            _ => {
                assert!(client.bury(&pool, receipt, id).await, "{id}");
                let dead = client.dead(&pool, 10).await;
                assert!(
                    dead.iter().any(|dead| &*dead.id == id && dead.why == id && dead.context == context(id))
                );
            }
        }
    }
    assert_eq!(client.stats(&pool).await.pending, 0);
}

async fn a_context_is_any_bytes(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 1).await;
    let large: Bytes = (0..64 * 1024).map(|number: u32| (number % 251) as u8).collect();
    let odd: [&[u8]; 4] = [b"", b" ", b"\0\xff\r\n$-1\r\n", b"1 2 3"];
    for context in odd.into_iter().map(Bytes::copy_from_slice).chain([large]) {
        let deadline = Deadline { id: "deal".into(), due: NOW, context: Some(context.clone()) };
        client.set_all(&pool, &[deadline]).await;
        let due = client.claim_one(&pool, HIDDEN).await;
        assert!(due.context.as_ref() == Some(&context), "{} bytes", context.len());
        assert!(client.bury(&pool, &due.receipt, "a reason: \0 not\n printable").await);
        let dead = client.dead(&pool, 10).await.remove(0);
        assert!(dead.context == Some(context));
        assert_eq!(dead.why, "a reason: \0 not\n printable");
    }
}

async fn a_cancelled_deadline_never_comes(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let pool = one.pool("payments", 4).await;
    one.set(&pool, "due", NOW).await;
    one.set(&pool, "later", LATER).await;
    let ids = ["due", "nobody", "later", "due"].map(DeadlineId::from);
    let cancelled = two.deadlines().cancel(&pool, &ids, two.until()).await.unwrap();
    assert_eq!(cancelled, [true, false, true, false]);
    one.assert_nothing_due(&pool).await;
    assert_eq!(one.stats(&pool).await.pending, 0);
}

async fn a_time_long_past_or_far_ahead_is_a_time(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let pool = client.pool("payments", 1).await;
    client.set(&pool, "first of all", DueTime::AtMs(0)).await;
    client.set(&pool, "in a century", DueTime::In(std::time::Duration::from_secs(100 * 365 * 86_400))).await;
    let due = client.claim_one(&pool, HIDDEN).await;
    assert_eq!(&*due.receipt.id, "first of all");
    assert!(due.overdue.as_secs() > 1_000_000_000, "{:?}", due.overdue);
    assert!(client.acknowledge(&pool, &due.receipt).await);
    assert!(client.cancel(&pool, "in a century").await);
}
