//! Users, and TLS.

use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::{Certificates, EtcdSet};

use super::secs;

#[tokio::test]
async fn a_user_logs_in_again_when_its_token_is_over() {
    // A simple token lasts for a few seconds here.
    let short = ["--auth-token=simple", "--auth-token-ttl=1", "--bcrypt-cost=4"];
    let Some(etcd) = short.iter().fold(EtcdSet::builder(1), |etcd, arg| etcd.arg(arg)).start_or_skip() else {
        return;
    };
    etcd.ctl(&["user", "add", "root:secret"]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["role", "add", "locks"]);
    for prefix in ["lock:", "leasehold:"] {
        etcd.ctl(&["role", "grant-permission", "locks", "--prefix=true", "readwrite", prefix]);
    }
    etcd.ctl(&["user", "add", "ann:p@ss"]);
    etcd.ctl(&["user", "grant-role", "ann", "locks"]);
    etcd.ctl(&["auth", "enable"]);
    let url = etcd.url().replace("etcd://", "etcd://ann:p%40ss@");
    let leases = Leasehold::builder(&url).command_timeout(secs(20)).connect().await.unwrap();
    let guard = leases.lock("job").ttl(secs(6)).keep_alive().acquire().await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(secs(2)).await;
        let other = leases.lock("other").acquire().await.unwrap();
        assert!(other.release().await.unwrap().was_held());
    }
    assert!(guard.is_held() && guard.release().await.unwrap().was_held());
    let permit = leases.semaphore("gpu", 2).acquire().await.unwrap();
    assert_eq!(leases.inspect("gpu").await.unwrap().permits_used(), Some(1));
    assert!(permit.release().await.unwrap().was_held());

    let error =
        Leasehold::connect(etcd.url().replace("etcd://", "etcd://ann:wrong@")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
    assert!(
        error.to_string().contains("authentication failed") && !error.to_string().contains("wrong"),
        "{error}"
    );
    let denied = Leasehold::builder(&url).configure(|config| config.prefix = "others:".into());
    let error = denied.connect().await.unwrap().lock("job").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn members_and_clients_prove_who_they_are() {
    let certificates = Certificates::generate();
    let Some(etcd) = EtcdSet::builder(1).tls(&certificates).start_or_skip() else { return };
    let leases = Leasehold::connect(etcd.url()).await.unwrap();
    let guard = leases.lock("job").acquire().await.unwrap();
    assert!(guard.release().await.unwrap().was_held());

    let ca = certificates.wrong_ca();
    let wrong = format!("etcds://{}?ca={}", etcd.members()[0].addr(), ca.display());
    let error = Leasehold::connect(wrong).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
