//! Inspecting, listing and removing records.

use std::collections::BTreeSet;

use leasehold::{
    Name,
    engine::records::{Begun, Content},
};

use super::{EngineClient, attempt};
use crate::conformance::{TestContext, context::ms};

cases! {
    nothing_is_shown_where_nothing_is: Contract Records,
    a_removed_record_is_followed_under_a_higher_fence: Contract Records,
    anything_can_be_removed_once: Contract Records,
    records_are_listed_by_prefix_page_by_page: Contract Records,
    a_prefix_of_keys_is_taken_as_it_is: Contract Records,
}

impl EngineClient {
    async fn remove(&self, key: &Name) -> bool {
        self.records().remove(key, self.until()).await.unwrap()
    }

    /// All pages of a list. A store may return a key twice if its table grows meanwhile.
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

async fn nothing_is_shown_where_nothing_is(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("payout");
    assert_eq!(client.read(&key).await, None);
    assert!(!client.remove(&key).await);
    assert!(client.listed(key.as_str(), 10).await.is_empty());
}

async fn a_removed_record_is_followed_under_a_higher_fence(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let key = client.name("payout");
    let mut last = leasehold::Fence::new(0);
    for completes in [false, true, false] {
        let mine = attempt(&key);
        let fence = client.yours(&mine).await;
        assert!(fence > last, "{fence} after {last}");
        if completes {
            client.complete(&mine, fence, "paid").await;
        }
        assert!(client.remove(&key).await);
        last = fence;
    }
    assert!(client.yours(&attempt(&key)).await > last);
}

async fn anything_can_be_removed_once(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mine = attempt(&client.name("payout"));
    let fence = client.yours(&mine).await;
    client.complete(&mine, fence, "paid").await;
    let marked = client.name("marked");
    assert!(client.mark(&marked, ms(60_000), false).await);
    for key in [&mine.key, &marked] {
        assert!(client.remove(key).await);
        assert!(!client.remove(key).await);
        assert_eq!(client.read(key).await, None);
        assert!(matches!(client.begin(&attempt(key)).await, Begun::Yours(_)));
    }
}

async fn records_are_listed_by_prefix_page_by_page(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let (ours, other) =
            (client.name(&format!("payout:{number}")), client.name(&format!("refund:{number}")));
        match number % 3 {
            0 => assert!(client.mark(&ours, ms(60_000), false).await),
            1 => drop(client.yours(&attempt(&ours)).await),
            _ => {
                let mine = attempt(&ours);
                let fence = client.yours(&mine).await;
                client.complete(&mine, fence, "paid").await;
            }
        }
        client.yours(&attempt(&other)).await;
        expected.insert(ours);
    }
    let gone = client.name("payout:gone");
    client.yours(&attempt(&gone)).await;
    assert!(client.remove(&gone).await);
    let prefix = client.name("payout:");
    for page in [1, 7, 100] {
        assert_eq!(client.listed(prefix.as_str(), page).await, expected, "pages of {page}");
    }
    assert_eq!(client.listed(client.name("").as_str(), 20).await.len(), 50);
}

async fn a_prefix_of_keys_is_taken_as_it_is(test: TestContext) {
    let client = EngineClient::connect(&test).await;
    for odd in ["a*", "a?", "a[b", "a%", "a_", "a\\", "ä", "a\u{10ffff}"] {
        let (ours, other) = (client.name(&format!("{odd}:1")), client.name(&format!("ab{odd}c:2")));
        assert!(client.mark(&ours, ms(60_000), false).await && client.mark(&other, ms(60_000), false).await);
        let found = client.listed(client.name(odd).as_str(), 10).await;
        assert_eq!(found, BTreeSet::from([ours]), "{odd}");
    }
}
