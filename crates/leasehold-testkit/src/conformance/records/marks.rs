//! Marks: something was done or is in progress, without a result or an owner.

use std::sync::Arc;

use leasehold::{
    Name,
    engine::records::{Begun, Content, MarkOp, Outcome, Settled},
};

use super::{EngineClient, attempt, completed, end, reply_for, short};
use crate::conformance::{TestContext, context::ms};

cases! {
    a_mark_is_set_seen_and_cleared: Contract Records,
    a_mark_goes_away_when_its_time_is_over: Contract Records,
    a_mark_is_set_once_if_absent: Contract Records,
    of_a_hundred_that_mark_if_absent_one_does: Contract Records,
    a_mark_that_is_set_again_lasts_anew: Contract Records,
    a_thousand_marks_take_one_call: Contract Records,
    a_mark_never_replaces_a_record: Contract Records,
    clearing_leaves_records_alone: Contract Records,
    an_attempt_that_meets_a_mark_does_not_execute: Contract Records,
}

impl EngineClient {
    async fn exists(&self, key: &Name) -> bool {
        self.records().on_marks(std::slice::from_ref(key), MarkOp::Test, self.until()).await.unwrap()
            == [true]
    }

    async fn clear(&self, key: &Name) -> bool {
        self.records().on_marks(std::slice::from_ref(key), MarkOp::Clear, self.until()).await.unwrap()
            == [true]
    }
}

async fn a_mark_is_set_seen_and_cleared(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let key = one.name("processing");
    assert!(!two.exists(&key).await);
    assert!(!two.clear(&key).await);
    assert!(one.mark(&key, ms(60_000), false).await);
    assert!(two.exists(&key).await);
    let seen = two.read(&key).await.unwrap();
    assert_eq!((seen.key, seen.content), (key.clone(), Content::Mark));
    let left = seen.expires_in.expect("a mark ends by itself");
    assert!(!left.is_zero() && left <= ms(60_000), "{left:?}");
    assert!(two.clear(&key).await);
    assert!(!one.exists(&key).await && !one.clear(&key).await);
    assert_eq!(one.read(&key).await, None);
}

async fn a_mark_goes_away_when_its_time_is_over(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("processing");
    for if_absent in [false, true] {
        assert!(client.mark(&key, ms(250), if_absent).await);
        client.until_gone(&key).await;
        assert!(!client.exists(&key).await && !client.clear(&key).await);
    }
    client.yours(&attempt(&key)).await;
}

async fn a_mark_is_set_once_if_absent(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let key = one.name("processing");
    assert!(one.mark(&key, ms(20_000), true).await);
    assert!(!two.mark(&key, ms(60_000), true).await);
    assert!(!one.mark(&key, ms(60_000), true).await);
    assert!(one.expires_in(&key).await <= ms(20_000), "a mark that was refused extended the other");
}

async fn of_a_hundred_that_mark_if_absent_one_does(test: TestContext) {
    let clients =
        [Arc::new(EngineClient::connect(&test).await), Arc::new(EngineClient::connect(&test).await)];
    let key = clients[0].name("processing");
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (client, key) = (clients[number % 2].clone(), key.clone());
            tokio::spawn(async move { client.mark(&key, ms(60_000), true).await })
        })
        .collect();
    let mut marked = 0;
    for task in tasks {
        marked += usize::from(task.await.unwrap());
    }
    assert_eq!(marked, 1);
}

async fn a_mark_that_is_set_again_lasts_anew(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("processing");
    for ttl in [20_000, 60_000, 10_000] {
        assert!(client.mark(&key, ms(ttl), false).await);
        let left = client.expires_in(&key).await;
        assert!(left <= ms(ttl) && left > ms(ttl) / 4, "{left:?} of {ttl}");
    }
}

async fn a_thousand_marks_take_one_call(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let all: Vec<_> = (0..1_000).map(|number| client.name(&format!("processing:{number}"))).collect();
    let even: Vec<_> = all.iter().step_by(2).cloned().collect();
    let alternating: Vec<_> = (0..1_000).map(|number| number % 2 == 0).collect();
    let (records, ttl) = (client.records(), ms(120_000));
    assert_eq!(records.on_marks(&even, MarkOp::Set(ttl), client.until()).await.unwrap(), [true; 500]);
    assert_eq!(records.on_marks(&all, MarkOp::Test, client.until()).await.unwrap(), alternating);
    let odd: Vec<_> = alternating.iter().map(|even| !even).collect();
    assert_eq!(records.on_marks(&all, MarkOp::SetIfAbsent(ttl), client.until()).await.unwrap(), odd);
    assert_eq!(records.on_marks(&all, MarkOp::Set(ttl), client.until()).await.unwrap(), [true; 1_000]);
    assert_eq!(records.on_marks(&even, MarkOp::Clear, client.until()).await.unwrap(), [true; 500]);
    assert_eq!(records.on_marks(&all, MarkOp::Clear, client.until()).await.unwrap(), odd);
    assert_eq!(records.on_marks(&all, MarkOp::Test, client.until()).await.unwrap(), [false; 1_000]);
    assert!(records.on_marks(&[], MarkOp::Set(ttl), client.until()).await.unwrap().is_empty());
    assert!(records.on_marks(&[], MarkOp::Test, client.until()).await.unwrap().is_empty());
    assert!(records.on_marks(&[], MarkOp::Clear, client.until()).await.unwrap().is_empty());
}

async fn a_mark_never_replaces_a_record(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = attempt(&client.name("payout"));
    let fence = client.yours(&mine).await;
    for if_absent in [false, true] {
        assert!(!client.mark(&mine.key, ms(60_000), if_absent).await);
    }
    assert_eq!(client.yours(&mine).await, fence);
    client.complete(&mine, fence, "paid").await;
    for if_absent in [false, true] {
        assert!(!client.mark(&mine.key, ms(60_000), if_absent).await);
    }
    assert_eq!(Some(client.begin(&attempt(&mine.key)).await), reply_for(&completed("paid")));
    // An execution whose lease has expired no longer counts.
    let dead = short(&client.name("dead"));
    let fence = client.yours(&dead).await;
    client.until_gone(&dead.key).await;
    assert!(client.mark(&dead.key, ms(60_000), true).await);
    assert_eq!(client.complete(&dead, fence, "late").await, Settled::FencedOff { by: None });
}

async fn clearing_leaves_records_alone(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = attempt(&client.name("payout"));
    let fence = client.yours(&mine).await;
    assert!(client.exists(&mine.key).await);
    assert!(!client.clear(&mine.key).await);
    assert_eq!(client.settle(&end(&mine, fence, Outcome::Quarantined("why".into()))).await, Settled::Stored);
    assert!(!client.clear(&mine.key).await);
    assert!(client.exists(&mine.key).await);
    assert_eq!(client.begin(&attempt(&mine.key)).await, Begun::Quarantined("why".into()));
}

async fn an_attempt_that_meets_a_mark_does_not_execute(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("payout");
    assert!(client.mark(&key, ms(60_000), false).await);
    let left = client.expires_in(&key).await;
    for mine in [attempt(&key), super::request(&key, "a")] {
        assert_eq!(client.begin(&mine).await, Begun::DoneElsewhere);
    }
    assert!(client.expires_in(&key).await <= left);
    assert!(client.clear(&key).await);
    client.yours(&attempt(&key)).await;
}
