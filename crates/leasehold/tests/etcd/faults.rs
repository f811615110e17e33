//! Faults of one member, and of what is in it.

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold};
use leasehold_testkit::{EtcdSet, FaultProxy, Helper, eventually_async};

use super::{LONG, builder, client, keys, secs, shared, until_waiting};

/// The etcd lease of the attempt that is the only one under a prefix, or the last one.
fn lease_of_last(etcd: &EtcdSet, prefix: &str) -> String {
    let order = ["--sort-by=CREATE", "--order=DESCEND", "--limit=1"];
    let prefix = format!("{prefix}:");
    let words = [&["get", "--prefix", "-w", "fields"][..], &order, &[&prefix]].concat();
    let shown = etcd.ctl(&words);
    let lease = shown.lines().find_map(|line| line.strip_prefix("\"Lease\" : ")).expect("a key");
    format!("{:x}", lease.parse::<i64>().unwrap())
}

#[tokio::test]
async fn a_lease_that_is_revoked_is_lost_at_once_and_never_comes_back() {
    let Some(etcd) = shared() else { return };
    let leases = client(etcd, "revoked").await;
    let guard = leases.lock("job").ttl(LONG).keep_alive().acquire().await.unwrap();
    eventually_async(LONG, "its first renewal", || async { leases.stats().renewed >= 1 }).await;
    etcd.ctl(&["lease", "revoke", &lease_of_last(etcd, "revoked")]);
    let reported = tokio::time::timeout(LONG / 3, guard.lost()).await;
    assert!(reported.is_ok(), "not before the next renewal");
    let next = leases.lock("job").acquire().await.unwrap();
    assert!(next.fence() > guard.fence() && !guard.is_held());
    assert!(!guard.release().await.unwrap().was_held());
    assert!(next.release().await.unwrap().was_held());
}

#[tokio::test]
async fn a_waiter_whose_lease_is_revoked_goes_to_the_end_and_never_believes_it_holds() {
    let Some(etcd) = shared() else { return };
    let leases = client(etcd, "waiting").await;
    let holder = leases.lock("job").ttl(LONG).keep_alive().acquire().await.unwrap();
    let wait = |label: &str| {
        let lock = leases.lock("job").label(label).ttl(secs(30)).wait(LONG);
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    };
    let first = wait("first");
    until_waiting(&leases, "job", 1).await;
    let lease = lease_of_last(etcd, "waiting");
    let second = wait("second");
    until_waiting(&leases, "job", 2).await;
    etcd.ctl(&["lease", "revoke", &lease]);
    let order = || async {
        let seen = leases.inspect("job").await.unwrap();
        let shown: Vec<_> = seen.waiters.iter().map(|waiter| waiter.holder.to_string()).collect();
        shown.len() == 2 && shown[0].starts_with("second") && shown[1].starts_with("first")
    };
    eventually_async(LONG, "the first to come back behind the second", order).await;
    assert!(holder.release().await.unwrap().was_held());
    let second = second.await.unwrap();
    assert!(!first.is_finished() && second.is_held());
    let fence = second.fence();
    assert!(second.release().await.unwrap().was_held());
    let first = first.await.unwrap();
    assert!(first.fence() > fence);
    assert!(first.release().await.unwrap().was_held());
}

#[tokio::test]
async fn compaction_ends_no_watch_and_no_lock() {
    let Some(etcd) = EtcdSet::builder(1).start_or_skip() else { return };
    let leases = client(&etcd, "compacted").await;
    let guard = leases.lock("job").ttl(secs(6)).keep_alive().acquire().await.unwrap();
    let next = leases.lock("job").ttl(secs(6)).wait(LONG);
    let waiter = tokio::spawn(async move { next.acquire().await.unwrap() });
    until_waiting(&leases, "job", 1).await;
    for round in 0..5 {
        etcd.ctl(&["put", "x", &round.to_string()]);
        let shown = etcd.ctl(&["get", "x", "-w", "fields"]);
        let revision = shown.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
        etcd.ctl(&["compact", revision]);
    }
    let renewed = leases.stats().renewed;
    eventually_async(LONG, "two more renewals", || async { leases.stats().renewed >= renewed + 2 }).await;
    assert!(guard.is_held() && !waiter.is_finished());
    assert!(guard.release().await.unwrap().was_held());
    let next = waiter.await.unwrap();
    assert!(next.release().await.unwrap().was_held());
}

#[tokio::test]
async fn a_member_that_restarts_keeps_its_locks_and_streams_are_rebuilt() {
    let Some(etcd) = EtcdSet::builder(1).start_or_skip() else { return };
    let leases = client(&etcd, "restart").await;
    let guard = leases.lock("job").ttl(LONG).keep_alive().acquire().await.unwrap();
    let next = leases.lock("job").ttl(LONG).wait(LONG * 2);
    let waiter = tokio::spawn(async move { next.acquire().await.unwrap() });
    until_waiting(&leases, "job", 1).await;
    eventually_async(LONG, "a renewal", || async { leases.stats().renewed >= 1 }).await;
    for _ in 0..2 {
        etcd.members()[0].restart();
        etcd.members()[0].wait();
        let renewed = leases.stats().renewed;
        eventually_async(LONG, "a renewal", || async { leases.stats().renewed > renewed }).await;
    }
    assert!(guard.is_held() && !waiter.is_finished());
    let fence = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    let next = waiter.await.unwrap();
    assert!(next.fence() > fence);
    // The loss of a lock is reported over the new stream, too.
    let kept = leases.lock("other").ttl(LONG).keep_alive().acquire().await.unwrap();
    let renewed = leases.stats().renewed;
    eventually_async(LONG, "its first renewal", || async { leases.stats().renewed > renewed }).await;
    etcd.ctl(&["del", &kept.lease().held_key().unwrap()]);
    assert!(tokio::time::timeout(LONG / 3, kept.lost()).await.is_ok());
    assert!(next.release().await.unwrap().was_held());
}

/// A claim whose answer is lost, and that arrives after its attempt has ended, locks for nobody.
#[tokio::test]
async fn a_claim_that_arrives_after_its_end_locks_for_nobody() {
    let Some(etcd) = EtcdSet::builder(1).start_or_skip() else { return };
    let proxy = FaultProxy::start(etcd.members()[0].addr());
    let url = format!("etcd://{}", proxy.addr());
    let leases =
        Leasehold::builder(&url).command_timeout(Duration::from_millis(300)).connect().await.unwrap();
    let direct = client(&etcd, "lock").await;
    for round in 0..5 {
        let name = format!("job{round}");
        if round % 2 == 0 {
            proxy.hold();
        } else {
            proxy.hold_replies();
        }
        leases.lock(&name).wait(Duration::ZERO).acquire().await.unwrap_err();
        proxy.pass();
        let free =
            || async { direct.lock(&name).try_acquire().await.is_ok_and(|attempt| attempt.held().is_some()) };
        eventually_async(secs(10), "nobody to hold it, long before its ttl", free).await;
    }
}

/// A claim that one member does not answer goes to another. The first copy may arrive after the release, and must not find
/// its lease in use again: the lock would then be held by nobody for as long as others renew that lease.
#[tokio::test]
async fn a_copy_that_another_member_overtook_locks_for_nobody() {
    let Some(etcd) = EtcdSet::builder(1).start_or_skip() else { return };
    let proxies = [(); 2].map(|()| FaultProxy::start(etcd.members()[0].addr()));
    let [one, other] = proxies.each_ref().map(FaultProxy::addr);
    let url = format!("etcd://{one},{other}");
    let leases = Leasehold::builder(&url).command_timeout(secs(3)).connect().await.unwrap();
    let cycle = async || {
        let guard = leases.lock("job").ttl(secs(30)).wait(secs(10)).acquire().await.unwrap();
        assert!(guard.release().await.unwrap().was_held());
    };
    for _ in 0..8 {
        let before = proxies.each_ref().map(FaultProxy::requests_bytes);
        // Leaves a lease that the next claim uses, so that the claim is the first call.
        cycle().await;
        let used = usize::from(proxies[0].requests_bytes() == before[0]);
        proxies[used].hold();
        cycle().await;
        proxies[used].pass();
        // The copy arrives now, if the member takes it before it learns that its client has left.
        for _ in 0..10 {
            cycle().await;
        }
    }
}

#[tokio::test]
async fn an_outage_is_reported_in_time_and_is_over_when_the_member_is_back() {
    let Some(etcd) = EtcdSet::builder(1).start_or_skip() else { return };
    let leases = builder(&etcd, "outage").command_timeout(secs(1)).connect().await.unwrap();
    let guard = leases.lock("job").ttl(secs(3)).keep_alive().acquire().await.unwrap();
    etcd.members()[0].kill();
    let error = leases.lock("other").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnreachable, "{error}");
    tokio::time::timeout(LONG, guard.lost()).await.expect("lost in time, without a member");
    etcd.members()[0].restart();
    etcd.members()[0].wait();
    let again = leases.lock("job").wait(LONG).acquire().await.unwrap();
    assert!(again.fence() > guard.fence());
    assert!(again.release().await.unwrap().was_held());
}

#[tokio::test]
async fn a_killed_holder_is_followed_after_its_ttl() {
    let Some(etcd) = shared() else { return };
    let holder = Helper::spawn("holder", &[("STORE", &etcd.url())]);
    let fence: u64 = holder.wait_for_line("held ", LONG).parse().unwrap();
    let leases = Leasehold::connect(etcd.url()).await.unwrap();
    assert!(leases.lock("killed").try_acquire().await.unwrap().held().is_none());
    holder.kill9();
    let next = leases.lock("killed").wait(LONG).acquire().await.unwrap();
    assert!(next.fence().get() > fence);
    assert!(next.release().await.unwrap().was_held());
    assert!(keys(etcd, "lock").is_empty());
}
