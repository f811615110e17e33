//! What `doctor` says of an etcd that is set up like that.

use leasehold::{Health, Leasehold, engine::etcd::WARNING_CODES};
use leasehold_testkit::EtcdSet;

use super::secs;

async fn health(url: &str) -> Health {
    Leasehold::builder(url).command_timeout(secs(5)).connect().await.unwrap().health().await.unwrap()
}

fn codes(health: &Health) -> Vec<&'static str> {
    health.warnings.iter().map(|warning| warning.code).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_are_well_until_one_is_down_or_is_not_named() {
    let Some(etcd) = EtcdSet::builder(3).start_or_skip() else { return };
    let well = health(&etcd.url()).await;
    assert!(codes(&well).is_empty(), "{:?}", well.warnings);
    assert!(well.facts.contains(&("members".into(), "3".into())), "{:?}", well.facts);
    let one = format!("etcd://{}", etcd.members()[0].addr());
    assert_eq!(codes(&health(&one).await), ["member-unnamed", "member-unnamed"]);
    etcd.members()[2].kill();
    assert_eq!(codes(&health(&etcd.url()).await), ["member-down"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alarms_and_slow_leases_are_reported() {
    let arguments = ["--quota-backend-bytes=4000000", "--election-timeout=6000", "--heartbeat-interval=600"];
    let set = arguments.iter().fold(EtcdSet::builder(1), |etcd, arg| etcd.arg(arg));
    let Some(etcd) = set.start_or_skip() else { return };
    assert_eq!(codes(&health(&etcd.url()).await), ["few-members", "slow-leases"]);
    let leases = Leasehold::connect(etcd.url()).await.unwrap();
    let guard = leases.lock("job").ttl(secs(60)).acquire().await.unwrap();
    let value = "x".repeat(100_000);
    let full = (0..100).any(|number| {
        let put = || etcd.ctl(&["put", &format!("fill{number}"), &value]);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(put)).is_err()
    });
    assert!(full, "the quota was not reached");
    assert!(codes(&health(&etcd.url()).await).contains(&"no-space"));
    let error = leases.lock("other").acquire().await.unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::StoreRefused, "{error}");
    assert!(error.to_string().contains("out of memory"), "{error}");
    // What is held can be given back.
    assert!(guard.release().await.unwrap().was_held());
}

#[test]
fn every_code_is_a_stable_word() {
    assert!(
        WARNING_CODES.iter().all(|code| code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'))
    );
}
