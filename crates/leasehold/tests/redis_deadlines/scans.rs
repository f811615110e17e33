//! Claims that find nothing, and what must not be lost by making them cheap.

use std::{collections::BTreeMap, time::Duration};

use leasehold::engine::{
    Fault,
    deadlines::{Deadline, DueTime, Placement, Receipt, Settle},
};
use leasehold_testkit::{ClusterSet, RedisServer, eventually_async, redis_or_skip};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::ground::{Client, LONG, Servers, due, ids, later, receipts, soon};

/// Exists while nothing of the pool is due.
const QUIET: &str = "leasehold:quiet:{pay}";

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
async fn a_scan_of_one_server_looks_into_no_bucket_until_something_may_be_due() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&(0..100).map(|n| later(format!("tx:{n}"), LONG)).collect::<Vec<_>>()).await;
    assert!(client.claim(10, LONG).await.due.is_empty());
    server.cli(&["CONFIG", "RESETSTAT"]);
    for _ in 0..10 {
        assert!(client.claim(10, LONG).await.due.is_empty());
    }
    assert_eq!((calls(&server, "evalsha"), calls(&server, "getex")), (10, 10));
    assert_eq!((calls(&server, "zrange"), calls(&server, "zcount"), calls(&server, "set")), (0, 0, 0));
    // Whoever sets one tells.
    client.set(&[due("tx:now")]).await;
    let claimed = client.claim(10, LONG).await;
    assert_eq!(ids(&claimed.due), ["tx:now".into()].into());
}

#[tokio::test]
async fn a_pool_is_quiet_until_the_first_of_all_that_is_set() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    let ends = || server.cli(&["PEXPIRETIME", QUIET]).int() as u64;
    let now: u64 = server.cli(&["TIME"]).list()[0].text().parse().unwrap();
    // So far ahead that it is not reached while the test lasts: as if a moment were long.
    let far = (now + 100_000) * 1000;
    let at = |id: &str, ms| Deadline { due: DueTime::AtMs(ms), ..due(id) };
    client.set(&[at("a", far)]).await;
    assert_eq!(server.cli(&["EXISTS", QUIET]).int(), 0, "only a look at all buckets writes it");
    client.claim(10, LONG).await;
    let left = server.cli(&["PTTL", QUIET]).int();
    assert!((1..=10_000).contains(&left), "{left}: what nobody told of is late by that at most");
    server.cli(&["PEXPIREAT", QUIET, &(far - 1).to_string()]);
    client.set(&[at("b", far + 5)]).await;
    assert_eq!(ends(), far - 1);
    client.set(&[at("c", far + 3), at("d", far - 7), at("e", far - 2)]).await;
    assert_eq!(ends(), far - 8);
    // It ends then also if the earliest has gone: a look finds out.
    assert_eq!(client.deadlines().cancel(&client.pool, &["d".into()], soon()).await.unwrap(), [true]);
    assert_eq!(ends(), far - 8);
    client.set(&[at("f", 0)]).await;
    assert_eq!(server.cli(&["EXISTS", QUIET]).int(), 0);
}

#[tokio::test]
async fn a_quiet_ends_when_the_first_is_due() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&[later("a", Duration::from_secs(3)), later("b", LONG)]).await;
    assert!(client.claim(10, LONG).await.due.is_empty());
    let score: u64 = server.cli(&["ZSCORE", &client.key("due", "a"), "a"]).text().parse().unwrap();
    assert_eq!(server.cli(&["PEXPIRETIME", QUIET]).int() as u64, score - 1);
    eventually_async(LONG, "the end", || async { server.cli(&["EXISTS", QUIET]).int() == 0 }).await;
    let claimed = client.claim(10, LONG).await;
    assert_eq!(ids(&claimed.due), ["a".into()].into());
}

#[tokio::test]
async fn what_came_past_the_scripts_is_found_once_nothing_is_known_any_more() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    assert!(client.claim(10, LONG).await.due.is_empty());
    server.cli(&["PERSIST", QUIET]);
    server.cli(&["ZADD", &client.key("due", "a"), "5", "a"]);
    assert!(client.claim(10, LONG).await.due.is_empty());
    assert_eq!(client.stats().await.due, 1, "who looks sees it at once");
    server.cli(&["DEL", QUIET]);
    assert_eq!(client.claim(10, LONG).await.due.len(), 1);
}

#[tokio::test]
async fn a_side_key_of_another_type_is_told() {
    let Some(server) = redis_or_skip() else { return };
    let client = open(&server);
    client.set(&[due("a")]).await;
    server.cli(&["LPUSH", QUIET, "x"]);
    let error = client.deadlines().claim_due(&client.pool, 10, LONG, soon()).await.unwrap_err();
    assert!(error.fault == Fault::WrongType && error.why.contains("pay"), "{error}");
    // Whoever sets something that is due ends it, whatever it is.
    client.set(&[due("b")]).await;
    assert_eq!(client.claim(10, LONG).await.due.len(), 2);
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
    assert_eq!(client.claim(10, LONG).await.due.len(), 2);
}
