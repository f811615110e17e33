//! Clocks and versions that differ between nodes, on servers that only say so.
#![cfg(feature = "redis")]

mod fake_server;

use std::{net::SocketAddr, time::Duration};

use fake_server::{Says, bulk};
use leasehold::{
    Leasehold,
    engine::{Health, Warning},
};

const SOUND: &str = "redis_version:7.0.0\r\nrun_id:r\r\nmaster_replid:d\r\nrole:master\r\n";

async fn health(url: &str) -> Health {
    let leases = Leasehold::builder(url).command_timeout(Duration::from_secs(20)).connect_lazy().unwrap();
    leases.health().await.unwrap()
}

fn warning<'a>(health: &'a Health, code: &str) -> Option<&'a Warning> {
    health.warnings.iter().find(|warning| warning.code == code)
}

fn hosts(addrs: &[SocketAddr]) -> String {
    addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Nodes whose clocks are so many seconds ahead; what each of them says is worked out from all addresses.
fn serve(ahead_s: &[u64], says: impl Fn(usize, &[SocketAddr]) -> Says) -> Vec<SocketAddr> {
    let (listeners, addrs): (Vec<_>, Vec<_>) = ahead_s.iter().map(|_| fake_server::bind()).unzip();
    for (at, listener) in listeners.into_iter().enumerate() {
        let ahead = Duration::from_secs(ahead_s[at]);
        fake_server::serve(listener, Says { ahead, ..says(at, &addrs) });
    }
    addrs
}

/// One primary with all slots, followed by the others.
fn shards(addrs: &[SocketAddr]) -> String {
    let node = |(at, addr): (usize, &SocketAddr)| {
        let role = if at == 0 { "master" } else { "replica" };
        let text = |name: &str, value: &str| format!("{}{}", bulk(name), bulk(value));
        let port = format!("{}:{}\r\n", bulk("port"), addr.port());
        let place = text("endpoint", &addr.ip().to_string());
        format!("*8\r\n{place}{port}{}{}", text("role", role), text("health", "online"))
    };
    let nodes: String = addrs.iter().enumerate().map(node).collect();
    let slots = format!("{}*2\r\n:0\r\n:16383\r\n", bulk("slots"));
    format!("*1\r\n*4\r\n{slots}{}*{}\r\n{nodes}", bulk("nodes"), addrs.len())
}

#[tokio::test]
async fn clocks_of_a_cluster_are_compared() {
    let of = |ahead_s: &[u64]| {
        serve(ahead_s, |_, addrs| Says { info: SOUND.into(), shards: shards(addrs), ..Says::default() })
    };
    let addrs = of(&[0, 0, 0]);
    let health_of = async |addrs: &[SocketAddr]| health(&format!("redis-cluster://{}", hosts(addrs))).await;
    assert_eq!(warning(&health_of(&addrs).await, "clocks-differ"), None);

    // As far from ours as you like: between the nodes nothing differs.
    let away = health_of(&of(&[90, 90])).await;
    assert_eq!(warning(&away, "clocks-differ"), None);
    assert!(warning(&away, "clock-skew").is_some(), "{away:?}");

    let addrs = of(&[0, 7, 0]);
    let found = health_of(&addrs).await;
    let text = &warning(&found, "clocks-differ").unwrap().found;
    assert!(text.starts_with(&format!("the clock of {} is ", addrs[1])), "{text}");
    assert!(text.contains("a promotion") && !text.contains("for longer"), "{text}");
    let text = health_of(&of(&[40, 0, 0])).await;
    assert!(warning(&text, "clocks-differ").unwrap().found.contains("for longer than most"), "{text:?}");
}

#[tokio::test]
async fn versions_of_a_cluster_are_compared() {
    let addrs = serve(&[0, 0, 0], |at, addrs| Says {
        info: SOUND.replace("7.0.0", if at == 1 { "7.2.4" } else { "7.0.0" }),
        shards: shards(addrs),
        ..Says::default()
    });
    let found = health(&format!("redis-cluster://{}", hosts(&addrs))).await;
    let text = &warning(&found, "versions-differ").unwrap().found;
    assert!(text.contains(&format!("7.2.4 on {}", addrs[1])) && text.contains("7.0.0 on "), "{text}");
}

#[tokio::test]
async fn clocks_of_a_quorum_are_compared() {
    let of = |ahead_s: &[u64]| serve(ahead_s, |_, _| Says { info: SOUND.into(), ..Says::default() });
    let health_of = async |addrs: &[SocketAddr]| health(&format!("redlock://{}", hosts(addrs))).await;
    assert_eq!(warning(&health_of(&of(&[0, 0, 0])).await, "clocks-differ"), None);
    let addrs = of(&[0, 0, 7]);
    let found = health_of(&addrs).await;
    let text = &warning(&found, "clocks-differ").unwrap().found;
    assert!(text.starts_with(&format!("the clock of {} is ", addrs[2])), "{text}");
    assert!(text.contains("60 s away") && !text.contains("gives no votes"), "{text}");
    let found = health_of(&of(&[0, 45, 0])).await;
    assert!(warning(&found, "clocks-differ").unwrap().found.contains("gives no votes"), "{found:?}");
}
