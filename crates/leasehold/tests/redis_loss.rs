//! A lock that somebody else takes away is lost at once, not at its next renewal.
//!
//! Leases here are renewed every 100 seconds, apart from the first time: a loss that is noticed sooner was reported.
#![cfg(feature = "redis")]

mod hang_up;

use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold};
use leasehold_testkit::{RedisServer, eventually_async};

const TTL: Duration = Duration::from_secs(300);
/// Well before the next renewal.
const SOON: Duration = Duration::from_secs(60);
/// Longer than it takes until a lease is watched.
const A_WHILE: Duration = Duration::from_secs(2);

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(Duration::from_secs(10)).connect().await.unwrap()
}

async fn kept(leases: &Leasehold, name: &str, ttl: Duration) -> Guard {
    leases.lock(name).ttl(ttl).keep_alive().acquire().await.unwrap()
}

/// Waits for so many renewals: a lease is watched once its first renewal was answered.
async fn renewed(leases: &Leasehold, count: u64) {
    eventually_async(SOON, "renewals", || async { leases.stats().renewed >= count }).await;
}

/// A lock whose loss the server reports.
async fn watched(leases: &Leasehold, name: &str) -> Guard {
    let before = leases.stats().renewed;
    let guard = kept(leases, name, TTL).await;
    renewed(leases, before + 1).await;
    guard
}

#[tokio::test]
async fn a_lock_that_is_deleted_overwritten_renamed_expired_or_flushed_is_lost_at_once() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let ways: [&[&str]; 6] = [
        &["DEL", "lock:x"],
        &["SET", "lock:x", "by hand"],
        &["RENAME", "lock:x", "elsewhere"],
        &["PEXPIREAT", "lock:x", "1"],
        &["FLUSHDB"],
        &["FLUSHALL"],
    ];
    for (nth, way) in (1..).zip(ways) {
        let guard = watched(&leases, "x").await;
        server.cli(way);
        assert!(guard.lost_within(SOON).await, "{way:?}");
        assert!(!guard.is_held());
        assert_eq!(leases.stats().lost, nth);
        drop(guard);
        server.cli(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_lock_that_is_evicted_is_lost_at_once() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = watched(&leases, "x").await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(guard.lost_within(SOON).await);
}

#[tokio::test]
async fn a_lock_that_is_force_released_is_lost_at_once() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let [mine, other] = [client(server.url()).await, client(server.url()).await];
    for by in [&other, &mine] {
        let guard = watched(&mine, "x").await;
        assert!(by.force_release("x", guard.fence()).await.unwrap().was_held());
        assert!(guard.lost_within(SOON).await);
    }
    // What a client does itself it knows, also of a lease that nobody renews.
    let guard = mine.lock("x").ttl(TTL).acquire().await.unwrap();
    assert!(mine.force_release("x", guard.fence()).await.unwrap().was_held());
    assert!(!guard.is_held());
}

#[tokio::test]
async fn an_execution_whose_record_is_removed_is_lost_at_once() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let execution =
        leases.idempotency("payout").key(42).lease_ttl(TTL).begin_bytes().await.unwrap().yours().unwrap();
    renewed(&leases, 1).await;
    server.cli(&["DEL", "idempotency:payout:42"]);
    assert!(execution.lease().lost_within(SOON).await);
}

#[tokio::test]
async fn a_change_that_leaves_the_lock_alone_costs_a_renewal_and_nothing_else() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = watched(&leases, "x").await;
    // Nearly expired by somebody's hand: the renewal that checks it brings the ttl back.
    server.cli(&["PEXPIRE", "lock:x", "30000"]);
    renewed(&leases, 2).await;
    assert!(guard.is_held());
    assert!(server.cli(&["PTTL", "lock:x"]).int() > 200_000);
    server.cli(&["DEL", "lock:x"]);
    assert!(guard.lost_within(SOON).await);
}

#[tokio::test]
async fn leases_are_watched_again_after_a_reconnect() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guards = [watched(&leases, "x").await, watched(&leases, "y").await];
    server.cli(&["CLIENT", "KILL", "SKIPME", "yes"]);
    renewed(&leases, 4).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    for guard in &guards {
        server.cli(&["DEL", &format!("lock:{}", guard.name())]);
        assert!(guard.lost_within(SOON).await);
    }
}

/// A report that came is dealt with before one that comes later, so a second lock that is lost shows what the first cost.
#[tokio::test]
async fn a_lock_that_was_given_back_causes_no_call_whatever_becomes_of_its_key() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let [released, detached, last] = [
        watched(&leases, "released").await,
        watched(&leases, "detached").await,
        watched(&leases, "last").await,
    ];
    let _ = released.release().await.unwrap();
    let _handle = detached.detach();
    let before = leases.round_trips().unwrap();
    for name in ["released", "detached", "last"] {
        server.cli(&["SET", &format!("lock:{name}"), "by hand"]);
    }
    assert!(last.lost_within(SOON).await);
    assert_eq!(leases.round_trips().unwrap() - before, 1);
}

#[tokio::test]
async fn a_lock_that_is_held_for_a_moment_is_never_renewed() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < A_WHILE {
        let asked = Instant::now();
        let _ = kept(&leases, "x", TTL).await.release().await.unwrap();
        longest = longest.max(asked.elapsed());
    }
    // On a machine that stood still in between it was held for longer.
    if longest < A_WHILE / 4 {
        assert_eq!(leases.stats().renewed, 0);
        assert_eq!(server.info("tracking_clients").as_deref(), Some("0"));
    }
}

/// What is claimed and released over the connection of a lock that is watched.
#[tokio::test]
async fn the_server_remembers_nothing_of_locks_that_are_not_renewed() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (leases, other) = (client(server.url()).await, client(server.url()).await);
    let _watched = watched(&leases, "x").await;
    let fixed = leases.lock("y").ttl(TTL).acquire().await.unwrap();
    fixed.extend().await.unwrap();
    let _ = kept(&leases, "z", TTL).await.release().await.unwrap();
    // Renewed at once after the hand-over, to know its start.
    let held = kept(&other, "z", TTL).await;
    let waiter = leases.lock("z").ttl(TTL).keep_alive().wait(SOON);
    let waiter = tokio::spawn(waiter.acquire());
    eventually_async(SOON, "the waiter", || async { other.inspect("z").await.unwrap().waiting == 1 }).await;
    let _ = held.release().await.unwrap();
    let renewals = leases.stats().renewed;
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(leases.stats().renewed <= renewals + 1);
    assert_eq!(server.info("tracking_total_keys").as_deref(), Some("1"));
    assert_eq!(server.info("tracking_clients").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_locks_that_are_flushed_together_are_checked_together() {
    const LOCKS: u64 = 2_000;
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let names: Vec<_> = (0..LOCKS).map(|nth| format!("many:{nth}")).collect();
    let guards = futures_util::future::join_all(names.iter().map(|name| kept(&leases, name, TTL))).await;
    renewed(&leases, LOCKS).await;
    let before = leases.round_trips().unwrap();
    server.cli(&["FLUSHALL"]);
    for guard in &guards {
        assert!(guard.lost_within(SOON).await);
    }
    let calls = leases.round_trips().unwrap() - before;
    assert!(calls <= LOCKS / 100, "{calls} calls");
}

/// A server that remembers one key forgets all others at once, and reports each.
#[tokio::test]
async fn a_server_that_forgets_what_it_watches_is_not_asked_all_the_time() {
    let builder = RedisServer::builder().arg("tracking-table-max-keys", "1");
    let Some(server) = builder.start_or_skip() else { return };
    let (leases, began) = (client(server.url()).await, Instant::now());
    let guards =
        [kept(&leases, "x", TTL).await, kept(&leases, "y", TTL).await, kept(&leases, "z", TTL).await];
    renewed(&leases, 12).await;
    // Twice a second each, and the first time.
    let most = |seconds: u64| 3 * (1 + 2 * (seconds + 1));
    let renewals = leases.stats().renewed;
    assert!(renewals <= most(began.elapsed().as_secs()), "{renewals} in {:?}", began.elapsed());
    assert!(guards.iter().all(|guard| guard.is_held()));
}

async fn is_lost_at_its_next_renewal(server: &RedisServer, leases: &Leasehold) {
    let guard = kept(leases, "short", Duration::from_millis(1500)).await;
    let before = leases.stats().renewed;
    renewed(leases, before + 2).await;
    assert!(guard.is_held());
    server.cli(&["DEL", "lock:short"]);
    assert!(guard.lost_within(SOON).await);
}

/// Without any of these rights renewals are as they are without reports: none comes early, and they find what is lost.
#[tokio::test]
async fn a_server_that_refuses_to_watch_is_asked_once_per_connection() {
    for denied in ["-client|tracking", "-client|caching"] {
        let line = format!("user weak on >pw ~* &* +@all {denied}");
        let Some(server) = RedisServer::builder().acl_line(&line).start_or_skip() else { return };
        let leases = client(format!("redis://weak:pw@{}", server.addr())).await;
        is_lost_at_its_next_renewal(&server, &leases).await;
        let guard = kept(&leases, "long", TTL).await;
        let before = leases.stats().renewed;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(leases.stats().renewed, before, "{denied}");
        let _ = guard.release().await.unwrap();
        let log = server.cli(&["ACL", "LOG"]);
        assert_eq!(log.list().len(), 1, "{denied}: {log:?}");
        assert_eq!(leases.stats().disconnected, 0);
    }
}

#[tokio::test]
async fn a_proxy_that_hangs_up_on_what_it_does_not_know_costs_one_connection() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let url = hang_up::proxy(server.addr(), "OPTIN").await;
    let leases = client(url).await;
    let guard = kept(&leases, "x", Duration::from_secs(10)).await;
    renewed(&leases, 3).await;
    assert!(guard.is_held());
    assert_eq!(leases.stats().disconnected, 1);
    is_lost_at_its_next_renewal(&server, &leases).await;
    assert_eq!(leases.stats().disconnected, 1);
}
