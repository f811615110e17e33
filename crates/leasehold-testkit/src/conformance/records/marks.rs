//! Marks: somebody did it, or is at it, and nothing more is known.

use std::sync::Arc;

use leasehold::{
    Name,
    engine::records::{Begun, Content, Outcome, Settled},
};

use super::{Party, completed, end, short, told, wish};
use crate::conformance::{Stage, stage::ms};

cases! {
    a_mark_is_set_seen_and_cleared: Contract Records,
    a_mark_goes_away_when_its_time_is_over: Contract Records,
    a_mark_is_set_once_if_absent: Contract Records,
    of_a_hundred_that_mark_if_absent_one_does: Contract Records,
    a_mark_that_is_set_again_lasts_anew: Contract Records,
    a_thousand_marks_take_one_call: Contract Records,
    a_mark_never_replaces_a_record: Contract Records,
    clearing_leaves_records_alone: Contract Records,
    who_meets_a_mark_does_not_execute: Contract Records,
}

impl Party {
    async fn exists(&self, key: &Name) -> bool {
        self.records().exist(std::slice::from_ref(key), self.until()).await.unwrap() == [true]
    }

    async fn clear(&self, key: &Name) -> bool {
        self.records().clear(std::slice::from_ref(key), self.until()).await.unwrap() == [true]
    }
}

async fn a_mark_is_set_seen_and_cleared(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
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

async fn a_mark_goes_away_when_its_time_is_over(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("processing");
    for if_absent in [false, true] {
        assert!(party.mark(&key, ms(250), if_absent).await);
        party.until_gone(&key).await;
        assert!(!party.exists(&key).await && !party.clear(&key).await);
    }
    party.yours(&wish(&key)).await;
}

async fn a_mark_is_set_once_if_absent(stage: Stage) {
    let (one, two) = (Party::join(&stage).await, Party::join(&stage).await);
    let key = one.name("processing");
    assert!(one.mark(&key, ms(20_000), true).await);
    assert!(!two.mark(&key, ms(60_000), true).await);
    assert!(!one.mark(&key, ms(60_000), true).await);
    assert!(one.expires_in(&key).await <= ms(20_000), "a mark that was refused extended the other");
}

async fn of_a_hundred_that_mark_if_absent_one_does(stage: Stage) {
    let parties = [Arc::new(Party::join(&stage).await), Arc::new(Party::join(&stage).await)];
    let key = parties[0].name("processing");
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (party, key) = (parties[number % 2].clone(), key.clone());
            tokio::spawn(async move { party.mark(&key, ms(60_000), true).await })
        })
        .collect();
    let mut marked = 0;
    for task in tasks {
        marked += usize::from(task.await.unwrap());
    }
    assert_eq!(marked, 1);
}

async fn a_mark_that_is_set_again_lasts_anew(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("processing");
    for ttl in [20_000, 60_000, 10_000] {
        assert!(party.mark(&key, ms(ttl), false).await);
        let left = party.expires_in(&key).await;
        assert!(left <= ms(ttl) && left > ms(ttl) / 4, "{left:?} of {ttl}");
    }
}

async fn a_thousand_marks_take_one_call(stage: Stage) {
    let party = Party::join(&stage).await;
    let all: Vec<_> = (0..1_000).map(|number| party.name(&format!("processing:{number}"))).collect();
    let even: Vec<_> = all.iter().step_by(2).cloned().collect();
    let alternating: Vec<_> = (0..1_000).map(|number| number % 2 == 0).collect();
    let (records, ttl) = (party.records(), ms(120_000));
    assert_eq!(records.mark(&even, ttl, false, party.until()).await.unwrap(), [true; 500]);
    assert_eq!(records.exist(&all, party.until()).await.unwrap(), alternating);
    let odd: Vec<_> = alternating.iter().map(|even| !even).collect();
    assert_eq!(records.mark(&all, ttl, true, party.until()).await.unwrap(), odd);
    assert_eq!(records.mark(&all, ttl, false, party.until()).await.unwrap(), [true; 1_000]);
    assert_eq!(records.clear(&even, party.until()).await.unwrap(), [true; 500]);
    assert_eq!(records.clear(&all, party.until()).await.unwrap(), odd);
    assert_eq!(records.exist(&all, party.until()).await.unwrap(), [false; 1_000]);
    assert!(records.mark(&[], ttl, false, party.until()).await.unwrap().is_empty());
    assert!(records.exist(&[], party.until()).await.unwrap().is_empty());
    assert!(records.clear(&[], party.until()).await.unwrap().is_empty());
}

async fn a_mark_never_replaces_a_record(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = wish(&party.name("payout"));
    let fence = party.yours(&mine).await;
    for if_absent in [false, true] {
        assert!(!party.mark(&mine.key, ms(60_000), if_absent).await);
    }
    assert_eq!(party.yours(&mine).await, fence);
    party.complete(&mine, fence, "paid").await;
    for if_absent in [false, true] {
        assert!(!party.mark(&mine.key, ms(60_000), if_absent).await);
    }
    assert_eq!(Some(party.begin(&wish(&mine.key)).await), told(&completed("paid")));
    // One whose lease ran out is none any more.
    let dead = short(&party.name("dead"));
    let fence = party.yours(&dead).await;
    party.until_gone(&dead.key).await;
    assert!(party.mark(&dead.key, ms(60_000), true).await);
    assert_eq!(party.complete(&dead, fence, "late").await, Settled::FencedOff { by: None });
}

async fn clearing_leaves_records_alone(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = wish(&party.name("payout"));
    let fence = party.yours(&mine).await;
    assert!(party.exists(&mine.key).await);
    assert!(!party.clear(&mine.key).await);
    assert_eq!(party.settle(&end(&mine, fence, Outcome::Quarantined("why".into()))).await, Settled::Stored);
    assert!(!party.clear(&mine.key).await);
    assert!(party.exists(&mine.key).await);
    assert_eq!(party.begin(&wish(&mine.key)).await, Begun::Quarantined("why".into()));
}

async fn who_meets_a_mark_does_not_execute(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("payout");
    assert!(party.mark(&key, ms(60_000), false).await);
    let left = party.expires_in(&key).await;
    for mine in [wish(&key), super::request(&key, "a")] {
        assert_eq!(party.begin(&mine).await, Begun::DoneElsewhere);
    }
    assert!(party.expires_in(&key).await <= left);
    assert!(party.clear(&key).await);
    party.yours(&wish(&key)).await;
}
