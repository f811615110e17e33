//! The exclusive lock on a real Redis.
#![cfg(feature = "redis")]

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use leasehold::{Attempt, Leasehold, engine::Released};
use leasehold_testkit::{RedisServer, eventually, eventually_async};

#[tokio::test]
async fn a_lock_excludes_queues_and_hands_over() {
    let Some(server) = RedisServer::shared_or_skip() else { return };
    let (a, b) =
        (Leasehold::connect(server.url()).await.unwrap(), Leasehold::connect(server.url()).await.unwrap());
    let guard = a.lock("first").acquire().await.unwrap();
    assert!(server.cli(&["GET", "lock:first"]).text().ends_with(' '));
    assert!(matches!(b.lock("first").try_acquire().await.unwrap(), Attempt::Busy { holder: Some(_), .. }));
    let waiter = tokio::spawn(b.lock("first").into_future());
    eventually_async(Duration::from_secs(5), "a waiter", || async {
        a.inspect("first").await.unwrap().waiting == 1
    })
    .await;
    let first = guard.fence();
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let second = waiter.await.unwrap().unwrap();
    assert!(second.fence() > first && second.is_held());
    assert_eq!(second.release().await.unwrap(), Released::Free);
    assert!(server.cli(&["EXISTS", "lock:first"]).int() == 0);
    a.close().await.unwrap();
}

/// Every held name, in pages, with a server that makes its table larger and smaller between them.
#[tokio::test]
async fn a_list_shows_each_name_once_while_the_server_resizes_its_table() {
    let server = RedisServer::builder().arg("enable-debug-command", "yes").start_or_skip();
    let Some(server) = server else { return };
    let leases = Leasehold::connect(server.url()).await.unwrap();
    let names: BTreeSet<_> = (0..300).map(|number| format!("job:{number:03}")).collect();
    let locks = names.iter().map(|name| leases.lock(name).ttl(Duration::from_secs(300)).acquire());
    let _guards: Vec<_> = join_all(locks).await.into_iter().map(Result::unwrap).collect();
    let fill = "for i = 1, 20000 do redis.call('SET', 'filler:' .. i, '') end";
    let clear = "for i = 1, 20000 do redis.call('DEL', 'filler:' .. i) end";
    let buckets =
        || server.cli(&["DEBUG", "HTSTATS", "0"]).text().lines().nth(2).unwrap_or_default().to_owned();
    // Both ways: one that grows shows names again, one that shrinks passes them over.
    for [before, between] in [[clear, fill], [fill, clear]] {
        server.cli(&["EVAL", before, "0"]);
        let (mut shown, mut from, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = leases.list_page("job:", from, 40).await.unwrap();
            shown.extend(page.items.iter().map(|item| item.name.to_string()));
            pages += 1;
            if pages == 2 {
                let was = buckets();
                server.cli(&["EVAL", between, "0"]);
                eventually(Duration::from_secs(60), "another table", || buckets() != was);
            }
            let Some(next) = page.next else { break };
            from = Some(next);
        }
        shown.sort_unstable();
        assert!(shown.iter().eq(&names), "{} shown, {} different", shown.len(), names.len());
    }
}
