//! Claims that find nothing, and what must not be overlooked.

use std::{collections::BTreeMap, time::Duration};

use leasehold::engine::{
    Fault,
    deadlines::{Placement, Receipt, Settle},
};
use leasehold_testkit::{ClusterSet, RedisServer, redis_or_skip};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::fixture::{Client, LONG, Servers, due, ids, later, receipts, soon};

fn open(server: &RedisServer) -> Client {
    Client::open(server.url(), "pay", Placement::Spread)
}

/// How often the server ran a command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let start = format!("cmdstat_{command}:calls=");
    let count =
        stats.text().lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

/// Random work on a pool. Whatever a full look says is due must be claimed right after it.
async fn nothing_due_is_overlooked(client: &Client, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let (deadlines, pool) = (client.deadlines(), &client.pool);
    let mut held: Vec<Receipt> = Vec::new();
    let wait = |random: &mut StdRng| *[0, 0, 3, 20, 3_600_000].choose(random).unwrap();
    for step in 0..200 {
        let id = format!("tx:{}", random.random_range(0..24));
        let receipt = held.choose(&mut random).cloned().into_iter().collect::<Vec<_>>();
        match random.random_range(0..9) {
            0 => client.set(&[due(id)]).await,
            1 | 2 => client.set(&[later(id, Duration::from_millis(wait(&mut random)))]).await,
            3 | 4 => {
                let after = Duration::from_millis(wait(&mut random));
                client.settle(&receipt, Settle::Postpone(after)).await;
            }
            5 => drop(client.settle(&receipt, Settle::Done).await),
            6 => drop(client.settle(&receipt, Settle::Bury("why".into())).await),
            7 => drop(client.settle(&receipt, Settle::GiveBack).await),
            _ => drop(deadlines.cancel(pool, &[id.into()], soon()).await.unwrap()),
        }
        if random.random_bool(0.3) {
            continue;
        }
        let limit = *[1, 100].choose(&mut random).unwrap();
        let visibility = Duration::from_millis(wait(&mut random));
        let mut expected = BTreeMap::<u16, usize>::new();
        for one in deadlines.peek(pool, 1000, soon()).await.unwrap() {
            *expected.entry(pool.bucket_of(&one.id)).or_default() += 1;
        }
        let claimed = client.claim(limit, visibility).await;
        let mut got = BTreeMap::<u16, usize>::new();
        claimed.due.iter().for_each(|one| *got.entry(pool.bucket_of(&one.receipt.id)).or_default() += 1);
        for (bucket, count) in expected {
            let least = count.min(limit as usize);
            let found = got.get(&bucket).copied().unwrap_or(0);
            assert!(
                found >= least,
                "seed {seed}, step {step}: {found} of {count} in bucket {bucket}, limit {limit}"
            );
            assert!(claimed.more || count <= limit as usize, "seed {seed}, step {step}: more is due");
        }
        held.extend(receipts(&claimed));
        if held.len() > 20 {
            held.drain(..10);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_whatever_a_full_look_sees() {
    for servers in Servers::all() {
        for placement in [Placement::Spread, Placement::Together] {
            for seed in 0..4 {
                let mut client = servers.client(&format!("pay:{seed}:{placement:?}"), placement);
                client.pool.layout.buckets = [1, 2, 3, 16][seed as usize];
                nothing_due_is_overlooked(&client, seed).await;
            }
        }
    }
}

#[tokio::test]
async fn a_scan_of_one_server_is_one_script_and_writes_nothing() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&(0..100).map(|n| later(format!("tx:{n}"), LONG)).collect::<Vec<_>>()).await;
    assert!(client.claim(10, LONG).await.due.is_empty());
    let changes = || {
        let info = server.cli(&["INFO", "persistence"]);
        info.text().lines().find(|line| line.starts_with("rdb_changes_since")).map(str::to_owned)
    };
    let before = changes();
    server.cli(&["CONFIG", "RESETSTAT"]);
    for _ in 0..10 {
        assert!(client.claim(10, LONG).await.due.is_empty());
    }
    assert_eq!((calls(&server, "evalsha"), calls(&server, "zcount")), (10, 160));
    assert_eq!((changes(), calls(&server, "zrangebyscore")), (before, 0));
}

#[tokio::test]
async fn what_another_program_set_is_claimed_at_once() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    assert!(client.claim(10, LONG).await.due.is_empty());
    server.cli(&["ZADD", &client.key("due", "a"), "5", "a"]);
    assert_eq!(ids(&client.claim(10, LONG).await.due), ["a".into()].into());
}

#[tokio::test]
async fn a_bucket_of_another_type_is_told() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&[due("a")]).await;
    let other =
        (0..).map(|n| client.key("due", &format!("tx:{n}"))).find(|key| *key != client.key("due", "a"));
    server.cli(&["LPUSH", &other.unwrap(), "x"]);
    let error = client.deadlines().claim_due(&client.pool, 10, LONG, soon()).await.unwrap_err();
    assert!(error.fault == Fault::WrongType && error.why.contains("pay"), "{error}");
    let score = server.cli(&["ZSCORE", &client.key("due", "a"), "a"]);
    assert_eq!(score.text(), "1000", "an error on the way leaves everything as it was");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_asked_by_plain_reads_where_something_is_due() {
    let Some(set) = ClusterSet::builder().replicas(0).start_or_skip() else { return };
    let client = Client::open(set.url(), "pay", Placement::Spread);
    client.set(&(0..100).map(|n| later(format!("tx:{n}"), LONG)).collect::<Vec<_>>()).await;
    assert!(client.claim(10, LONG).await.due.is_empty());
    let count = |command: &str| set.primaries().iter().map(|node| calls(node, command)).sum::<u64>();
    set.primaries().iter().for_each(|node| drop(node.cli(&["CONFIG", "RESETSTAT"])));
    for _ in 0..10 {
        assert!(client.claim(10, LONG).await.due.is_empty());
    }
    assert_eq!((count("evalsha"), count("zcount")), (0, 160));
    assert_eq!(count("time"), 10 * set.primaries().len() as u64);
    // Only where something is due a script runs.
    client.set(&[due("tx:now")]).await;
    let before = count("evalsha");
    assert_eq!(ids(&client.claim(10, LONG).await.due), ["tx:now".into()].into());
    assert_eq!(count("evalsha") - before, 1);
    assert!(client.claim(10, LONG).await.due.is_empty());
    assert_eq!(count("evalsha") - before, 1);
    // A node that lost the scripts gets them.
    set.primaries().iter().for_each(|node| drop(node.cli(&["SCRIPT", "FLUSH"])));
    client.set(&[due("tx:now"), due("tx:then")]).await;
    set.primaries().iter().for_each(|node| drop(node.cli(&["SCRIPT", "FLUSH"])));
    assert_eq!(client.claim(10, LONG).await.due.len(), 2);
}
