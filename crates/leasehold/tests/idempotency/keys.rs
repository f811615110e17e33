//! Keys, and what is refused.

use std::time::Duration;

use leasehold::{
    ErrorKind, Leasehold, Policies,
    idempotency::{Begun, Content, IdempotencyKey, Stored},
};

use crate::fixture::{Fixture, print_of};

#[tokio::test]
async fn no_two_pairs_share_a_key() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let key = |operation: &str, key: &str| {
        leases.idempotency(operation).key(key).store_key().unwrap().as_str().to_owned()
    };
    assert_eq!(key("payout", "42"), "idempotency:payout:42");
    assert_eq!(key("a:b", "c"), "idempotency:a%3Ab:c");
    assert_eq!(key("a", "b:c"), "idempotency:a:b%3Ac");
    assert_eq!(key("a", "{b}\n%"), "idempotency:a:%7Bb%7D%0A%25");
}

#[tokio::test]
async fn what_is_out_of_range_is_named() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let key = || leases.idempotency("payout").key(1);
    let cases: Vec<(&str, IdempotencyKey)> = vec![
        ("operation", leases.idempotency("").key(1)),
        ("idempotency key", leases.idempotency("payout").key("")),
        ("idempotency key", leases.idempotency("payout").key("x".repeat(512))),
        ("lease", key().lease_ttl(Duration::ZERO)),
        ("lease", key().lease_ttl(Duration::from_secs(301))),
        ("keep", key().keep_result_for(Duration::ZERO)),
        ("largest result", key().result_max(0)),
        ("label", key().label("x".repeat(200))),
        ("fingerprint", key().fingerprint(&std::collections::HashMap::from([((1, 2), 3)]))),
    ];
    for (what, key) in cases {
        let error = key.clone().begin::<u32>().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(key.at_most_once().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[tokio::test]
async fn a_quorum_says_why_it_keeps_no_records() {
    let leases = Leasehold::connect_lazy("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3").unwrap();
    for error in [
        leases.idempotency("payout").key(1).begin::<u32>().await.unwrap_err(),
        leases.idempotency("payout").key(1).at_most_once().await.unwrap_err(),
        leases.marker("processing").mark(1).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("idempotency keys and markers"), "{error}");
    }
}

#[tokio::test]
async fn keys_and_markers_come_from_a_policy_file() {
    let text = r#"
        [idempotency.payout]
        key = "idempotency:payout:{deal_id}"
        ttl = "2h"
        [markers.processing]
        key = "processing:{account}:{file}"
        ttl = "1m"
    "#;
    let policies = Policies::parse(text, "x.toml").unwrap();
    let leases = Leasehold::builder("memory:").policies(policies).connect().await.unwrap();
    let payout = || leases.idempotency_policy("payout").unwrap().key([("deal_id", "a:b")]);
    assert_eq!(payout().store_key().unwrap().as_str(), "idempotency:payout:a%3Ab");
    payout().begin::<u32>().await.unwrap().yours().unwrap().complete(&1).await.unwrap();
    let kept = payout().get().await.unwrap().unwrap().expires_in.unwrap();
    assert!(kept <= Duration::from_secs(7200) && kept > Duration::from_secs(7100), "{kept:?}");
    assert!(leases.idempotency_policy("pay").is_err());
    let processing = leases.marker_policy("processing").unwrap();
    assert!(processing.mark_if_absent(("acme", "a.csv")).await.unwrap());
    assert!(
        leases.marker("processing").layout("processing:{a}:{b}").is_marked(("acme", "a.csv")).await.unwrap()
    );
}

async fn a_record_is_shown_as_it_stands_without_its_secrets(fixture: Fixture) {
    let key = || fixture.leases.idempotency("payout").key(1).fingerprint(&"x");
    assert_eq!(key().get().await.unwrap(), None);
    let execution = key().begin::<String>().await.unwrap().yours().unwrap();
    let shown = key().get().await.unwrap().unwrap();
    let Content::Stored(Stored { state, fence, fingerprint }) = &shown.content else { panic!("{shown:?}") };
    assert_eq!((state.as_str(), *fence), ("running", execution.fence()));
    assert_eq!(*fingerprint, Some(print_of("\"x\"")));
    execution.complete(&"secret".into()).await.unwrap();
    let shown = key().get().await.unwrap().unwrap();
    assert!(!format!("{shown:?}").contains("secret"));
    assert!(key().remove().await.unwrap());
    assert!(!key().remove().await.unwrap());
    assert!(matches!(key().begin::<String>().await.unwrap(), Begun::Yours(_)));
}

on_every_store!(a_record_is_shown_as_it_stands_without_its_secrets);
