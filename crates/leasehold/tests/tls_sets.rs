//! TLS to every node of a cluster and of a quorum.
#![cfg(feature = "tls")]

use std::{path::Path, time::Duration};

use leasehold::{Error, Leasehold, Refusal, engine::Released};
use leasehold_testkit::{Certificates, ClusterSet, QuorumSet, eventually_async};

const LONG: Duration = Duration::from_secs(60);

fn trusting(url: &str, ca: &Path) -> String {
    format!("{url}?ca={}", ca.display())
}

async fn client(url: &str, ca: &Path) -> Leasehold {
    Leasehold::builder(trusting(url, ca)).command_timeout(Duration::from_secs(10)).connect().await.unwrap()
}

/// A lock that is waited for, handed over and given back.
async fn hand_over(leases: &Leasehold, name: &str) {
    let guard = leases.lock(name).wait(LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock(name).wait(LONG).into_future());
    eventually_async(LONG, "a waiter", || async { leases.inspect(name).await.unwrap().waiting == 1 }).await;
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}

async fn is_refused(url: &str, wrong_ca: &Path) {
    let error = match Leasehold::connect(trusting(url, wrong_ca)).await {
        Err(error) => error,
        Ok(leases) => leases.lock("x").try_acquire().await.unwrap_err(),
    };
    assert!(matches!(error, Error::StoreRefused { refusal: Refusal::Certificate, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_goes_to_every_node_of_a_cluster() {
    let certificates = Certificates::generate();
    let Some(set) = ClusterSet::builder().tls(&certificates).start_or_skip() else { return };
    assert!(set.url().starts_with("rediss-cluster://"));
    let leases = client(&set.url(), &certificates.ca()).await;
    let names: Vec<_> = set.primaries().iter().map(|primary| set.name_on(primary, "x")).collect();
    for name in &names {
        hand_over(&leases, name).await;
    }
    // Every node is found and asked over TLS.
    let health = leases.health().await.unwrap();
    for node in set.nodes() {
        let is_seen = |(label, words): &(String, String)| {
            *label == node.addr().to_string() && words.contains(", version ")
        };
        assert!(health.facts.iter().any(is_seen), "{:?}", health.facts);
    }
    // Where a node sends a client, TLS is spoken too.
    let key = format!("lock:{}", names[0]);
    tokio::task::block_in_place(|| set.failover_of(set.primary_of(&key)));
    hand_over(&leases, &names[0]).await;
    is_refused(&set.url(), &certificates.wrong_ca()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_goes_to_every_node_of_a_quorum() {
    let certificates = Certificates::generate();
    let Some(set) = QuorumSet::builder(3).tls(&certificates).start_or_skip() else { return };
    assert!(set.url().starts_with("redlocks://"));
    let url = trusting(&set.url(), &certificates.ca());
    let leases = Leasehold::builder(url).command_timeout(Duration::from_secs(10)).connect_lazy().unwrap();
    leases.quorum().unwrap().admit_new().await.unwrap();
    hand_over(&leases, "x").await;
    set.nodes()[0].kill();
    hand_over(&leases, "x").await;
    is_refused(&set.url(), &certificates.wrong_ca()).await;
}
