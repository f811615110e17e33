//! The exclusive lock on a real Redis.
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::{Attempt, Leasehold, engine::Released};
use leasehold_testkit::{RedisServer, eventually_async};

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
