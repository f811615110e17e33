//! Who waits for an execution is told when it ends, without asking.

use leasehold::{
    Name,
    engine::records::{Begin, Begun, Outcome},
};

use super::{Party, end, outcomes, told, wish};
use crate::conformance::{Stage, eventually};

cases! {
    whoever_waits_is_told_how_it_ended: Contract Records,
    whoever_waits_is_told_of_a_removal: Contract Records,
    whoever_waits_beside_the_execution_is_told: Contract Records,
    a_hundred_that_wait_are_all_told: Contract Records,
    who_did_not_ask_to_be_told_is_not: Contract Records,
    who_was_told_may_wait_for_the_next_one: Contract Records,
}

impl Party {
    /// Asks to be told of the end of somebody else's execution.
    async fn watch(&self, key: &Name) -> Begin {
        let watcher = Begin { wake: true, ..wish(key) };
        let begun = self.begin(&watcher).await;
        assert!(matches!(begun, Begun::Running { .. }), "{begun:?}");
        assert!(!self.was_told(&watcher.owner));
        watcher
    }

    async fn until_told(&self, watcher: &Begin) {
        eventually("whoever waits is told", async || self.was_told(&watcher.owner)).await;
    }
}

async fn whoever_waits_is_told_how_it_ended(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    for (number, outcome) in outcomes().into_iter().enumerate() {
        let mine = wish(&one.name(&format!("payout:{number}")));
        let fence = one.yours(&mine).await;
        let watcher = two.watch(&mine.key).await;
        one.settle(&end(&mine, fence, outcome.clone())).await;
        two.until_told(&watcher).await;
        let begun = two.begin(&watcher).await;
        match told(&outcome) {
            Some(told) => assert_eq!(begun, told),
            None => assert!(matches!(begun, Begun::Yours(grant) if grant.fence > fence), "{begun:?}"),
        }
    }
}

async fn whoever_waits_is_told_of_a_removal(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let mine = wish(&one.name("payout"));
    let fence = one.yours(&mine).await;
    let watcher = two.watch(&mine.key).await;
    assert!(one.records().remove(&mine.key, one.until()).await.unwrap());
    two.until_told(&watcher).await;
    assert!(two.yours(&watcher).await > fence);
}

async fn whoever_waits_beside_the_execution_is_told(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = wish(&party.name("payout"));
    let fence = party.yours(&mine).await;
    let watcher = party.watch(&mine.key).await;
    party.complete(&mine, fence, "paid").await;
    party.until_told(&watcher).await;
}

async fn a_hundred_that_wait_are_all_told(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let mine = wish(&one.name("payout"));
    let fence = one.yours(&mine).await;
    let mut watchers = Vec::new();
    for number in 0..100 {
        let party = if number % 4 == 0 { &one } else { &two };
        watchers.push((party, party.watch(&mine.key).await));
    }
    one.complete(&mine, fence, "paid").await;
    for (party, watcher) in watchers {
        party.until_told(&watcher).await;
    }
}

async fn who_did_not_ask_to_be_told_is_not(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let mine = wish(&one.name("payout"));
    let fence = one.yours(&mine).await;
    let quiet = wish(&mine.key);
    assert!(matches!(two.begin(&quiet).await, Begun::Running { .. }));
    let watcher = two.watch(&mine.key).await;
    one.complete(&mine, fence, "paid").await;
    two.until_told(&watcher).await;
    assert!(!two.was_told(&quiet.owner));
    // Nobody waits for what has ended.
    let late = Begin { wake: true, ..wish(&mine.key) };
    assert!(matches!(two.begin(&late).await, Begun::Completed(_)));
    assert!(one.records().remove(&mine.key, one.until()).await.unwrap());
    assert!(!two.was_told(&late.owner));
}

async fn who_was_told_may_wait_for_the_next_one(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let key = one.name("payout");
    for _ in 0..3 {
        let mine = wish(&key);
        let fence = one.yours(&mine).await;
        let watcher = two.watch(&key).await;
        one.settle(&end(&mine, fence, Outcome::Retry)).await;
        two.until_told(&watcher).await;
    }
}
