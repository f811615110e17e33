//! What people see of records, and what they may do about them.

use std::collections::BTreeSet;

use leasehold::{
    Name,
    engine::records::{Begun, Content},
};

use super::{Party, wish};
use crate::conformance::{Stage, stage::ms};

cases! {
    nothing_is_shown_where_nothing_is: Contract Records,
    a_removed_record_is_followed_under_a_higher_fence: Contract Records,
    anything_can_be_removed_once: Contract Records,
    records_are_listed_by_prefix_page_by_page: Contract Records,
    a_prefix_of_keys_is_taken_as_it_is: Contract Records,
}

impl Party {
    async fn remove(&self, key: &Name) -> bool {
        self.records().remove(key, self.until()).await.unwrap()
    }

    /// All pages of a list. A store may show a key twice if its table grows meanwhile.
    async fn listed(&self, prefix: &str, page: u32) -> BTreeSet<Name> {
        let (mut found, mut from) = (BTreeSet::new(), None);
        loop {
            let page = self.records().scan(prefix, from, page, self.until()).await.unwrap();
            for record in page.items {
                assert!(!matches!(record.content, Content::Corrupt), "{}", record.key);
                found.insert(record.key);
            }
            match page.next {
                Some(next) => from = Some(next),
                None => return found,
            }
        }
    }
}

async fn nothing_is_shown_where_nothing_is(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("payout");
    assert_eq!(party.read(&key).await, None);
    assert!(!party.remove(&key).await);
    assert!(party.listed(key.as_str(), 10).await.is_empty());
}

async fn a_removed_record_is_followed_under_a_higher_fence(stage: Stage) {
    let party = Party::join(&stage).await;
    let key = party.name("payout");
    let mut last = leasehold::Fence::new(0);
    for completes in [false, true, false] {
        let mine = wish(&key);
        let fence = party.yours(&mine).await;
        assert!(fence > last, "{fence} after {last}");
        if completes {
            party.complete(&mine, fence, "paid").await;
        }
        assert!(party.remove(&key).await);
        last = fence;
    }
    assert!(party.yours(&wish(&key)).await > last);
}

async fn anything_can_be_removed_once(stage: Stage) {
    let party = Party::join(&stage).await;
    let mine = wish(&party.name("payout"));
    let fence = party.yours(&mine).await;
    party.complete(&mine, fence, "paid").await;
    let marked = party.name("marked");
    assert!(party.mark(&marked, ms(60_000), false).await);
    for key in [&mine.key, &marked] {
        assert!(party.remove(key).await);
        assert!(!party.remove(key).await);
        assert_eq!(party.read(key).await, None);
        assert!(matches!(party.begin(&wish(key)).await, Begun::Yours(_)));
    }
}

async fn records_are_listed_by_prefix_page_by_page(stage: Stage) {
    let party = Party::join(&stage).await;
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let (ours, other) =
            (party.name(&format!("payout:{number}")), party.name(&format!("refund:{number}")));
        match number % 3 {
            0 => assert!(party.mark(&ours, ms(60_000), false).await),
            1 => drop(party.yours(&wish(&ours)).await),
            _ => {
                let mine = wish(&ours);
                let fence = party.yours(&mine).await;
                party.complete(&mine, fence, "paid").await;
            }
        }
        party.yours(&wish(&other)).await;
        expected.insert(ours);
    }
    let gone = party.name("payout:gone");
    party.yours(&wish(&gone)).await;
    assert!(party.remove(&gone).await);
    let prefix = party.name("payout:");
    for page in [1, 7, 100] {
        assert_eq!(party.listed(prefix.as_str(), page).await, expected, "pages of {page}");
    }
    assert_eq!(party.listed(party.name("").as_str(), 20).await.len(), 50);
}

async fn a_prefix_of_keys_is_taken_as_it_is(stage: Stage) {
    let party = Party::join(&stage).await;
    for odd in ["a*", "a?", "a[b", "a%", "a_", "a\\", "ä", "a\u{10ffff}"] {
        let (ours, other) = (party.name(&format!("{odd}:1")), party.name(&format!("ab{odd}c:2")));
        assert!(party.mark(&ours, ms(60_000), false).await && party.mark(&other, ms(60_000), false).await);
        let found = party.listed(party.name(odd).as_str(), 10).await;
        assert_eq!(found, BTreeSet::from([ours]), "{odd}");
    }
}
