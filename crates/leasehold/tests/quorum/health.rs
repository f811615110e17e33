//! What `health()` says about the nodes of a quorum.

use std::time::Duration;

use leasehold::{
    Leasehold,
    engine::{Health, quorum::WARNING_CODES},
};
use leasehold_testkit::{RedisServer, eventually_async};

use crate::fixture::{LONG, admit, client, nodes, quorum};

const MAX_TTL: Duration = Duration::from_secs(30);

async fn health(leases: &Leasehold) -> Health {
    leases.health().await.unwrap()
}

/// What was found, by code.
fn found<'a>(health: &'a Health, code: &str) -> Vec<&'a str> {
    let of_code = |warning: &&leasehold::engine::Warning| warning.code == code;
    health.warnings.iter().filter(of_code).map(|warning| warning.found.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_quorum_tells_each_node_and_warns_of_nothing_of_its_own() {
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let health = health(&client(&set, MAX_TTL)).await;
    for code in WARNING_CODES.into_iter().chain(["persistence", "min-replicas"]) {
        assert!(found(&health, code).is_empty(), "{:?}", health.warnings);
    }
    assert!(health.facts.contains(&("nodes".into(), "3, of which 2 must agree".into())));
    for node in set.nodes() {
        assert!(health.facts.contains(&(node.addr().to_string(), "votes".into())), "{:?}", health.facts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_trouble_of_a_node_is_a_warning_that_names_it() {
    let Some(set) = nodes(5).start_or_skip() else { return };
    admit(&set, MAX_TTL).await;
    let leases = client(&set, MAX_TTL);
    let [_, wiped, dead, forgetful, copied] = set.nodes() else { panic!("five nodes") };
    wiped.cli(&["FLUSHALL"]);
    dead.kill();
    forgetful.cli(&["CONFIG", "SET", "appendonly", "no"]);
    let origin = format!("127.0.0.1 {}", copied.port());
    let _copy = RedisServer::builder().arg("replicaof", &origin).start().unwrap();
    eventually_async(LONG, "a replica", || async { copied.info("connected_slaves").as_deref() == Some("1") })
        .await;
    let health = health(&leases).await;
    for (code, node) in [
        ("quorum-marker", wiped),
        ("node-down", dead),
        ("persistence", forgetful),
        ("quorum-replicas", copied),
    ] {
        let found = found(&health, code);
        let of_node = found.iter().filter(|found| found.starts_with(&node.addr().to_string())).count();
        assert_eq!(of_node, 1, "{code}: {:?}", health.warnings);
    }
    // What helps a primary would not help here.
    assert!(found(&health, "min-replicas").is_empty(), "{:?}", health.warnings);
    // A copy changes the name of the data set, so that node does not vote either.
    assert_eq!(found(&health, "quorum-marker").len(), 2, "{:?}", health.warnings);
}

#[test]
fn each_warning_is_documented() {
    let text = include_str!("../../../../docs/troubleshooting.md");
    for code in WARNING_CODES {
        assert!(text.contains(&format!("\n| `{code}` | ")), "{code} is not in the guide");
    }
}
