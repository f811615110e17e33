//! `grace=on`: after a promotion nothing new is granted until every lease of the old primary is over, and holders that
//! the new one forgot are written down again.
#![cfg(feature = "redis")]

mod story;

use std::time::{Duration, Instant};

use leasehold::{Attempt, Guard, Leasehold, engine::Released};
use leasehold_testkit::{
    RedisServer, SentinelSet, SentinelSetBuilder, eventually_async,
    load::{self, Load},
};
use story::Story;

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(5);
/// A lease, and a lock-delay as long.
const GRACE: Duration = Duration::from_secs(10);

fn set() -> SentinelSetBuilder {
    SentinelSet::builder().down_after(Duration::from_millis(1500))
}

/// One whose primary stays, however busy the machine is.
fn calm_set() -> SentinelSetBuilder {
    SentinelSet::builder().replicas(1).down_after(LONG * 10)
}

async fn client_with(set: &SentinelSet, max_ttl: Duration) -> Leasehold {
    let with_grace = Leasehold::builder(format!("{}?grace=on", set.url()));
    let builder = with_grace.configure(|config| (config.ttl, config.max_ttl) = (max_ttl, max_ttl));
    builder.connect().await.unwrap()
}

async fn client(set: &SentinelSet) -> Leasehold {
    client_with(set, TTL).await
}

async fn held(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).keep_alive().wait(LONG).acquire().await.unwrap()
}

/// The primary, as if the grace of its first use were over.
async fn settled(set: &SentinelSet) -> &RedisServer {
    client(set).await.close().await.unwrap();
    assert_eq!(set.primary().cli(&["DEL", "leasehold:grace"]).int(), 1);
    set.primary()
}

fn in_grace(server: &RedisServer) -> bool {
    server.cli(&["EXISTS", "leasehold:grace"]).int() == 1
}

/// Makes a server look like one that was just promoted; clients notice at their next call.
async fn begin_era(server: &RedisServer, leases: &Leasehold) {
    server.cli(&["DEL", "leasehold:era"]);
    eventually_async(LONG, "the grace to begin", || async {
        let _refused_or_busy = leases.lock("anything").try_acquire().await;
        in_grace(server)
    })
    .await;
}

async fn is_busy(leases: &Leasehold, name: &str) -> bool {
    matches!(leases.lock(name).try_acquire().await.unwrap(), Attempt::Busy { .. })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_use_waits_and_later_ones_do_not() {
    let Some(set) = calm_set().start_or_skip() else { return };
    let began = Instant::now();
    let leases = client(&set).await;
    match leases.lock("x").try_acquire().await.unwrap() {
        Attempt::Busy { holder, .. } => assert_eq!(holder, None),
        Attempt::Held(_) => panic!("granted in the grace"),
    }
    let _ = held(&leases, "x").await.release().await.unwrap();
    assert!(began.elapsed() >= GRACE, "{:?}", began.elapsed());
    let later = client(&set).await;
    assert!(matches!(later.lock("x").try_acquire().await.unwrap(), Attempt::Held(_)));
    // A client with longer leases is known to the next primary.
    client_with(&set, TTL * 2).await.close().await.unwrap();
    let known = set.primary().cli(&["ZRANGE", "leasehold:graces", "0", "-1"]);
    let known: Vec<_> = known.list().iter().map(|ms| ms.text().parse::<u128>().unwrap()).collect();
    assert_eq!(known, [GRACE.as_millis(), (GRACE * 2).as_millis()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_grant_was_not_copied_keeps_its_lock() {
    let Some(set) = set().start_or_skip() else { return };
    let old = settled(&set).await;
    let (holder, other) = (client(&set).await, client(&set).await);
    let replicas = set.replicas();
    replicas.iter().for_each(|replica| replica.stop());
    old.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let guard = held(&holder, "x").await;
    old.kill();
    replicas.iter().for_each(|replica| replica.cont());
    let new = set.await_primary_other_than(old.port());
    let waiter = tokio::spawn(other.lock("x").wait(LONG * 2).into_future());
    eventually_async(LONG, "the holder to be written down", || async {
        new.cli(&["EXISTS", "lock:x"]).int() == 1
    })
    .await;
    assert_eq!(other.inspect("x").await.unwrap().held().unwrap().fence, guard.fence());
    assert!(guard.is_held() && in_grace(new) && is_busy(&other, "x").await && is_busy(&other, "y").await);
    eventually_async(LONG, "the end of the grace", || async { !in_grace(new) }).await;
    assert!(guard.is_held() && !waiter.is_finished());
    let fence = guard.fence();
    let _ = guard.release().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().fence() > fence);
}

/// Fifty locks that are kept alive, and a load beside them, while `breaks` makes another server the primary.
async fn loses_nothing(breaks: impl AsyncFn(&SentinelSet)) {
    // A lease cannot outlive an outage of its whole length: on a busy machine a fail-over may take so long.
    for _ in 0..3 {
        if loses_nothing_in_time(&breaks).await {
            return;
        }
    }
    panic!("fail-overs take longer than leases");
}

/// Returns whether the servers were back in time for the leases.
async fn loses_nothing_in_time(breaks: impl AsyncFn(&SentinelSet)) -> bool {
    let Some(set) = set().start_or_skip() else { return true };
    settled(&set).await;
    let ttl = TTL * 3;
    let clients = [client_with(&set, ttl).await, client_with(&set, ttl).await];
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(held(&clients[number % 2], &format!("kept-{number}")).await);
    }
    let story = Story::begin(Load { wait: LONG * 2, ..Load::default() }, &clients);
    let grants = load::grants(1000) / 2;
    story.goes_on(grants).await;
    let began = Instant::now();
    breaks(&set).await;
    let is_in_time = began.elapsed() < ttl / 2;
    story.goes_on(grants).await;
    for guard in guards.iter().filter(|_| is_in_time) {
        assert!(guard.is_held(), "{} was lost: {:?}", guard.name(), clients[0].stats());
        guard.extend().await.unwrap();
    }
    story.end(|_| false).await;
    is_in_time
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_never_makes_two_holders() {
    loses_nothing(async |set| {
        let old = set.primary();
        old.kill();
        set.await_primary_other_than(old.port());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_fail_over_never_makes_two_holders() {
    loses_nothing(async |set| {
        set.failover();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_grace_a_release_frees_and_waiters_keep_their_order() {
    let Some(set) = calm_set().start_or_skip() else { return };
    let primary = settled(&set).await;
    let leases = client(&set).await;
    let (first, forced) = (held(&leases, "x").await, held(&leases, "y").await);
    let (turns, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5 {
        let (lock, turns) = (leases.lock("x").wait(LONG), turns.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            turns.send(number).unwrap();
            let _ = guard.release().await.unwrap();
        });
        let waiting = || async { leases.inspect("x").await.unwrap().waiting == number + 1 };
        eventually_async(LONG, "the waiter", waiting).await;
    }
    begin_era(primary, &leases).await;
    assert_eq!(first.release().await.unwrap(), Released::Free);
    assert_eq!(leases.force_release("y", forced.fence()).await.unwrap(), Released::Free);
    assert!(is_busy(&leases, "x").await && is_busy(&leases, "y").await && in_grace(primary));
    assert_eq!(leases.inspect("x").await.unwrap().waiting, 5);
    for number in 0..5 {
        assert_eq!(order.recv().await, Some(number));
    }
    assert!(!in_grace(primary));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_holder_that_nobody_followed_is_written_down_again() {
    let Some(set) = calm_set().start_or_skip() else { return };
    let primary = settled(&set).await;
    let leases = client_with(&set, LONG).await;
    let names = ["kept", "missing", "earlier", "later", "foreign"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(leases.lock(name).wait(LONG).acquire().await.unwrap());
    }
    let another = |fence: u64| format!("{} {fence} 1 1 host ", "0".repeat(32));
    let fence_of = |at: usize| guards[at].fence().get();
    primary.cli(&["DEL", "lock:missing", "leasehold:fence"]);
    primary.cli(&["SET", "lock:earlier", &another(fence_of(2) - 1), "PX", "60000"]);
    primary.cli(&["SET", "lock:later", &another(fence_of(3) + 1), "PX", "60000"]);
    primary.cli(&["SET", "lock:foreign", "a token", "PX", "60000"]);
    begin_era(primary, &leases).await;
    for (guard, expected) in guards.iter().zip([true, true, true, false, false]) {
        assert_eq!(guard.extend().await.is_ok(), expected, "{}", guard.name());
        if expected {
            let found = leases.inspect(guard.name().as_str()).await.unwrap().held().cloned().unwrap();
            assert_eq!(found.fence, guard.fence());
        }
    }
    let last = primary.cli(&["GET", "leasehold:fence"]).text().parse::<u64>().unwrap();
    assert!(last >= fence_of(2), "a later grant could have the fence of one that was written down again");
    assert_eq!(primary.cli(&["DEL", "leasehold:grace"]).int(), 1, "it was over before everything was tried");
    // Afterwards what is gone is gone.
    let guard = leases.lock("after").wait(LONG).acquire().await.unwrap();
    primary.cli(&["DEL", "lock:after"]);
    guard.extend().await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_primary_grants_nothing_while_its_holders_come_back() {
    let Some(set) = calm_set().start_or_skip() else { return };
    let primary = settled(&set).await;
    let (holder, other) = (client(&set).await, client(&set).await);
    let guard = held(&holder, "x").await;
    primary.cli(&["FLUSHALL"]);
    let waiter = tokio::spawn(other.lock("x").wait(LONG * 2).into_future());
    eventually_async(LONG, "the holder to be written down", || async {
        primary.cli(&["EXISTS", "lock:x"]).int() == 1
    })
    .await;
    eventually_async(LONG, "the end of the grace", || async { !in_grace(primary) }).await;
    assert!(guard.is_held() && !waiter.is_finished());
    let fence = guard.fence();
    let _ = guard.release().await.unwrap();
    assert!(waiter.await.unwrap().unwrap().fence() > fence);
}

/// L10: one run with long leases must not make every later grace as long, for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_grace_is_as_long_as_those_who_use_the_primary_need_it() {
    let Some(set) = calm_set().start_or_skip() else { return };
    let primary = settled(&set).await;
    let hour = Duration::from_secs(3600);
    client_with(&set, hour).await.close().await.unwrap();
    let leases = client(&set).await;
    let next_grace = async || {
        begin_era(primary, &leases).await;
        let left = primary.cli(&["PTTL", "leasehold:grace"]).int();
        primary.cli(&["DEL", "leasehold:grace"]);
        left
    };
    let with_hour = next_grace().await;
    assert!(with_hour > hour.as_millis() as i64, "who may still hold for an hour is waited for: {with_hour}");
    // As if two hours had passed since anybody with such leases came.
    let ms = (hour * 2).as_millis().to_string();
    primary.cli(&["ZADD", "leasehold:graces", "XX", "1", &ms]);
    let without = next_grace().await;
    assert!(without <= GRACE.as_millis() as i64, "{without}");
    // Who stays connected and goes on taking locks is known for as long.
    let patient = client_with(&set, hour).await;
    primary.cli(&["DEL", "leasehold:graces", "leasehold:grace"]);
    let _ = held(&patient, "x").await.release().await.unwrap();
    assert!(primary.cli(&["ZSCORE", "leasehold:graces", &ms]).text().len() > 10);
}
