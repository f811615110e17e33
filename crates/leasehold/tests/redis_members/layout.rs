//! How readers and permits lie in Redis, and what other programs may do to it.

use std::time::Duration;

use leasehold::{ErrorKind, Released};
use leasehold_testkit::RedisServer;

use super::every_server::{LONG, Servers, open, soon};
use super::{claim, client, permits};
use leasehold::engine::{Answer, Claim, Mode, Queue, Renewed};

fn calls(server: &RedisServer) -> i64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = |command: &str| {
        let (_, rest) = stats.text().split_once(&format!("cmdstat_{command}:calls="))?;
        rest.split(',').next()?.parse::<i64>().ok()
    };
    calls("evalsha").unwrap_or(0)
}

#[tokio::test]
async fn a_lock_that_is_read_exists_for_other_libraries_and_leaves_nothing() {
    for servers in Servers::all() {
        let leases = client(servers.url()).await;
        let server = servers.server("lock:config");
        let readers = [
            leases.read_lock("config").ttl(LONG).acquire().await.unwrap(),
            leases.read_lock("config").ttl(LONG * 2).acquire().await.unwrap(),
            leases.read_lock("config").ttl(LONG).acquire().await.unwrap(),
        ];
        assert!(server.cli(&["SET", "lock:config", "another", "NX", "PX", "1000"]).is_nil());
        let left = server.cli(&["PTTL", "lock:config"]).int();
        assert!(left > 60_000, "as long as the longest lease: {left}");
        for reader in readers {
            assert_eq!(reader.release().await.unwrap(), Released::Free);
        }
        let keys = ["lock:config", "leasehold:ends:{lock:config}", "leasehold:members:{lock:config}"];
        for key in keys {
            assert_eq!(servers.server(key).cli(&["EXISTS", key]).int(), 0, "{key}");
        }
    }
}

#[tokio::test]
async fn the_same_claim_again_counts_once() {
    for servers in Servers::all() {
        let engine = open(servers.url());
        for (random, mode) in [(7, Mode::Shared), (8, permits(3, 5))] {
            let claim = claim(random, "x", mode);
            let granted = async || match engine.leases().claim(&claim, soon()).await.unwrap() {
                Answer::Granted(grant) => grant.fence,
                other => panic!("{other:?}"),
            };
            let fence = granted().await;
            assert_eq!(granted().await, fence);
            let seen = engine.inspector().inspect(&claim.name, soon()).await.unwrap();
            assert_eq!((seen.holders.total, seen.held().map(|held| held.fence)), (1, Some(fence)));
            if mode != Mode::Shared {
                assert_eq!(servers.server("lock:x").cli(&["GET", "lock:x"]).text(), "leasehold:permits 3");
            }
            let hold = claim.hold(fence);
            assert_eq!(engine.leases().release(&hold, soon()).await.unwrap(), Released::Free);
            assert_eq!(engine.leases().release(&hold, soon()).await.unwrap(), Released::Expired);
        }
    }
}

/// Deleting K is how people free a lock by hand: whoever held it has lost it, and nobody brings it back.
#[tokio::test]
async fn a_deleted_lock_is_lost_by_all_its_readers() {
    for servers in Servers::all() {
        let engine = open(servers.url());
        let old = claim(1, "x", Mode::Shared);
        let Answer::Granted(grant) = engine.leases().claim(&old, soon()).await.unwrap() else {
            panic!("free")
        };
        servers.server("lock:x").cli(&["DEL", "lock:x"]);
        let new = claim(2, "x", Mode::Shared);
        assert!(matches!(engine.leases().claim(&new, soon()).await.unwrap(), Answer::Granted(_)));
        let hold = old.hold(grant.fence);
        let renewed =
            engine.leases().renew(std::slice::from_ref(&hold), soon()).await.unwrap().remove(0).unwrap();
        assert_eq!(renewed, Renewed::Gone);
        let seen = engine.inspector().inspect(&new.name, soon()).await.unwrap();
        assert_eq!(seen.holders.total, 1);
        servers.server("lock:x").cli(&["DEL", "lock:x"]);
    }
}

#[tokio::test]
async fn another_kind_of_key_is_an_error_by_name() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    server.cli(&["HSET", "lock:x", "a", "b"]);
    assert_eq!(leases.read_lock("x").acquire().await.unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(leases.semaphore("x", 2).acquire().await.unwrap_err().kind(), ErrorKind::WrongType);
}

#[tokio::test]
async fn permits_of_the_dead_are_counted_back() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let alive = leases.semaphore("x", 5).ttl(LONG).acquire().await.unwrap();
    let ttl = Duration::from_millis(200);
    drop(leases.semaphore("x", 5).permits(3).ttl(ttl).acquire().await.unwrap().detach());
    drop(leases.semaphore("x", 5).permits(1).ttl(ttl).acquire().await.unwrap().detach());
    let rest = leases.semaphore("x", 5).permits(4).wait(LONG).acquire().await.unwrap();
    assert_eq!(server.cli(&["GET", "lock:x"]).text(), "leasehold:permits 5");
    assert_eq!(server.cli(&["HLEN", "leasehold:members:{lock:x}"]).int(), 2);
    assert_eq!(rest.release().await.unwrap(), Released::Free);
    assert_eq!(alive.release().await.unwrap(), Released::Free);
}

/// Bare claims: a client's waiters would poll, and its readers renew, so that nobody could count the calls of the release.
#[tokio::test]
async fn five_hundred_readers_come_in_with_one_call() {
    const READERS: u32 = 500;
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let engine = open(server.url());
    let write = claim(1, "x", Mode::Exclusive);
    let Answer::Granted(grant) = engine.leases().claim(&write, soon()).await.unwrap() else { panic!("free") };
    let readers: Vec<_> = (0..READERS)
        .map(|reader| Claim {
            queue: Some(Queue { wait: LONG, poll_every: LONG }),
            ..claim(2 + u128::from(reader), "x", Mode::Shared)
        })
        .collect();
    for reader in &readers {
        let answer = engine.leases().claim(reader, soon()).await.unwrap();
        assert!(matches!(answer, Answer::Queued { .. }), "{answer:?}");
    }
    server.cli(&["CONFIG", "RESETSTAT"]);
    let outcome = engine.leases().release(&write.hold(grant.fence), soon()).await.unwrap();
    assert!(matches!(outcome, Released::HandedOver { to: READERS, .. }), "{outcome:?}");
    // The flat script, which sees that somebody waits, and the one that hands over.
    assert!(calls(&server) <= 2, "{} calls", calls(&server));
    for reader in &readers {
        let Answer::Granted(grant) = engine.leases().claim(reader, soon()).await.unwrap() else {
            panic!("handed over")
        };
        let released = engine.leases().release(&reader.hold(grant.fence), soon()).await.unwrap();
        assert_eq!(released, Released::Free);
    }
    assert_eq!(server.cli(&["EXISTS", "lock:x", "leasehold:waiters:{lock:x}"]).int(), 0);
}

/// A reader that gave its lock back but keeps it closed cannot be renewed any more.
#[tokio::test]
async fn a_late_renewal_opens_no_permit_that_was_given_back_closed() {
    for servers in Servers::all() {
        let engine = open(servers.url());
        let first = claim(1, "x", permits(2, 3));
        let Answer::Granted(grant) = engine.leases().claim(&first, soon()).await.unwrap() else {
            panic!("free")
        };
        let hold = first.hold(grant.fence);
        let renewed = async |hold| engine.leases().renew(&[hold], soon()).await.unwrap().remove(0).unwrap();
        for _sent_again in 0..2 {
            assert!(matches!(renewed(hold.closed_for(LONG)).await, Renewed::Kept { .. }));
        }
        assert_eq!(renewed(hold.clone()).await, Renewed::Gone);
        let next = claim(2, "x", permits(2, 3));
        assert!(matches!(engine.leases().claim(&next, soon()).await.unwrap(), Answer::Busy { .. }));
        assert!(matches!(renewed(hold.closed_for(Duration::from_millis(20))).await, Renewed::Kept { .. }));
        let opens =
            async || matches!(engine.leases().claim(&next, soon()).await.unwrap(), Answer::Granted(_));
        leasehold_testkit::eventually_async(LONG, "it to open", opens).await;
    }
}
