//! Each warning about a Redis server, on a server that is set up wrong in just that way.
#![cfg(feature = "redis")]

mod fake_server;
mod security_md;

use std::{any::Any, time::Duration};

use fake_server::Says;

use leasehold::{
    Leasehold,
    engine::{
        Health,
        redis::{SET_WARNING_CODES, WARNING_CODES},
    },
};
use leasehold_testkit::{RedisServer, RedisServerBuilder, eventually};

const READY: Duration = Duration::from_secs(10);

/// A server and a user that nothing is wrong with.
fn sound() -> RedisServerBuilder {
    RedisServer::builder().arg("appendonly", "yes").acl_line("user default off").acl_line(&doctor())
}

/// The documented rights of a user that locks and looks at the server's health.
fn doctor() -> String {
    let line = security_md::locks();
    format!("{line} {}", security_md::line("acl: doctor"))
}

fn url(server: &RedisServer) -> String {
    format!("redis://leasehold:pw@{}", server.addr())
}

async fn health(url: &str) -> Health {
    let leases = Leasehold::connect(url).await.unwrap();
    let health = leases.health().await.unwrap();
    leases.close().await.unwrap();
    health
}

fn codes(health: &Health) -> Vec<&'static str> {
    health.warnings.iter().map(|warning| warning.code).collect()
}

fn fact<'a>(health: &'a Health, name: &str) -> &'a str {
    health.facts.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
}

/// A server with one thing wrong: its URL, and what must live while it is looked at.
fn arrange(code: &str) -> Option<(String, Vec<Box<dyn Any>>)> {
    let one = |builder: RedisServerBuilder| {
        builder.start_or_skip().map(|server| (url(&server), vec![Box::new(server) as Box<dyn Any>]))
    };
    match code {
        "no-info" => {
            let line = doctor().replace(" +info", "");
            one(RedisServer::builder().arg("appendonly", "yes").acl_line("user default off").acl_line(&line))
        }
        "scripts" => one(sound().arg("rename-command", "EVAL \"\"")),
        "eviction" => one(sound().arg("maxmemory-policy", "volatile-ttl")),
        "replica" => {
            let primary = RedisServer::builder().start_or_skip()?;
            let replica =
                sound().arg("replicaof", &format!("127.0.0.1 {}", primary.port())).start_or_skip()?;
            Some((url(&replica), vec![Box::new(primary), Box::new(replica)]))
        }
        "cluster" => one(sound().arg("cluster-enabled", "yes")),
        "version" => Some((fake("redis_version:6.2.14\r\nrole:master\r\n", Duration::ZERO), Vec::new())),
        "persistence" => one(sound().arg("appendonly", "no").arg("save", "")),
        "bgsave" => {
            let server = sound().start_or_skip()?;
            // The snapshot is written and cannot take its place.
            std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
            server.cli(&["BGSAVE"]);
            eventually(READY, "the snapshot fails", || {
                server.cli(&["INFO", "persistence"]).text().contains("rdb_last_bgsave_status:err")
            });
            Some((url(&server), vec![Box::new(server)]))
        }
        "min-replicas" => {
            let primary = sound().acl_line("user replica on >r +psync +replconf +ping").start_or_skip()?;
            let replica = RedisServer::builder()
                .arg("replicaof", &format!("127.0.0.1 {}", primary.port()))
                .arg("masteruser", "replica")
                .arg("masterauth", "r")
                .start_or_skip()?;
            eventually(READY, "the replica connects", || {
                primary.cli(&["INFO", "replication"]).text().contains("connected_slaves:1")
            });
            Some((url(&primary), vec![Box::new(primary), Box::new(replica)]))
        }
        "no-replicas" => one(sound().arg("min-replicas-to-write", "1")),
        "clients" => {
            let server = sound().arg("maxclients", "10").start_or_skip()?;
            let others: Vec<_> = (0..8).map(|_| server.connect().unwrap()).collect();
            Some((url(&server), vec![Box::new(server), Box::new(others)]))
        }
        "clock-skew" => {
            Some((fake("redis_version:7.0.0\r\nrole:master\r\n", Duration::from_secs(90)), Vec::new()))
        }
        "no-auth" => {
            let line = doctor().replace("user leasehold on >pw", "user default on nopass");
            let server = RedisServer::builder().arg("appendonly", "yes").acl_line(&line).start_or_skip()?;
            Some((format!("redis://{}", server.addr()), vec![Box::new(server)]))
        }
        "acl" => {
            let line = "user leasehold on >pw ~* &* +@all";
            one(RedisServer::builder().arg("appendonly", "yes").acl_line("user default off").acl_line(line))
        }
        other => panic!("no case for the warning {other}"),
    }
}

#[tokio::test]
async fn each_warning_appears_on_a_server_set_up_wrong_in_that_way_and_no_other_does() {
    for code in WARNING_CODES {
        let Some((url, _alive)) = arrange(code) else { return };
        let health = health(&url).await;
        assert_eq!(codes(&health), [code], "{:?}", health.warnings);
        let warning = &health.warnings[0];
        assert!(!warning.found.is_empty() && !warning.cure.is_empty(), "{warning:?}");
    }
}

#[tokio::test]
async fn a_user_that_may_not_run_scripts_is_told_and_the_server_is_not_blamed() {
    let Some(server) = sound().start_or_skip() else { return };
    server.cli(&["ACL", "SETUSER", "leasehold", "-eval"]);
    let health = health(&url(&server)).await;
    assert_eq!(codes(&health), ["scripts"], "{:?}", health.warnings);
    assert!(health.warnings[0].found.contains("NOPERM"), "{:?}", health.warnings);
}

#[test]
fn each_warning_is_documented() {
    let text = include_str!("../../../docs/troubleshooting.md");
    for code in WARNING_CODES.iter().chain(&SET_WARNING_CODES) {
        assert!(text.contains(&format!("\n| `{code}` | ")), "{code} is not in docs/troubleshooting.md");
    }
}

#[tokio::test]
async fn a_sound_server_has_no_warning_and_tells_its_facts() {
    let Some(server) = sound().start_or_skip() else { return };
    let health = health(&url(&server)).await;
    assert_eq!(codes(&health), [""; 0], "{:?}", health.warnings);
    assert_eq!(fact(&health, "user"), "leasehold");
    assert_eq!(fact(&health, "role"), "master");
    assert_eq!(fact(&health, "persistence"), "append-only file");
    assert!(fact(&health, "version").contains('.'));
}

#[tokio::test]
async fn snapshots_count_as_persistence() {
    let builder = sound().arg("appendonly", "no").arg("save", "3600 1");
    let Some(server) = builder.start_or_skip() else { return };
    let health = health(&url(&server)).await;
    assert_eq!((fact(&health, "persistence"), codes(&health).len()), ("snapshots", 0));
}

#[tokio::test]
async fn a_user_that_only_locks_can_be_looked_at_without_a_failure() {
    let line = security_md::locks();
    let builder = RedisServer::builder().acl_line("user default off").acl_line(&line);
    let Some(server) = builder.start_or_skip() else { return };
    assert_eq!(codes(&health(&url(&server)).await), ["no-info"]);
}

#[tokio::test]
async fn each_right_documented_for_the_doctor_shows_something_more() {
    let Some(server) = sound().start_or_skip() else { return };
    // Numbers that change by themselves are left out.
    let shown = async || {
        let health = health(&url(&server)).await;
        let labels: Vec<_> = health.facts.iter().map(|(label, _)| label.clone()).collect();
        (labels, fact(&health, "persistence").to_owned())
    };
    server.cli(&["CONFIG", "SET", "appendonly", "no"]);
    let everything = shown().await;
    for right in security_md::line("acl: doctor").split(' ') {
        let denied = right.replacen('+', "-", 1);
        assert_eq!(server.cli(&["ACL", "SETUSER", "leasehold", &denied]).error(), None);
        assert_ne!(shown().await, everything, "nothing is missing without {right}");
        server.cli(&["ACL", "SETUSER", "leasehold", right]);
    }
    assert_eq!(shown().await, everything);
}

/// A server that says these things about itself.
fn fake(info: &str, ahead: Duration) -> String {
    let (listener, addr) = fake_server::bind();
    fake_server::serve(listener, Says { info: info.to_owned(), ahead, ..Says::default() });
    format!("redis://leasehold:pw@{addr}")
}
