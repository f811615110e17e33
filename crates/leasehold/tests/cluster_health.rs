//! Each warning about a cluster, on one that is set up wrong in just that way.
#![cfg(feature = "redis")]

mod security_md;

use std::time::Duration;

use leasehold::{Leasehold, engine::Health};
use leasehold_testkit::{ClusterSet, ClusterSetBuilder, RedisServer, eventually_async};

/// For things that take a moment on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn sound() -> ClusterSetBuilder {
    ClusterSet::builder().arg("min-replicas-to-write", "1").arg("min-replicas-max-lag", "60")
}

/// Users with the documented rights on every node; the URL for them.
fn with_users(set: &ClusterSet) -> String {
    let more = ["acl: cluster", "acl: doctor", "acl: doctor in a cluster"].map(security_md::line);
    let line = format!("{} {}", security_md::locks(), more.join(" "));
    for node in set.nodes() {
        let words = ["ACL", "SETUSER"].into_iter().chain(line.split(' ').skip(1));
        assert_eq!(node.cli(&words.collect::<Vec<_>>()).error(), None);
    }
    set.url().replace("redis-cluster://", "redis-cluster://leasehold:pw@")
}

async fn health(url: &str) -> Health {
    let leases = Leasehold::builder(url).command_timeout(Duration::from_secs(40)).connect_lazy().unwrap();
    let health = leases.health().await.unwrap();
    leases.close().await.unwrap();
    health
}

/// Waits for just these warnings.
async fn found(url: &str, expected: &[&str]) -> Health {
    let mut last = Health::default();
    for _ in 0..LONG.as_millis() / 100 {
        last = health(url).await;
        if last.warnings.iter().map(|warning| warning.code).eq(expected.iter().copied()) {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("expected {expected:?}, found {:?}", last.warnings);
}

fn text<'a>(health: &'a Health, code: &str) -> &'a str {
    health.warnings.iter().find(|warning| warning.code == code).map_or("", |warning| &warning.found)
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

fn names(text: &str, node: &RedisServer) -> bool {
    text.contains(&node.addr().to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_warning_names_the_nodes_it_is_about_and_is_given_once() {
    let Some(set) = sound().start_or_skip() else { return };
    let url = with_users(&set);
    let health = found(&url, &[]).await;
    assert_eq!((fact(&health, "primaries"), fact(&health, "replicas")), ("3", "3"));
    let primaries = set.primaries();
    let (primary, replica) = (primaries[0], set.replica_of(primaries[1]));
    let line = fact(&health, &primary.addr().to_string());
    assert!(line.starts_with("primary of 546") && line.contains(" slots, version "), "{line}");
    let line = fact(&health, &replica.addr().to_string());
    assert!(line.starts_with(&format!("replica of {}, version ", primaries[1].addr())), "{line}");
    assert_eq!(health.facts.len(), 3 + 6, "{health:?}");
    // All of it with the documented rights; that nobody is an administrator is found out by trying.
    for node in set.nodes() {
        let denied = node.cli(&["ACL", "LOG"]);
        assert!(denied.list().iter().all(|entry| format!("{entry:?}").contains("acl|users")), "{denied:?}");
    }

    for (setting, bad, good, code) in [
        ("maxmemory-policy", "allkeys-lru", "noeviction", "eviction"),
        ("appendonly", "no", "yes", "persistence"),
        ("min-replicas-to-write", "0", "1", "min-replicas"),
        ("cluster-require-full-coverage", "yes", "no", "full-coverage"),
    ] {
        for node in [primary, replica] {
            set_config(node, setting, bad);
        }
        let health = found(&url, &[code]).await;
        let text = text(&health, code);
        let named = set.nodes().iter().filter(|node| names(text, node)).count();
        assert!(names(text, primary) && names(text, replica) && named == 2, "{text}");
        for node in [primary, replica] {
            set_config(node, setting, good);
        }
    }
    for (wrong, right, code) in [("+acl|users", "-acl|users", "acl"), ("-info", "+info", "no-info")] {
        set_right(replica, wrong);
        let health = found(&url, &[code]).await;
        let text = text(&health, code);
        assert!(names(text, replica) && !names(text, primary), "{text}");
        set_right(replica, right);
    }
    set.nodes().iter().for_each(|node| set_right(node, "-cluster|shards"));
    assert!(text(&found(&url, &["no-info"]).await, "no-info").contains("CLUSTER SHARDS"));
    set.nodes().iter().for_each(|node| set_right(node, "+cluster|shards"));
    let anybody = found(&set.url(), &["no-auth", "acl"]).await;
    assert!(set.nodes().iter().all(|node| names(text(&anybody, "acl"), node)), "{anybody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_dead_or_missing_is_named_and_the_rest_is_looked_at() {
    let Some(set) = sound().start_or_skip() else { return };
    let url = with_users(&set);
    found(&url, &[]).await;
    let primary = set.primaries()[2];
    let replica = set.replica_of(primary);
    set_config(primary, "min-replicas-to-write", "0");

    set_config(replica, "masterauth", "wrong");
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    let health = found(&url, &["replica-link"]).await;
    assert!(names(text(&health, "replica-link"), replica), "{health:?}");

    replica.kill();
    let health = found(&url, &["node-failed", "unreplicated", "node-down"]).await;
    for (code, node, other) in [
        ("node-failed", replica, primary),
        ("node-down", replica, primary),
        ("unreplicated", primary, replica),
    ] {
        let text = text(&health, code);
        assert!(names(text, node) && !names(text, other), "{text}");
    }
    assert!(fact(&health, &replica.addr().to_string()).ends_with("cannot be asked"), "{health:?}");
    assert!(fact(&health, &primary.addr().to_string()).contains("version"), "{health:?}");

    let slot = ClusterSet::slot(&set.key_on(primary, "x")).to_string();
    // A message that its primary sent before gives it back.
    let up = || [primary].into_iter().chain(set.nodes()).filter(|node| node.is_up());
    eventually_async(LONG, "the slot to be nobody's", || async {
        let lacks_one = |node: &RedisServer| {
            node.cli(&["CLUSTER", "INFO"]).text().contains("cluster_slots_assigned:16383\r")
        };
        let all_lack_one = up().all(lacks_one);
        if !all_lack_one {
            up().for_each(|node| drop(node.cli(&["CLUSTER", "DELSLOTS", &slot])));
        }
        all_lack_one
    })
    .await;
    let health = found(&url, &["slots", "node-failed", "unreplicated", "node-down"]).await;
    assert!(text(&health, "slots").contains(&format!("the slots {slot}:")), "{health:?}");
}
