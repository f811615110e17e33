//! How locks lie in etcd, and what else can be done with them there.

use super::{client, keys, secs, shared};

#[tokio::test]
async fn a_lock_is_a_key_attached_to_a_lease_and_shows_no_secret() {
    let Some(etcd) = shared() else { return };
    let leases = client(etcd, "layout").await;
    let guard = leases.lock("a/b%").label("nightly").ttl(secs(10)).acquire().await.unwrap();
    let [key] = &keys(etcd, "layout")[..] else { panic!("one lock is one key") };
    assert_eq!(Some(key), guard.lease().held_key().as_ref());
    assert!(key.starts_with("layout:a%2Fb%25/"), "{key}");
    let shown = etcd.ctl(&["get", key, "-w", "fields"]);
    assert!(shown.contains("leasehold-lock:1 w ") && shown.contains("nightly"), "{shown}");
    assert!(shown.contains(&format!("\"CreateRevision\" : {}\n", guard.fence())), "{shown}");
    assert!(!shown.contains("\"Lease\" : 0\n"), "{shown}");
    // The handle has the secret, which is what proves an owner.
    let handle = guard.detach();
    let secret = handle.expose().split_whitespace().find(|word| word.len() == 32).map(str::to_owned);
    let secret = secret.expect("a handle has the random part");
    assert!(!shown.contains(&secret) && !key.contains(&secret));
    let guard = leases.attach(handle).await.unwrap();
    assert!(guard.release().await.unwrap().was_held());
    assert!(keys(etcd, "layout").is_empty());
}

#[tokio::test]
async fn a_transaction_of_the_caller_writes_only_while_the_lock_is_held() {
    let Some(etcd) = shared() else { return };
    let leases = client(etcd, "compare").await;
    let guard = leases.lock("deal:42").acquire().await.unwrap();
    let condition = format!("create(\"{}\") = \"{}\"", guard.lease().held_key().unwrap(), guard.fence());
    let write = |value: &str| {
        let text = format!("{condition}\n\nput compare-written {value}\n\nget compare-written\n\n");
        etcd.ctl_with(&["txn", "--interactive"], &text)
    };
    assert!(write("in-time").contains("SUCCESS"));
    assert!(guard.release().await.unwrap().was_held());
    let next = leases.lock("deal:42").acquire().await.unwrap();
    assert!(write("late").contains("FAILURE"));
    assert!(etcd.ctl(&["get", "compare-written"]).contains("in-time"));
    assert!(next.release().await.unwrap().was_held());
}

#[tokio::test]
async fn leases_are_used_again_and_none_is_left_after_closing() {
    let Some(etcd) = leasehold_testkit::EtcdSet::builder(1).start_or_skip() else { return };
    let leases = client(&etcd, "spare").await;
    for _ in 0..20 {
        let guard = leases.lock("job").acquire().await.unwrap();
        assert!(guard.release().await.unwrap().was_held());
    }
    let count = || etcd.ctl(&["lease", "list"]).lines().count() - 1;
    assert_eq!(count(), 1, "one after the other needs one lease");
    leases.close().await.unwrap();
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn a_limit_is_remembered_and_a_key_of_somebody_else_keeps_everybody_out() {
    let Some(etcd) = shared() else { return };
    let leases = client(etcd, "foreign").await;
    etcd.ctl(&["put", "foreign:job/of-somebody-else", "x"]);
    let refused = leases.lock("job").try_acquire().await.unwrap();
    assert!(refused.held().is_none());
    // One that lies deeper is another client's, with a longer prefix.
    etcd.ctl(&["put", "foreign:free/deeper/key", "x"]);
    let guard = leases.lock("free").try_acquire().await.unwrap().held().expect("nobody has it");
    assert!(guard.release().await.unwrap().was_held());
    etcd.ctl(&["del", "foreign:job/of-somebody-else"]);

    let one = leases.semaphore("gpu", 2).acquire().await.unwrap();
    assert!(one.release().await.unwrap().was_held());
    let error = leases.semaphore("gpu", 3).acquire().await.unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::OtherLimit);
    assert!(keys(etcd, "foreign").iter().all(|key| !key.contains("gpu")), "the refused claim left something");
}
