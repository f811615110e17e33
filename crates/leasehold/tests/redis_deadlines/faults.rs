//! What goes wrong between a client, its deadlines and its servers.

use std::{collections::BTreeSet, time::Duration};

use leasehold::{
    engine::{
        Fault,
        deadlines::{Placement, Receipt, Settle},
    },
    error::Refusal,
};
use leasehold_testkit::{ClusterSet, RedisServer, eventually, redis_or_skip, resp::Connection};

use crate::fixture::{Client, LONG, due, ids, later, receipts, soon, with};

fn open(server: &RedisServer) -> Client {
    Client::open(server.url(), "pay", Placement::Spread)
}

/// How often the server read from a socket and wrote to one, this one question included.
fn socket(admin: &mut Connection) -> [i64; 2] {
    let info = admin.command(&["INFO", "stats"]).unwrap();
    ["total_reads_processed:", "total_writes_processed:"].map(|field| {
        let line = info.text().lines().find_map(|line| line.strip_prefix(field));
        line.unwrap().trim().parse().unwrap()
    })
}

#[tokio::test]
async fn to_claim_from_all_buckets_is_one_read_and_one_write_of_the_server() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&(0..100).map(|n| due(format!("tx:{n}"))).collect::<Vec<_>>()).await;
    // The server has the scripts.
    let first = client.claim(1, LONG).await;
    assert!(first.more && client.acknowledge(&receipts(&first)).await.iter().all(|done| *done));
    let mut admin = server.connect().unwrap();
    let (before, looked) = (socket(&mut admin), socket(&mut admin));
    let claimed = client.claim(2, LONG).await;
    assert!(claimed.due.len() > 10);
    assert!(client.acknowledge(&receipts(&claimed)).await.iter().all(|done| *done));
    let after = socket(&mut admin);
    for (n, what) in ["reads", "writes"].iter().enumerate() {
        let took = (after[n] - looked[n]) - (looked[n] - before[n]);
        assert_eq!(took, 2, "{what} of a claim and an acknowledgement");
    }
}

#[tokio::test]
async fn a_pending_deadline_takes_little_memory() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    let used = || server.info("used_memory").unwrap().parse::<i64>().unwrap();
    let before = used();
    for part in 0..5 {
        let some: Vec<_> =
            (0..10_000).map(|n| later(format!("transaction:{:08}", part * 10_000 + n), LONG)).collect();
        client.set(&some).await;
    }
    let each = (used() - before) / 50_000;
    assert!((20..=200).contains(&each), "{each} bytes");
    // Nothing but the sorted sets.
    assert_eq!(server.cli(&["DBSIZE"]).int(), 16);
}

#[tokio::test]
async fn scripts_that_the_server_lost_are_sent_again_unnoticed() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    let all: Vec<_> = (0..2000).map(|n| due(format!("tx:{n}"))).collect();
    for _ in 0..2 {
        server.cli(&["SCRIPT", "FLUSH"]);
        client.set(&all).await;
        server.cli(&["SCRIPT", "FLUSH"]);
        let claimed = client.claim(1000, LONG).await;
        assert_eq!(claimed.due.len(), 2000);
        server.cli(&["SCRIPT", "FLUSH"]);
        assert!(client.acknowledge(&receipts(&claimed)).await.iter().all(|done| *done));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_claim_at_once_never_get_the_same() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&(0..5000).map(|n| due(format!("tx:{n}"))).collect::<Vec<_>>()).await;
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let client = open(&server);
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let claimed = client.claim(7, LONG).await;
                    if claimed.due.is_empty() {
                        return got;
                    }
                    assert!(client.acknowledge(&receipts(&claimed)).await.iter().all(|done| *done));
                    got.extend(claimed.due);
                }
            })
        })
        .collect();
    let (mut all, mut count) = (BTreeSet::new(), 0);
    for worker in workers {
        let got = worker.await.unwrap();
        count += got.len();
        all.append(&mut ids(&got));
    }
    assert_eq!((count, all.len(), client.stats().await.pending), (5000, 5000, 0));
}

#[tokio::test]
async fn a_claim_outlives_a_server_that_is_killed_before_the_acknowledgement() {
    let durable = RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always");
    let Some(server) = durable.start_or_skip() else { return };
    let client = open(&server);
    client.set(&[with(due("a"), b"context"), due("b")]).await;
    let claimed = client.claim(10, LONG).await;
    assert_eq!(claimed.due.len(), 2);
    server.kill();
    assert!(client.deadlines().stats(&client.pool, soon()).await.is_err());
    server.restart_with_data();
    leasehold_testkit::eventually_async(LONG, "the server", || async {
        client.deadlines().stats(&client.pool, soon()).await.is_ok()
    })
    .await;
    assert!(client.claim(10, LONG).await.due.is_empty());
    assert_eq!(client.acknowledge(&receipts(&claimed)).await, [true, true]);
    let stats = client.stats().await;
    assert_eq!((stats.pending, stats.tried), (0, 0));
}

#[tokio::test]
async fn a_replica_refuses_instead_of_answering_from_old_data() {
    let (Some(primary), Some(replica)) = (redis_or_skip(), redis_or_skip()) else { return };
    let client = open(&primary);
    client.set(&[due("a")]).await;
    let claimed = client.claim(10, Duration::ZERO).await;
    // Of this one it is known that nothing is due.
    let idle = Client::open(primary.url(), "idle", Placement::Spread);
    idle.claim(10, LONG).await;
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually(LONG, "the copy", || replica.cli(&["EXISTS", &client.key("tries", "a")]).int() == 1);
    let stale = open(&replica);
    let (deadlines, pool, receipt) = (stale.deadlines(), &stale.pool, receipts(&claimed)[0].clone());
    let old = Receipt { number: 7, ..receipt.clone() };
    let empty = Client::open(replica.url(), "empty", Placement::Spread).pool;
    let errors = [
        deadlines.set(pool, &[due("a")], soon()).await.unwrap_err(),
        deadlines.claim_due(pool, 10, LONG, soon()).await.unwrap_err(),
        deadlines.claim_due(&empty, 10, LONG, soon()).await.unwrap_err(),
        deadlines.claim_due(&idle.pool, 10, LONG, soon()).await.unwrap_err(),
        deadlines.settle(pool, &[(receipt.clone(), Settle::Done)], soon()).await.unwrap_err(),
        deadlines.settle(pool, &[(old, Settle::Done)], soon()).await.unwrap_err(),
        deadlines.settle(pool, &[(receipt.clone(), Settle::Postpone(LONG))], soon()).await.unwrap_err(),
        deadlines.settle(pool, &[(receipt, Settle::GiveBack)], soon()).await.unwrap_err(),
        deadlines.cancel(pool, &["none".into()], soon()).await.unwrap_err(),
        deadlines.layout(pool, soon()).await.unwrap_err(),
    ];
    for (n, error) in errors.iter().enumerate() {
        // The connection leads to the wrong server; the next one may not.
        assert!(error.fault == Fault::Unreachable && error.why.starts_with("READONLY"), "{n}: {error}");
    }
}

#[tokio::test]
async fn what_is_due_can_be_worked_off_when_memory_is_full() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&["a", "b", "c", "d"].map(|id| with(due(id), b"context"))).await;
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]).error(), None);
    let error = client.deadlines().set(&client.pool, &[due("e")], soon()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Refused(Refusal::OutOfMemory), "{error}");
    let idle = Client::open(server.url(), "idle", Placement::Spread);
    for _ in 0..2 {
        assert!(idle.claim(10, LONG).await.due.is_empty());
    }
    let claimed = receipts(&client.claim(10, LONG).await);
    let [a, b, c, d] = &claimed[..] else { panic!("{claimed:?}") };
    let settlements = [
        (a, Settle::Done),
        (b, Settle::Postpone(LONG)),
        (c, Settle::GiveBack),
        (d, Settle::Bury("x".into())),
    ];
    for (receipt, settle) in settlements {
        assert_eq!(client.settle(std::slice::from_ref(receipt), settle).await, [true]);
    }
}

#[tokio::test]
async fn a_receipt_is_above_all_before_it_although_the_clock_went_back() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&[due("a")]).await;
    // As if the last claim had been an hour from now.
    let ahead = client.claim(1, Duration::ZERO).await.due[0].receipt.number + 3_600_000_000;
    server.cli(&["HSET", &client.key("tries", "a"), "", &ahead.to_string()]);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        client.set(&[due("a")]).await;
        numbers.extend(receipts(&client.claim(1, LONG).await).iter().map(|receipt| receipt.number));
    }
    assert_eq!(numbers, [ahead + 1, ahead + 2, ahead + 3]);
}

/// A bucket, as the number of one of its ids, on this node.
fn id_on(set: &ClusterSet, client: &Client, node: &RedisServer) -> String {
    let mut ids = (0..).map(|n| format!("tx:{n}"));
    ids.find(|id| set.primary_of(&client.key("due", id)).port() == node.port()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_moves_is_followed_and_keeps_no_other_waiting() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let client = Client::open(set.url(), "pay", Placement::Spread);
    let [from, to, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let (moving, other) = (id_on(&set, &client, from), id_on(&set, &client, to));
    let slot = ClusterSet::slot(&client.key("due", &moving));
    client.set(&[with(due(&moving), b"context"), due(&other)]).await;
    set.move_slot(slot, to);
    let claimed = client.claim(10, Duration::ZERO).await;
    assert_eq!(claimed.due.len(), 2);
    // Its keys are on two nodes: the others are claimed from at once.
    set.begin_move(slot, to, from);
    set.migrate_keys(to, from, &[&client.key("due", &moving)]);
    let began = std::time::Instant::now();
    let rest = client.claim(10, LONG).await;
    assert_eq!(ids(&rest.due), BTreeSet::from([(*other).into()]));
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    let nothing = client.deadlines().claim_due(&client.pool, 10, LONG, soon()).await.unwrap_err();
    assert_eq!(nothing.fault, Fault::Unreachable, "{nothing}");
    // Others wait until they have arrived.
    let again = {
        let (engine, pool, moving) = (client.engine.clone(), client.pool.clone(), moving.clone());
        tokio::spawn(async move {
            engine.deadlines().unwrap().set(&pool, &[due(moving)], soon()).await.unwrap();
        })
    };
    set.migrate_slot(slot, to, from);
    set.end_move(slot, from);
    again.await.unwrap();
    let late = client.claim(10, LONG).await;
    assert!(matches!(&late.due[..], [one] if *one.receipt.id == *moving && one.context.is_none()));
    assert_eq!(client.acknowledge(&receipts(&late)).await, [true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_shard_fails_its_own_buckets_only() {
    let set = ClusterSet::builder().replicas(0).arg("cluster-require-full-coverage", "no");
    let Some(set) = set.start_or_skip() else { return };
    let client = Client::open(set.url(), "pay", Placement::Spread);
    let [dead, alive, ..] = set.primaries()[..] else { panic!("at least two primaries") };
    let (lost, kept) = (id_on(&set, &client, dead), id_on(&set, &client, alive));
    client.set(&[due(&lost), due(&kept)]).await;
    dead.kill();
    let claimed = client.claim(10, LONG).await;
    assert_eq!(ids(&claimed.due), BTreeSet::from([(*kept).into()]));
    // With nothing to hand out, it says what is wrong.
    let error = client.deadlines().claim_due(&client.pool, 10, LONG, soon()).await.unwrap_err();
    assert!(matches!(error.fault, Fault::Unreachable | Fault::NoAnswer), "{error}");
    assert_eq!(client.acknowledge(&receipts(&claimed)).await, [true]);
}
