//! A waiter is woken when an execution ends, without polling.

use leasehold::{
    Name,
    engine::records::{Begin, Begun, Outcome},
};

use super::{EngineClient, attempt, end, outcomes, reply_for};
use crate::conformance::{TestContext, eventually};

cases! {
    a_waiter_is_woken_when_the_execution_ends: Contract Records,
    a_waiter_is_woken_by_a_removal: Contract Records,
    a_waiter_beside_the_execution_is_woken: Contract Records,
    a_hundred_waiters_are_all_woken: Contract Records,
    an_attempt_that_did_not_ask_for_a_wake_up_gets_none: Contract Records,
    a_woken_waiter_may_wait_for_the_next_execution: Contract Records,
}

impl EngineClient {
    /// Registers a watcher for the end of another execution.
    async fn watch(&self, key: &Name) -> Begin {
        let watcher = Begin { wake: true, ..attempt(key) };
        let begun = self.begin(&watcher).await;
        assert!(matches!(begun, Begun::Running { .. }), "{begun:?}");
        assert!(!self.was_woken(&watcher.owner));
        watcher
    }

    async fn until_woken(&self, watcher: &Begin) {
        eventually("the watcher is woken", async || self.was_woken(&watcher.owner)).await;
    }
}

async fn a_waiter_is_woken_when_the_execution_ends(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let mine = attempt(&one.name(&format!("payout:{number}")));
        let fence = one.yours(&mine).await;
        let watcher = two.watch(&mine.key).await;
        one.settle(&end(&mine, fence, outcome.clone())).await;
        two.until_woken(&watcher).await;
        let begun = two.begin(&watcher).await;
        match reply_for(&outcome) {
            Some(expected) => assert_eq!(begun, expected),
            None => assert!(matches!(begun, Begun::Yours(grant) if grant.fence > fence), "{begun:?}"),
        }
    }
}

async fn a_waiter_is_woken_by_a_removal(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let mine = attempt(&one.name("payout"));
    let fence = one.yours(&mine).await;
    let watcher = two.watch(&mine.key).await;
    assert!(one.records().remove(&mine.key, one.until()).await.unwrap());
    two.until_woken(&watcher).await;
    assert!(two.yours(&watcher).await > fence);
}

async fn a_waiter_beside_the_execution_is_woken(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = attempt(&client.name("payout"));
    let fence = client.yours(&mine).await;
    let watcher = client.watch(&mine.key).await;
    client.complete(&mine, fence, "paid").await;
    client.until_woken(&watcher).await;
}

async fn a_hundred_waiters_are_all_woken(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let mine = attempt(&one.name("payout"));
    let fence = one.yours(&mine).await;
    let mut watchers = Vec::new();
    for number in 0..100 {
        let client = if number % 4 == 0 { &one } else { &two };
        watchers.push((client, client.watch(&mine.key).await));
    }
    one.complete(&mine, fence, "paid").await;
    for (client, watcher) in watchers {
        client.until_woken(&watcher).await;
    }
}

async fn an_attempt_that_did_not_ask_for_a_wake_up_gets_none(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let mine = attempt(&one.name("payout"));
    let fence = one.yours(&mine).await;
    let quiet = attempt(&mine.key);
    assert!(matches!(two.begin(&quiet).await, Begun::Running { .. }));
    let watcher = two.watch(&mine.key).await;
    one.complete(&mine, fence, "paid").await;
    two.until_woken(&watcher).await;
    assert!(!two.was_woken(&quiet.owner));
    // An execution that has ended has no watchers.
    let late = Begin { wake: true, ..attempt(&mine.key) };
    assert!(matches!(two.begin(&late).await, Begun::Completed(_)));
    assert!(one.records().remove(&mine.key, one.until()).await.unwrap());
    assert!(!two.was_woken(&late.owner));
}

async fn a_woken_waiter_may_wait_for_the_next_execution(test: TestContext) {
    let (one, two) = (EngineClient::connect(&test).await, EngineClient::connect(&test).await);
    let key = one.name("payout");
    for _ in 0..3 {
        let mine = attempt(&key);
        let fence = one.yours(&mine).await;
        let watcher = two.watch(&key).await;
        one.settle(&end(&mine, fence, Outcome::Retry)).await;
        two.until_woken(&watcher).await;
    }
}
