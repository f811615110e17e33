//! Renewals of what is running.

use leasehold::{
    Fence,
    engine::{Renewed, records::Outcome},
};

use super::{Begin, Party, end, short, wish};
use crate::conformance::{Stage, stage::ms};

cases! {
    a_renewed_record_goes_on_running: Contract Records,
    a_renewal_brings_no_record_back: Contract Records,
    a_renewal_of_what_has_ended_changes_nothing: Contract Records,
    renewals_of_many_records_are_answered_one_by_one: Contract Records,
}

impl Party {
    async fn renew(&self, begin: &Begin, fence: Fence) -> Renewed {
        let answers = self.leases().renew(&[begin.hold(fence)], self.until()).await.unwrap();
        answers.into_iter().next().expect("one answer for one record").unwrap()
    }
}

async fn a_renewed_record_goes_on_running(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = Begin { lease: ms(15_000), ..wish(&party.name("payout")) };
    let fence = party.yours(&mine).await;
    let longer = Begin { lease: ms(60_000), ..mine.clone() };
    let asked = party.now();
    match party.renew(&longer, fence).await {
        Renewed::Kept { since } => assert!(since >= asked && since <= party.now()),
        Renewed::Gone => panic!("gone within its lease"),
    }
    assert!(party.expires_in(&mine.key).await > mine.lease, "it was not extended");
    assert_eq!(party.stored(&mine.key).await.fence, fence);
}

async fn a_renewal_brings_no_record_back(stage: Stage) {
    let party = Party::join(&stage).await;
    let dead = short(&party.name("payout"));
    let fence = party.yours(&dead).await;
    party.until_gone(&dead.key).await;
    assert_eq!(party.renew(&dead, fence).await, Renewed::Gone);
    assert_eq!(party.read(&dead.key).await, None);
}

async fn a_renewal_of_what_has_ended_changes_nothing(stage: Stage) {
    let party = Party::join(&stage).await;
    let (mine, other) = (wish(&party.name("payout")), wish(&party.name("payout")));
    let fence = party.yours(&mine).await;
    assert_eq!(party.renew(&other, fence).await, Renewed::Gone, "not its own");
    party.complete(&mine, fence, "paid").await;
    let kept = party.expires_in(&mine.key).await;
    assert_eq!(party.renew(&mine, fence).await, Renewed::Gone);
    assert!(party.expires_in(&mine.key).await <= kept);
    assert_eq!(party.result(&mine.key).await, "paid");
    let marked = wish(&party.name("marked"));
    assert!(party.mark(&marked.key, ms(60_000), false).await);
    assert_eq!(party.renew(&marked, Fence::new(1)).await, Renewed::Gone);
}

async fn renewals_of_many_records_are_answered_one_by_one(stage: Stage) {
    let party = Party::join(&stage).await;
    let wishes: Vec<_> = (0..60).map(|number| wish(&party.name(&format!("many:{number}")))).collect();
    let mut holds = Vec::new();
    for (number, mine) in wishes.iter().enumerate() {
        // Of three, one runs, one has ended, one never began.
        let fence = if number % 3 < 2 { party.yours(mine).await } else { Fence::new(1) };
        if number % 3 == 1 {
            party.settle(&end(mine, fence, Outcome::Retry)).await;
        }
        holds.push(mine.hold(fence));
    }
    let answers = party.leases().renew(&holds, party.until()).await.unwrap();
    let kept: Vec<_> = answers.iter().map(|answer| matches!(answer, Ok(Renewed::Kept { .. }))).collect();
    let expected: Vec<_> = (0..60).map(|number| number % 3 == 0).collect();
    assert_eq!(kept, expected);
    assert!(party.leases().renew(&[], party.until()).await.unwrap().is_empty());
}
