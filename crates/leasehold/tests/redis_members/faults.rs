//! Readers and permits while something goes wrong.

use std::time::Duration;

use leasehold::{Error, Leasehold, Refusal, Released};
use leasehold_testkit::{ClusterSet, eventually_async};

use super::every_server::LONG;
use super::{client, waiting};

#[tokio::test]
async fn readers_and_permits_are_renewed_and_given_back_while_their_keys_are_on_two_nodes() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let name = set.name_on(from, "x");
    let slot = ClusterSet::slot(&format!("lock:{name}"));
    let leases =
        Leasehold::builder(set.url()).command_timeout(Duration::from_secs(10)).connect().await.unwrap();
    let side = |kind: &str| format!("leasehold:{kind}:{{lock:{name}}}");
    let moved_first = [vec![format!("lock:{name}")], vec![side("ends")], vec![side("members"), side("ends")]];
    for (round, moved) in moved_first.into_iter().enumerate() {
        let lock = if round == 1 { leases.semaphore(&name, 5).permits(2) } else { leases.read_lock(&name) };
        let guard = lock.ttl(Duration::from_secs(3)).keep_alive().acquire().await.unwrap();
        set.begin_move(slot, from, to);
        let moved: Vec<_> = moved.iter().map(String::as_str).collect();
        set.migrate_keys(from, to, &moved);
        let renewed = leases.stats().renewed;
        eventually_async(LONG, "renewals", || async { leases.stats().renewed >= renewed + 4 }).await;
        assert!(guard.is_held());
        // The last is given back after the move: all that is known of it has outlived its first lease, too.
        let mut guard = Some(guard);
        if round < 2 {
            assert_eq!(guard.take().unwrap().release().await.unwrap(), Released::Free);
        }
        set.migrate_slot(slot, from, to);
        set.end_move(slot, to);
        if let Some(guard) = guard {
            guard.extend().await.unwrap();
            assert_eq!(
                leases.inspect(&name).await.unwrap().held().map(|held| held.fence),
                Some(guard.fence())
            );
            assert_eq!(guard.release().await.unwrap(), Released::Free);
        }
        // Nothing of it is in the way of anybody.
        let lock = if round == 1 { leases.semaphore(&name, 5).permits(5) } else { leases.write_lock(&name) };
        assert_eq!(lock.wait(LONG).acquire().await.unwrap().release().await.unwrap(), Released::Free);
        set.move_slot(slot, from);
    }
}

#[tokio::test]
async fn a_full_server_takes_releases_and_hands_over() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let writer = leases.write_lock("x").ttl(LONG).acquire().await.unwrap();
    let readers: Vec<_> =
        (0..5).map(|_| tokio::spawn(leases.read_lock("x").ttl(LONG).wait(LONG).into_future())).collect();
    waiting(&leases, "x", 5).await;
    let permit = leases.semaphore("y", 2).permits(2).ttl(LONG).acquire().await.unwrap();
    let next = tokio::spawn(leases.semaphore("y", 2).ttl(LONG).wait(LONG).into_future());
    waiting(&leases, "y", 1).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(leases.read_lock("z").acquire().await.is_err(), "the server is not full");
    assert!(matches!(writer.release().await.unwrap(), Released::HandedOver { to: 5, .. }));
    assert!(matches!(permit.release().await.unwrap(), Released::HandedOver { to: 1, .. }));
    for reader in readers {
        assert_eq!(reader.await.unwrap().unwrap().release().await.unwrap(), Released::Free);
    }
    assert_eq!(next.await.unwrap().unwrap().release().await.unwrap(), Released::Free);
}

#[tokio::test]
async fn a_full_server_refuses_claims_of_every_kind() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let once = leases.semaphore("known", 3).acquire().await.unwrap();
    assert_eq!(once.release().await.unwrap(), Released::Free);
    let used = leases.semaphore("used", 3).ttl(LONG).acquire().await.unwrap();
    let read = leases.read_lock("read").ttl(LONG).acquire().await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let all = || {
        let readers = [leases.read_lock("x"), leases.read_lock("read"), leases.write_lock("x")];
        let semaphores = ["new", "known", "used"].map(|name| leases.semaphore(name, 3));
        readers.into_iter().chain(semaphores)
    };
    let is_full = |error: Error| {
        let is_full = matches!(error, Error::StoreRefused { refusal: Refusal::OutOfMemory, .. });
        assert!(is_full, "{error}");
    };
    for (number, lock) in all().enumerate() {
        is_full(lock.clone().acquire().await.expect_err(&number.to_string()));
        let beside = leases.lock(format!("beside {number}"));
        is_full(leases.lock_all([beside, lock]).acquire().await.expect_err(&number.to_string()));
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    for lock in all() {
        assert!(lock.acquire().await.unwrap().release().await.unwrap().was_held());
    }
    assert!(used.release().await.unwrap().was_held() && read.release().await.unwrap().was_held());
}

#[tokio::test]
async fn a_set_with_a_key_of_another_type_says_which() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    server.cli(&["LPUSH", "lock:b", "a list"]);
    let set = leases.lock_all([leases.lock("a"), leases.lock("b"), leases.lock("c")]);
    let error = set.acquire().await.unwrap_err();
    assert!(matches!(&error, Error::WrongType { name, .. } if name.as_str() == "b"), "{error}");
    assert!(leases.lock_all([leases.lock("a"), leases.lock("c")]).acquire().await.unwrap().is_held());
}

#[tokio::test]
async fn a_set_leaves_a_server_that_became_a_replica() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = Leasehold::builder(server.url()).command_timeout(Duration::from_secs(2));
    let leases = leases.connect().await.unwrap();
    let set = || leases.lock_all([leases.lock("a"), leases.read_lock("b")]);
    assert!(set().acquire().await.unwrap().release().await.was_held());
    // Its connections stay open.
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let error = set().acquire().await.unwrap_err();
    assert!(matches!(error, Error::StoreUnreachable { .. }), "{error}");
    assert!(leases.stats().disconnected > 0, "it was believed");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    eventually_async(LONG, "the set", || async { set().acquire().await.is_ok() }).await;
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again_unnoticed() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    for _ in 0..3 {
        server.cli(&["SCRIPT", "FLUSH"]);
        let reader = leases.read_lock("x").keep_alive().acquire().await.unwrap();
        let permit = leases.semaphore("y", 2).acquire().await.unwrap();
        server.cli(&["SCRIPT", "FLUSH"]);
        reader.extend().await.unwrap();
        let writer = leases.write_lock("x").wait(LONG);
        assert_eq!(reader.release().await.unwrap(), Released::Free);
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(permit.release().await.unwrap(), Released::Free);
        let writer = writer.acquire().await.unwrap();
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(writer.downgrade().await.unwrap().release().await.unwrap(), Released::Free);
    }
}
