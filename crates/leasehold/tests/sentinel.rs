//! A primary that sentinels name: found, left and found again.
#![cfg(feature = "redis")]

mod security_md;

use std::time::Duration;

use leasehold::{Attempt, Error, Guard, Leasehold, engine::Released, error::Refusal};
use leasehold_testkit::{RedisServer, SentinelSet, SentinelSetBuilder, eventually_async};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One whose primary stays, however busy the machine is.
fn set() -> SentinelSetBuilder {
    SentinelSet::builder().down_after(LONG * 10)
}

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(ms(4000)).connect().await.unwrap()
}

async fn held(leases: &Leasehold, name: &str) -> Guard {
    leases.lock(name).wait(LONG).acquire().await.unwrap()
}

/// What connecting to a URL fails with.
async fn refusal(url: &str) -> Error {
    Leasehold::builder(url).command_timeout(ms(8000)).connect().await.unwrap_err()
}

fn clients_of(server: &RedisServer) -> usize {
    let list = server.cli(&["CLIENT", "LIST"]).text().to_owned();
    list.lines().filter(|line| line.contains("name=leasehold ")).count()
}

/// Closes all connections of lock clients.
fn hang_up(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        server.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

/// The connections of clients that listen to a sentinel, as it lists them.
fn listeners_of(sentinel: &RedisServer) -> Vec<String> {
    let list = sentinel.cli(&["CLIENT", "LIST"]).text().to_owned();
    list.lines().filter(|line| line.contains(" sub=2 ")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_on_the_primary_that_the_sentinels_name() {
    let Some(set) = set().start_or_skip() else { return };
    let (a, b) = (client(set.url()).await, client(set.url()).await);
    assert_eq!(a.capabilities().engine, "redis-sentinel");
    let guard = held(&a, "x").await;
    assert_eq!(set.primary().cli(&["EXISTS", "lock:x"]).int(), 1);
    assert!(matches!(b.lock("x").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    let waiter = tokio::spawn(b.lock("x").wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { a.inspect("x").await.unwrap().waiting == 1 }).await;
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    assert_eq!(waiter.await.unwrap().unwrap().release().await.unwrap(), Released::Free);
    let health = a.health().await.unwrap();
    assert!(health.facts.contains(&("engine".into(), "redis-sentinel".into())), "{health:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_every_sentinel_and_what_it_said() {
    let Some(set) = set().replicas(1).start_or_skip() else { return };
    let wrong_name = set.url().replace(SentinelSet::NAME, "nobody");
    let error = refusal(&wrong_name).await;
    assert!(matches!(error, Error::StoreRefused { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("no sentinel knows a primary called \"nobody\""), "{text}");
    for sentinel in set.sentinels() {
        assert!(text.contains(&format!("{} (does not know it)", sentinel.addr())), "{text}");
    }

    set.sentinels()[0].kill();
    set.sentinels()[1].stop();
    let text = refusal(&wrong_name).await.to_string();
    let [first, second, third] = set.sentinels() else { panic!("three sentinels") };
    assert!(text.contains(&format!("{} (Connection refused", first.addr())), "{text}");
    assert!(text.contains(&format!("{} (no answer within", second.addr())), "{text}");
    assert!(text.contains(&format!("{} (does not know it)", third.addr())), "{text}");
    second.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_cannot_be_reached_is_named() {
    let Some(set) = set().start_or_skip() else { return };
    let addr = set.primary().addr();
    set.nodes()[0].kill();
    let error = refusal(&set.url()).await;
    let text = error.to_string();
    assert!(
        matches!(error, Error::StoreUnreachable { .. }) && text.contains(&format!("name {addr}")),
        "{text}"
    );
    assert!(text.contains("Connection refused"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_sentinels_have_logins_of_their_own() {
    let set = set().password("of the nodes").sentinel_password("of the+sentinels");
    let Some(set) = set.start_or_skip() else { return };
    let leases = client(set.url()).await;
    let _ = held(&leases, "x").await.release().await.unwrap();

    let is_auth = |error: &Error| matches!(error, Error::StoreRefused { refusal: Refusal::Auth, .. });
    let no_sentinel_password = set.url().split('?').next().unwrap().to_owned();
    let error = refusal(&no_sentinel_password).await;
    assert!(is_auth(&error) && error.to_string().contains("NOAUTH"), "{error}");
    // What is meant for the nodes was not shown to a sentinel, not even in vain.
    for sentinel in set.sentinels() {
        let log = sentinel.cli(&["ACL", "LOG"]);
        assert!(log.list().is_empty(), "{log:?}");
    }
    let no_password = set.url().replace(":of%20the%20nodes@", "");
    assert_ne!(no_password, set.url());
    let error = refusal(&no_password).await;
    assert!(is_auth(&error) && error.to_string().contains(&set.primary().addr().to_string()), "{error}");

    let dir = tempfile::tempdir().unwrap();
    let files = ["nodes", "sentinels"].map(|name| dir.path().join(name));
    std::fs::write(&files[0], "of the nodes\n").unwrap();
    std::fs::write(&files[1], "of the+sentinels\n").unwrap();
    let [nodes, sentinels] = files.map(|file| file.display().to_string());
    let place = no_password.split('?').next().unwrap();
    let url = format!("{place}?password-file={nodes}&sentinel-password-file={sentinels}");
    let _ = held(&client(url).await, "y").await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_and_a_hanging_sentinel_cost_a_part_of_the_command_timeout() {
    let Some(set) = set().start_or_skip() else { return };
    let patient = || Leasehold::builder(set.url()).command_timeout(LONG);
    set.sentinels()[1].stop();
    // More than half agree: nobody waits for the third, which would take a quarter of a minute.
    let began = std::time::Instant::now();
    let leases = patient().connect().await.unwrap();
    assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
    let _ = held(&leases, "x").await.release().await.unwrap();
    set.sentinels()[0].kill();
    let leases = client(set.url()).await;
    let _ = held(&leases, "x").await.release().await.unwrap();
    set.sentinels()[1].cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_the_url_does_not_name_are_learnt() {
    let Some(set) = set().start_or_skip() else { return };
    let first = set.sentinels()[0].addr();
    let leases = client(format!("redis-sentinel://{first}/{}", SentinelSet::NAME)).await;
    let guard = held(&leases, "x").await;
    let _ = guard.release().await.unwrap();
    // It asks whom else it can ask before it asks for the primary.
    eventually_async(LONG, "the client to listen and ask", || async {
        listeners_of(&set.sentinels()[0]).iter().any(|line| line.contains("cmd=sentinel|master"))
    })
    .await;
    set.sentinels()[0].kill();
    hang_up(set.primary());
    eventually_async(LONG, "the break", || async { leases.stats().disconnected > 0 }).await;
    let _ = held(&leases, "x").await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_missed_a_fail_over_are_not_believed_although_they_are_more() {
    let Some(apart) = set().replicas(0).sentinels(2).start_or_skip() else { return };
    let Some(set) = set().replicas(1).sentinels(1).start_or_skip() else { return };
    let primary = set.failover();
    // Three sentinels of one name: two know nothing of a fail-over, and their primary takes writes.
    let hosts: Vec<_> =
        apart.sentinels().iter().chain(set.sentinels()).map(|sentinel| sentinel.addr().to_string()).collect();
    let leases = client(format!("redis-sentinel://{}/{}", hosts.join(","), SentinelSet::NAME)).await;
    eventually_async(LONG, "the one that knows to be heard", || async {
        leases.inspect("x").await.is_ok() && clients_of(primary) == 1
    })
    .await;
    for _ in 0..10 {
        let before = leases.stats().disconnected;
        hang_up(primary);
        eventually_async(LONG, "the break", || async { leases.stats().disconnected > before }).await;
        let guard = held(&leases, "x").await;
        assert_eq!(primary.cli(&["EXISTS", "lock:x"]).int(), 1);
        let _ = guard.release().await.unwrap();
    }
    // Also when the one that knows is silent: what was heard is not forgotten.
    set.sentinels()[0].stop();
    primary.kill();
    for _ in 0..3 {
        let error = leases.lock("x").try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::StoreUnreachable { .. }), "{error}");
        tokio::time::sleep(ms(1100)).await;
    }
    let error = leases.lock("x").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("which was replaced since"), "{error}");
    assert_eq!(apart.primary().cli(&["EXISTS", "lock:x"]).int(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listening_ends_with_the_client() {
    let Some(set) = set().replicas(1).start_or_skip() else { return };
    let listeners = || set.sentinels().iter().map(|sentinel| listeners_of(sentinel).len()).sum::<usize>();
    let (closed, dropped) = (client(set.url()).await, client(set.url()).await);
    eventually_async(LONG, "both to listen to all", || async { listeners() == 6 }).await;
    closed.close().await.unwrap();
    eventually_async(LONG, "one to end", || async { listeners() == 3 }).await;
    drop(dropped);
    eventually_async(LONG, "the other to end", || async { listeners() == 0 }).await;
    assert_eq!(clients_of(set.primary()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_suffice() {
    let Some(set) = set().replicas(1).start_or_skip() else { return };
    let give = |server: &RedisServer, line: &str, more: &[&str]| {
        let line = line.replace("PASSWORD", "pw");
        let words: Vec<_> = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1)).collect();
        assert_eq!(server.cli(&[&words, more].concat()).error(), None);
    };
    let (locks, asking) = (security_md::locks(), security_md::line("acl: sentinels"));
    set.nodes()
        .iter()
        .for_each(|node| give(node, &locks, &["+role", "+info", "+zscore", "+zremrangebyscore"]));
    set.sentinels().iter().for_each(|sentinel| give(sentinel, &asking, &[]));
    let login = "leasehold:pw@";
    let url = set.url().replace("://", &format!("://{login}"));
    let url = format!("{url}?sentinel-user=leasehold&sentinel-password=pw");
    for url in [url.clone(), format!("{url}&grace=on")] {
        let leases = client(&url).await;
        eventually_async(LONG, "the client to listen to all", || async {
            set.sentinels().iter().all(|sentinel| {
                listeners_of(sentinel).iter().any(|line| line.contains("cmd=sentinel|master"))
            })
        })
        .await;
        let _granted_or_in_grace = leases.lock("x").try_acquire().await.unwrap();
        leases.close().await.unwrap();
    }
    for server in set.nodes().iter().chain(set.sentinels()) {
        let denied = server.cli(&["ACL", "LOG"]);
        assert!(denied.list().is_empty(), "{denied:?}");
    }
    // Without one of them it says so.
    set.nodes().iter().for_each(|node| drop(node.cli(&["ACL", "SETUSER", "leasehold", "-role"])));
    let error = refusal(&url).await;
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Acl, .. }), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_goes_to_sentinels_and_to_the_primary() {
    let certificates = leasehold_testkit::Certificates::generate();
    let Some(set) = set().replicas(1).tls(&certificates).start_or_skip() else { return };
    let trusting = |ca: &std::path::Path| format!("{}?ca={}", set.url(), ca.display());
    assert!(set.url().starts_with("rediss-sentinel://"));
    let leases = client(trusting(&certificates.ca())).await;
    let _ = held(&leases, "x").await.release().await.unwrap();
    set.failover();
    let _ = held(&leases, "x").await.release().await.unwrap();
    let other_spelling = trusting(&certificates.ca()).replace("rediss-", "redis-") + "&tls=on";
    let _ = held(&client(other_spelling).await, "x").await.release().await.unwrap();
    let error = refusal(&trusting(&certificates.wrong_ca())).await;
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Certificate, .. }), "{error}");
}
