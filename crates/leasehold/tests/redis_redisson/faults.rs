//! Locks in Redisson's format while connections break and slots move.

use std::time::Duration;

use leasehold::{Error, Leasehold, engine::Released};
use leasehold_testkit::{ClusterSet, FaultProxy, eventually, eventually_async};

use super::{
    Redisson, client,
    every_server::{LONG, Servers},
    lock, patient,
};

/// As long as a claim without an answer is waited for.
const GIVEN_UP: Duration = Duration::from_millis(300);

#[tokio::test]
async fn an_abandon_that_overtakes_its_own_claim_leaves_no_lock_behind() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = Leasehold::builder(proxy.url()).command_timeout(GIVEN_UP).connect().await.unwrap();
    let _ = lock(&leases, "warm").acquire().await.unwrap().release().await.unwrap();
    proxy.hold();
    // The claims are sent and stay on their way, on a connection that is then given up.
    for name in ["x", "y"] {
        let error = lock(&leases, name).wait(GIVEN_UP).acquire().await.unwrap_err();
        assert!(matches!(error, Error::StoreUnreachable { .. }), "{error}");
    }
    let given_up = || async { leases.stats().disconnected > 0 };
    eventually_async(LONG, "the connection to be given up", given_up).await;
    proxy.pass();
    // The second abandon arrives over a new connection, the old claims over the old one, in whatever order.
    eventually_async(LONG, "both ends", || async {
        let gone = server.cli(&["KEYS", "leasehold:gone:{lock:y}:*"]).list().len();
        gone == 1 && server.cli(&["EXISTS", "lock:x", "lock:y"]).int() == 0
    })
    .await;
    leases.close().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "lock:x", "lock:y"]).int(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_subscribes_again_after_its_connection_broke() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let proxy = FaultProxy::start(server.addr());
    let leases = client(proxy.url()).await;
    let servers = Servers::One(server);
    let java = Redisson::new(&servers, "lock:x");
    assert!(java.take(LONG * 3));
    let waiter = patient(&leases, "x");
    let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    eventually(LONG, "a subscription", || java.listeners() == 1);
    let connections = proxy.connections();
    proxy.cut();
    eventually(LONG, "another subscription", || proxy.connections() > connections && java.listeners() == 1);
    assert_eq!(java.release("1"), Some(1));
    let _ = waiter.await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_and_given_back_while_its_keys_are_on_two_nodes() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let leases =
        Leasehold::builder(set.url()).command_timeout(Duration::from_secs(10)).connect().await.unwrap();
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let name = set.name_on(from, "x");
    let (key, side) = (format!("lock:{name}"), format!("leasehold:holder:{{lock:{name}}}"));
    let slot = ClusterSet::slot(&key);
    for lock_moves in [true, false] {
        let guard = lock(&leases, &name).ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
        set.begin_move(slot, from, to);
        set.migrate_keys(from, to, &[if lock_moves { &key } else { &side }]);
        let renewed = leases.stats().renewed;
        eventually_async(LONG, "renewals", || async { leases.stats().renewed >= renewed + 4 }).await;
        assert!(guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Released::Free);
        let waiter = lock(&leases, &name);
        let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        set.migrate_slot(slot, from, to);
        set.end_move(slot, to);
        let guard = waiter.await.unwrap();
        // A waiter follows the slot back, and is woken there.
        let waiter = patient(&leases, &name);
        let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
        set.move_slot(slot, from);
        let _ = guard.release().await.unwrap();
        let _ = waiter.await.unwrap().release().await.unwrap();
    }
}
