//! Fences on a real Redis grow, whatever happens to its keys and files, and the shipped check refuses a late writer.
#![cfg(feature = "redis")]

use leasehold::{Fence, Guard, Leasehold};
use leasehold_testkit::resp::Reply;

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::connect(url).await.unwrap()
}

async fn held(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).acquire().await.unwrap()
}

#[tokio::test]
async fn a_fence_grows_after_its_side_keys_were_deleted_and_after_flushall() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let mut last = Fence::new(0);
    for spoil in
        [&["DEL", "leasehold:fence:{lock:x}"][..], &["FLUSHALL"], &["DEL", "lock:x"], &["SCRIPT", "FLUSH"]]
    {
        let guard = held(&leases, "x").await;
        assert!(guard.fence() > last, "after {spoil:?}");
        last = guard.fence();
        server.cli(spoil);
        let _outcome = guard.release().await.unwrap();
    }
    assert!(held(&leases, "x").await.fence() > last);
}

#[tokio::test]
async fn a_fence_grows_after_an_hour_old_dump_was_restored() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = held(&leases, "x").await;
    let an_hour_ago = guard.fence().get() - 3_600_000_000;
    guard.release().await.unwrap();
    server.cli(&["SET", "leasehold:fence:{lock:x}", &an_hour_ago.to_string(), "KEEPTTL"]);
    server.cli(&["SAVE"]);
    let mut last = Fence::new(0);
    for _ in 0..20 {
        let guard = held(&leases, "x").await;
        last = guard.fence();
        guard.release().await.unwrap();
    }
    server.restart_with_dump();
    assert!(held(&leases, "x").await.fence() > last);
}

#[tokio::test]
async fn a_fence_ahead_of_the_clock_counts_on_and_is_kept_longer() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = held(&leases, "x").await;
    let ahead = guard.fence().get() + 3_600_000_000;
    guard.release().await.unwrap();
    server.cli(&["SET", "leasehold:fence:{lock:x}", &ahead.to_string()]);
    let guard = held(&leases, "x").await;
    assert_eq!(guard.fence().get(), ahead + 1);
    let kept = server.cli(&["PTTL", "leasehold:fence:{lock:x}"]).int();
    assert!(kept > 86_400_000 + 3_500_000, "{kept}");
    guard.release().await.unwrap();
    server.cli(&["SET", "leasehold:fence:{lock:x}", "9007199254740991"]);
    let error = leases.lock("x").acquire().await.unwrap_err();
    assert!(error.to_string().contains("exhausted"), "{error}");
}

#[tokio::test]
async fn the_shipped_fence_check_refuses_a_late_writer() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let first = held(&leases, "x").await;
    let early = first.fence().to_string();
    first.release().await.unwrap();
    let later = held(&leases, "x").await.fence().to_string();
    let write = |fence: &str, value: &str| {
        server
            .cli(&["EVAL", Fence::REDIS_CHECKED_SET, "2", "{deal}:state", "{deal}:fence", fence, value])
            .int()
    };
    assert_eq!(
        (write(&early, "a"), write(&later, "b"), write(&early, "late"), write(&later, "c")),
        (1, 1, 0, 1)
    );
    assert!(matches!(server.cli(&["GET", "{deal}:state"]), Reply::Text(text) if text == "c"));
}
