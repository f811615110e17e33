//! Each warning about a sentinel set, on one that is set up wrong in just that way.
#![cfg(feature = "redis")]

mod security_md;

use std::time::Duration;

use leasehold::{Leasehold, engine::Health};
use leasehold_testkit::{RedisServer, SentinelSet, SentinelSetBuilder, eventually_async};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// One that nothing is wrong with, and whose primary stays, however busy the machine is.
fn sound() -> SentinelSetBuilder {
    SentinelSet::builder()
        .down_after(LONG * 10)
        .arg("min-replicas-to-write", "1")
        .arg("min-replicas-max-lag", "60")
}

fn give(server: &RedisServer, line: &str, more: &str) {
    let line = line.replace("PASSWORD", "pw");
    let words = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1)).chain(more.split(' '));
    assert_eq!(server.cli(&words.collect::<Vec<_>>()).error(), None);
}

fn give_to_sentinel(sentinel: &RedisServer) {
    give(sentinel, &security_md::line("acl: sentinels"), &security_md::line("acl: doctor at sentinels"));
}

/// Users with the documented rights everywhere; the URL for them.
fn with_users(set: &SentinelSet) -> String {
    let more = format!("+role {}", security_md::line("acl: doctor"));
    set.nodes().iter().for_each(|node| give(node, &security_md::locks(), &more));
    set.sentinels().iter().for_each(give_to_sentinel);
    let url = set.url().replace("://", "://leasehold:pw@");
    format!("{url}?sentinel-user=leasehold&sentinel-password=pw")
}

async fn health(url: &str) -> Health {
    let leases = Leasehold::builder(url).command_timeout(Duration::from_secs(40)).connect_lazy().unwrap();
    let health = leases.health().await.unwrap();
    leases.close().await.unwrap();
    health
}

fn codes(health: &Health) -> Vec<&'static str> {
    health.warnings.iter().map(|warning| warning.code).collect()
}

/// Waits for just these warnings, and returns what the first of them says.
async fn found(url: &str, expected: &[&str]) -> String {
    let mut last = Health::default();
    let look = async || {
        let health = health(url).await;
        (codes(&health) == expected, health)
    };
    for _ in 0..LONG.as_millis() / 100 {
        let (is_as_expected, health) = look().await;
        if is_as_expected {
            return health.warnings.first().map(|warning| warning.found.clone()).unwrap_or_default();
        }
        last = health;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("expected {expected:?}, found {:?}", last.warnings);
}

fn fact<'a>(health: &'a Health, name: &str) -> &'a str {
    health.facts.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
}

fn set_config(server: &RedisServer, setting: &str, value: &str) {
    assert_eq!(server.cli(&["CONFIG", "SET", setting, value]).error(), None);
}

fn set_right(server: &RedisServer, right: &str) {
    assert_eq!(server.cli(&["ACL", "SETUSER", "leasehold", right]).error(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_set_has_no_warning_and_a_line_for_each_node_and_sentinel() {
    let Some(set) = sound().start_or_skip() else { return };
    let url = with_users(&set);
    found(&url, &[]).await;
    let health = health(&url).await;
    let primary = set.primary();
    assert_eq!(fact(&health, "engine"), "redis-sentinel");
    assert_eq!(fact(&health, "primary"), primary.addr().to_string());
    assert_eq!(fact(&health, "sentinels"), "3 known, 3 answer, 2 must miss the primary");
    for sentinel in set.sentinels() {
        let line = fact(&health, &format!("sentinel {}", sentinel.addr())).to_owned();
        assert!(line.starts_with(&format!("names {}", primary.addr())), "{line}");
    }
    let line = |node: &RedisServer| fact(&health, &node.addr().to_string()).to_owned();
    assert!(line(primary).starts_with("primary, version "), "{}", line(primary));
    for replica in set.replicas() {
        let line = line(replica);
        assert!(line.starts_with("replica, version ") && line.ends_with("link up"), "{line}");
    }
    // All of it with the documented rights; that nobody is an administrator is found out by trying.
    for server in set.nodes().iter().chain(set.sentinels()) {
        let denied = server.cli(&["ACL", "LOG"]);
        assert!(denied.list().iter().all(|entry| format!("{entry:?}").contains("acl|users")), "{denied:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_warning_names_the_node_it_is_about() {
    let Some(set) = sound().start_or_skip() else { return };
    let url = with_users(&set);
    found(&url, &[]).await;
    let (primary, replicas) = (set.primary(), set.replicas());
    let replica = replicas[0];
    let names = |text: &str, node: &RedisServer| text.contains(&node.addr().to_string());

    for (setting, bad, good, code) in [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "eviction"),
        ("appendonly", "no", "yes", "persistence"),
        ("min-replicas-to-write", "0", "1", "min-replicas"),
    ] {
        for (wrong, right) in [(replica, primary), (primary, replica)] {
            set_config(wrong, setting, bad);
            let text = found(&url, &[code]).await;
            assert!(names(&text, wrong) && !names(&text, right), "{text}");
            set_config(wrong, setting, good);
        }
    }
    for (wrong, right, code) in [("+acl|users", "-acl|users", "acl"), ("-info", "+info", "no-info")] {
        set_right(replica, wrong);
        let text = found(&url, &[code]).await;
        assert!(names(&text, replica) && !names(&text, primary), "{text}");
        set_right(replica, right);
    }
    // Both lists at once, each node in one warning.
    let anybody = url.replace("leasehold:pw@", "");
    let text = found(&anybody, &["no-auth", "acl"]).await;
    assert!(set.nodes().iter().all(|node| names(&text, node)), "{text}");
    let sentinels_let_everybody_in = url.split('?').next().unwrap();
    assert!(found(sentinels_let_everybody_in, &["no-auth"]).await.contains("sentinels"));

    // A login that the primary does not know.
    set_config(replica, "masterauth", "wrong");
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let text = found(&url, &["replica-link"]).await;
    assert!(names(&text, replica) && text.contains("is down"), "{text}");
    set_config(replica, "masterauth", "");
    found(&url, &[]).await;

    set.sentinels().iter().for_each(|sentinel| set_right(sentinel, "-sentinel|replicas"));
    assert!(found(&url, &["no-info"]).await.contains("replicas"));
    set.sentinels().iter().for_each(|sentinel| set_right(sentinel, "+sentinel|replicas"));

    replicas[1].kill();
    let text = found(&url, &["node-down"]).await;
    assert!(names(&text, replicas[1]) && !names(&text, replica), "{text}");
    // Those that are left tell the rest.
    primary.kill();
    let text = found(&url, &["node-down", "replica-link"]).await;
    assert!(names(&text, primary) && names(&text, replicas[1]), "{text}");
    replica.kill();
    let leases = Leasehold::builder(&url).command_timeout(LONG).connect_lazy().unwrap();
    let error = leases.health().await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_that_ends_is_a_warning_where_a_grace_would_follow() {
    let Some(set) = sound().start_or_skip() else { return };
    let url = with_users(&set);
    let with_grace = format!("{url}&grace=on");
    found(&with_grace, &[]).await;
    let replica = set.replicas()[0];
    set_config(replica, "repl-backlog-ttl", "3600");
    let text = found(&with_grace, &["backlog-ttl"]).await;
    assert!(text.starts_with(&replica.addr().to_string()) && text.contains("3600 s"), "{text}");
    found(&url, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_that_are_gone_or_disagree_are_named() {
    let Some(set) = sound().start_or_skip() else { return };
    let url = with_users(&set);
    found(&url, &[]).await;
    let [_, second, third] = set.sentinels() else { panic!("three sentinels") };
    // Found by those that the URL names.
    let only_first = url.replace(&format!(",{},{}", second.addr(), third.addr()), "");
    assert_ne!(only_first, url);
    found(&only_first, &[]).await;

    second.kill();
    for url in [&url, &only_first] {
        let text = found(url, &["sentinel-down"]).await;
        assert!(text.starts_with("2 of 3 ") && text.contains(&second.addr().to_string()), "{text}");
        assert!(!text.contains("too few"), "{text}");
    }
    third.kill();
    let text = found(&url, &["sentinel-down"]).await;
    assert!(
        text.starts_with("1 of 3 ") && text.ends_with("too few are left to name another primary"),
        "{text}"
    );
    for sentinel in [second, third] {
        sentinel.restart();
        give_to_sentinel(sentinel);
    }
    found(&url, &[]).await;

    let other = set.replicas()[0].addr();
    assert_eq!(third.cli(&["SENTINEL", "REMOVE", SentinelSet::NAME]).error(), None);
    let port = other.port().to_string();
    let monitor = ["SENTINEL", "MONITOR", SentinelSet::NAME, "127.0.0.1", &port, "2"];
    assert_eq!(third.cli(&monitor).error(), None);
    let text = found(&url, &["sentinel-views"]).await;
    assert!(text.contains(&format!("{} names {other}", third.addr())), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_nobody_can_replace_is_told() {
    let set = sound().arg("min-replicas-to-write", "0").sentinels(1).replicas(0);
    let Some(set) = set.start_or_skip() else { return };
    let url = with_users(&set);
    let text = found(&url, &["few-sentinels", "unreplicated"]).await;
    assert!(text.starts_with("1 sentinels are known"), "{text}");
    eventually_async(LONG, "a line for the primary", || async {
        fact(&health(&url).await, &set.primary().addr().to_string()).starts_with("primary, ")
    })
    .await;
}
