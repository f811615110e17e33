//! Fences on a real Redis grow, whatever happens to its keys and files, and the shipped check refuses a late writer.
#![cfg(feature = "redis")]

use leasehold::{Fence, Guard, Leasehold, engine::Released};
use leasehold_testkit::{ClusterSet, RedisServer, resp::Reply};

/// The one counter of a server.
const FENCE: &str = "leasehold:fence";

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::connect(url).await.unwrap()
}

async fn held(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).acquire().await.unwrap()
}

fn keys(server: &RedisServer) -> Vec<String> {
    server.cli(&["KEYS", "*"]).list().iter().map(|key| key.text().to_owned()).collect()
}

#[tokio::test]
async fn all_names_of_a_server_share_one_fence_that_is_in_the_text_of_each_lock() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let mut last = Fence::new(0);
    for name in ["x", "y", "x", "z", "y"] {
        let guard = held(&leases, name).await;
        assert!(guard.fence() > last);
        last = guard.fence();
        let text = server.cli(&["GET", &format!("lock:{name}")]).text().to_owned();
        let words: Vec<_> = text.splitn(3, ' ').collect();
        assert!(words[0].len() == 32 && words[1] == last.to_string(), "{} words", words.len());
        assert_eq!(leases.inspect(name).await.unwrap().held().unwrap().fence, last);
        assert_eq!(server.cli(&["GET", FENCE]).text(), last.to_string());
        let _ = guard.release().await.unwrap();
        assert_eq!(keys(&server), [FENCE], "a released lock leaves nothing behind");
    }
    assert_eq!(server.cli(&["PTTL", FENCE]).int(), -1, "it outlives every hold");
}

#[tokio::test]
async fn in_a_cluster_each_slot_has_its_fence_and_it_moves_with_the_slot() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let leases = client(set.url()).await;
    let name = set.name_on(from, "x");
    let guard = held(&leases, &name).await;
    let ahead = guard.fence().get() + 3_600_000_000;
    let _ = guard.release().await.unwrap();
    let [counter] = &keys(from)[..] else { panic!("{:?}", keys(from)) };
    let slot = ClusterSet::slot(&format!("lock:{name}"));
    assert_eq!(ClusterSet::slot(counter), slot, "{counter}");
    from.cli(&["SET", counter, &ahead.to_string()]);
    set.move_slot(slot, to);
    assert_eq!(held(&leases, &name).await.fence().get(), ahead + 1);
}

#[tokio::test]
async fn a_fence_grows_after_its_side_keys_were_deleted_and_after_flushall() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let mut last = Fence::new(0);
    for spoil in [&["DEL", FENCE][..], &["FLUSHALL"], &["DEL", "lock:x"], &["SCRIPT", "FLUSH"]] {
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
    let _ = guard.release().await.unwrap();
    server.cli(&["SET", FENCE, &an_hour_ago.to_string()]);
    server.cli(&["SAVE"]);
    let mut last = Fence::new(0);
    for _ in 0..20 {
        let guard = held(&leases, "x").await;
        last = guard.fence();
        let _ = guard.release().await.unwrap();
    }
    server.restart_with_dump();
    assert!(held(&leases, "x").await.fence() > last);
}

/// As after the server's clock went back, for lone claims and for those that share a call.
#[tokio::test]
async fn a_fence_ahead_of_the_clock_counts_on_and_ends_below_two_to_the_53() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = held(&leases, "x").await;
    let ahead = guard.fence().get() + 3_600_000_000;
    let _ = guard.release().await.unwrap();
    server.cli(&["SET", FENCE, &ahead.to_string()]);
    assert_eq!(held(&leases, "alone").await.fence().get(), ahead + 1);
    let together = (0..40).map(|n| leases.lock(format!("together:{n}")).into_future());
    let guards = futures_util::future::try_join_all(together).await.unwrap();
    let mut fences: Vec<_> = guards.iter().map(|guard| guard.fence().get()).collect();
    fences.sort_unstable();
    // Those of one call follow each other; a block may leave some out.
    assert!(fences.windows(2).all(|two| two[0] < two[1]), "{fences:?}");
    assert!(fences[0] > ahead + 1 && fences[39] < ahead + 200, "{fences:?}");
    server.cli(&["SET", FENCE, "9007199254740990"]);
    assert_eq!(held(&leases, "last").await.fence().get(), 9_007_199_254_740_991);
    for name in ["y", "y"] {
        let error = leases.lock(name).acquire().await.unwrap_err();
        assert!(error.to_string().contains("FENCE the last fence was given"), "{error}");
        assert_eq!(server.cli(&["EXISTS", "lock:y"]).int(), 0);
    }
    assert_eq!(server.cli(&["GET", FENCE]).text(), "9007199254740991");
}

/// Ownership is all 32 digits and the space behind them, and nothing else.
#[tokio::test]
async fn what_only_begins_like_our_text_is_not_ours() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    for cut in [1, 31, 32] {
        for (at, tail) in ["", "x", "0 "].into_iter().enumerate() {
            let name = format!("x:{cut}:{at}");
            let guard = held(&leases, &name).await;
            let key = format!("lock:{name}");
            let ours = server.cli(&["GET", &key]).text().to_owned();
            let mut text = ours[..cut].to_owned() + tail;
            if ours.starts_with(&text) {
                text = text.replace("0 ", "1 ");
            }
            server.cli(&["SET", &key, &text, "PX", "60000"]);
            assert!(guard.extend().await.is_err(), "{name} was renewed");
            assert_eq!(guard.release().await.unwrap(), Released::Taken { by: None }, "{name}");
            assert_eq!(server.cli(&["GET", &key]).text(), text, "{name} was deleted");
        }
    }
}

#[tokio::test]
async fn a_release_and_a_force_release_read_the_holders_fence_from_the_lock() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (a, b) = (client(server.url()).await, client(server.url()).await);
    let late = held(&a, "x").await;
    server.cli(&["DEL", "lock:x"]);
    let holder = held(&b, "x").await;
    // Others moved the server's fence on meanwhile.
    let _ = held(&b, "y").await.release().await.unwrap();
    assert_eq!(late.release().await.unwrap(), Released::Taken { by: Some(holder.fence()) });
    let seen = Fence::new(holder.fence().get() - 1);
    assert_eq!(a.force_release("x", seen).await.unwrap(), Released::Taken { by: Some(holder.fence()) });
    assert_eq!(a.force_release("x", holder.fence()).await.unwrap(), Released::Free);
}

#[tokio::test]
async fn the_shipped_fence_check_refuses_a_late_writer() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let first = held(&leases, "x").await;
    let early = first.fence().to_string();
    let _ = first.release().await.unwrap();
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
