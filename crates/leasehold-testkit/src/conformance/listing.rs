//! All locks of a store, a page at a time.

use std::collections::BTreeMap;

use futures_util::{TryStreamExt, future::join_all};
use leasehold::ErrorKind;

use super::{
    TestContext,
    context::{enqueue, list_all, ms},
};

cases! {
    a_list_in_pages_shows_each_of_250_names_once,
    a_list_is_a_stream_over_all_pages,
    a_list_ignores_names_of_other_prefixes,
    glob_characters_in_a_prefix_are_literal,
    a_list_shows_holders_and_waiters,
    a_list_omits_released_locks,
    an_unused_prefix_lists_nothing,
    a_page_size_out_of_range_is_invalid,
}

async fn a_list_in_pages_shows_each_of_250_names_once(test: TestContext) {
    let client = test.client().await;
    let name = |number| format!("page:{number:03}");
    let locks = (0..250).map(|number| client.lock(name(number)).ttl(ms(60_000)).acquire());
    let guards: Vec<_> = join_all(locks).await.into_iter().map(Result::unwrap).collect();
    for limit in [40, 250, 1_000] {
        let (mut seen, mut from) = (BTreeMap::new(), None);
        loop {
            let page = client.list_page("page:", from, limit).await.unwrap();
            assert!(page.items.len() <= limit as usize, "{} on a page of {limit}", page.items.len());
            for item in page.items {
                assert!(item.held().is_some());
                *seen.entry(item.name.to_string()).or_insert(0) += 1;
            }
            let Some(next) = page.next else { break };
            from = Some(next);
        }
        let expected: BTreeMap<_, _> = (0..250).map(|number| (name(number), 1)).collect();
        assert_eq!(seen, expected, "in pages of {limit}");
    }
    drop(guards);
}

async fn a_list_is_a_stream_over_all_pages(test: TestContext) {
    let client = test.client().await;
    let name = |number| format!("page:{number:03}");
    let locks = (0..600).map(|number| client.lock(name(number)).ttl(ms(60_000)).acquire());
    let guards: Vec<_> = join_all(locks).await.into_iter().map(Result::unwrap).collect();
    let mut seen: Vec<_> =
        client.list("page:").map_ok(|lock| lock.name.to_string()).try_collect().await.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, (0..600).map(name).collect::<Vec<_>>());
    drop(guards);
    client.close().await.unwrap();
    let error = client.list("page:").try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

async fn listed(client: &leasehold::Leasehold, prefix: &str) -> Vec<String> {
    let mut names: Vec<_> =
        list_all(client, prefix, 100).await.iter().map(|item| item.name.to_string()).collect();
    names.sort_unstable();
    names
}

/// Holds all names, then compares the list of every prefix with the expected names.
async fn assert_prefixes(test: TestContext, names: &[&str], prefixes: &[&str]) {
    let client = test.client().await;
    let _guards: Vec<_> = join_all(names.iter().map(|name| client.lock(name).acquire()))
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    for prefix in prefixes {
        let mut expected: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        expected.sort_unstable();
        assert_eq!(listed(&client, prefix).await.iter().collect::<Vec<_>>(), expected, "under {prefix:?}");
    }
}

async fn a_list_ignores_names_of_other_prefixes(test: TestContext) {
    let names = ["a:1", "a:2", "ab:1", "b:1", "A:1", "a"];
    assert_prefixes(test, &names, &["a:", "a", "ab", "b:1", "", "A", "a:1x"]).await;
}

async fn glob_characters_in_a_prefix_are_literal(test: TestContext) {
    let names = [
        "a*b", "axb", "a?b", "a[x]b", "a\\b", "a\\*b", "a%b", "a_b", "a{x}b", "a^b", "a]b", "a-b", "*", "ab",
    ];
    let prefixes =
        ["a*", "a?", "a[", "a[x]", "a\\", "a\\*", "a%", "a_", "a{", "a^", "a]", "*", "?", "[a]", "a"];
    assert_prefixes(test, &names, &prefixes).await;
}

async fn a_list_shows_holders_and_waiters(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").label("nightly").acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job").wait(ms(20_000)), "job", 0).await;
    let found = list_all(&two, "job", 10).await;
    assert_eq!((found.len(), found[0].waiting), (1, 1));
    let held = found[0].held().unwrap();
    assert!(held.fence == guard.fence() && held.holder.to_string().contains("nightly"));
    assert!(guard.release().await.unwrap().was_held());
    assert!(waiter.await.unwrap().release().await.unwrap().was_held());
}

async fn a_list_omits_released_locks(test: TestContext) {
    let client = test.client().await;
    let kept = client.lock("job:kept").acquire().await.unwrap();
    assert!(client.lock("job:gone").acquire().await.unwrap().release().await.unwrap().was_held());
    assert_eq!(listed(&client, "job:").await, ["job:kept"]);
    assert!(kept.release().await.unwrap().was_held());
    assert!(listed(&client, "").await.is_empty());
}

async fn an_unused_prefix_lists_nothing(test: TestContext) {
    let client = test.client().await;
    let page = client.list_page("nothing:", None, 10).await.unwrap();
    assert!(page.items.is_empty());
    assert!(list_all(&client, "nothing:", 10).await.is_empty());
}

async fn a_page_size_out_of_range_is_invalid(test: TestContext) {
    let client = test.client().await;
    for size in [0, 10_001] {
        let error = client.list_page("", None, size).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&size.to_string()), "{error}");
    }
}
