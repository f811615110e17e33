//! Renewals of running executions.

use leasehold::{
    Fence,
    engine::{Renewed, records::Outcome},
};

use super::{Begin, EngineClient, attempt, end, short};
use crate::conformance::{TestContext, context::ms};

cases! {
    a_renewed_record_goes_on_running: Contract Records,
    a_renewal_brings_no_record_back: Contract Records,
    a_renewal_of_an_ended_execution_changes_nothing: Contract Records,
    renewals_of_many_records_are_answered_one_by_one: Contract Records,
}

impl EngineClient {
    async fn renew(&self, begin: &Begin, fence: Fence) -> Renewed {
        let answers = self.leases().renew(&[begin.hold(fence)], self.until()).await.unwrap();
        answers.into_iter().next().expect("one answer for one record").unwrap()
    }
}

async fn a_renewed_record_goes_on_running(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = Begin { lease: ms(15_000), ..attempt(&client.name("payout")) };
    let fence = client.yours(&mine).await;
    let longer = Begin { lease: ms(60_000), ..mine.clone() };
    let asked = client.now();
    match client.renew(&longer, fence).await {
        Renewed::Kept { since, .. } => assert!(since >= asked && since <= client.now()),
        Renewed::Gone => panic!("gone within its lease"),
    }
    assert!(client.expires_in(&mine.key).await > mine.lease, "it was not extended");
    assert_eq!(client.stored(&mine.key).await.fence, fence);
}

async fn a_renewal_brings_no_record_back(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let dead = short(&client.name("payout"));
    let fence = client.yours(&dead).await;
    client.until_gone(&dead.key).await;
    assert_eq!(client.renew(&dead, fence).await, Renewed::Gone);
    assert_eq!(client.read(&dead.key).await, None);
}

async fn a_renewal_of_an_ended_execution_changes_nothing(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let (mine, other) = (attempt(&client.name("payout")), attempt(&client.name("payout")));
    let fence = client.yours(&mine).await;
    assert_eq!(client.renew(&other, fence).await, Renewed::Gone, "not its own");
    client.complete(&mine, fence, "paid").await;
    let kept = client.expires_in(&mine.key).await;
    assert_eq!(client.renew(&mine, fence).await, Renewed::Gone);
    assert!(client.expires_in(&mine.key).await <= kept);
    assert_eq!(client.result(&mine.key).await, "paid");
    let marked = attempt(&client.name("marked"));
    assert!(client.mark(&marked.key, ms(60_000), false).await);
    assert_eq!(client.renew(&marked, Fence::new(1)).await, Renewed::Gone);
}

async fn renewals_of_many_records_are_answered_one_by_one(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let attempts: Vec<_> = (0..60).map(|number| attempt(&client.name(&format!("many:{number}")))).collect();
    let mut holds = Vec::new();
    for (number, mine) in attempts.iter().enumerate() {
        // Of three executions, one runs, one has ended, one never began.
        let fence = if number % 3 < 2 { client.yours(mine).await } else { Fence::new(1) };
        if number % 3 == 1 {
            client.settle(&end(mine, fence, Outcome::Retry)).await;
        }
        holds.push(mine.hold(fence));
    }
    let answers = client.leases().renew(&holds, client.until()).await.unwrap();
    let kept: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(Renewed::Kept { .. }))).collect();
    let expected: Vec<_> = (0..60).map(|number| number % 3 == 0).collect();
    assert_eq!(kept, expected);
    assert!(client.leases().renew(&[], client.until()).await.unwrap().is_empty());
}
