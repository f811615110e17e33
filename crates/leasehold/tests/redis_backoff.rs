//! Servers that fail over and over: who waits must not make it worse.
#![cfg(feature = "redis")]

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{Error, Leasehold};
use leasehold_testkit::{RedisServer, eventually_async};

const LONG: Duration = Duration::from_secs(60);
/// How long a storm is watched.
const WATCHED: Duration = Duration::from_secs(2);

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(Duration::from_secs(2)).connect().await.unwrap()
}

/// A peer that takes a client in and closes the door behind it; counts the dials.
fn accepts_and_closes() -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let dials = Arc::<AtomicU64>::default();
    let counted = dials.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 4096]);
            // To the greeting, and to a client's name that may come with it.
            let _ = stream.write_all(b"%1\r\n$6\r\nserver\r\n$5\r\nredis\r\n+OK\r\n");
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    (url, dials)
}

#[tokio::test]
async fn a_peer_that_accepts_and_closes_is_dialled_less_and_less_often() {
    let (url, dials) = accepts_and_closes();
    let leases = Leasehold::builder(url).command_timeout(WATCHED).connect_lazy().unwrap();
    let waiters = (0..5).map(|_| leases.lock("x").wait(LONG).acquire());
    for outcome in futures_util::future::join_all(waiters).await {
        assert!(matches!(outcome, Err(Error::StoreUnreachable { .. })), "{outcome:?}");
    }
    let dials = dials.load(Ordering::Relaxed);
    assert!((2..=30).contains(&dials), "{dials} dials");
}

fn calls(server: &RedisServer) -> i64 {
    let info = server.cli(&["INFO", "commandstats"]).text().to_owned();
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    line.and_then(|line| line.split(['=', ',']).nth(1)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn waiters_ask_a_server_that_refuses_writes_less_and_less_often() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let leases = client(server.url()).await;
    let guard = leases.lock("x").ttl(LONG).acquire().await.unwrap();
    // In whatever order they queue, each gives the lock to the next one.
    let wait = || {
        let lock = leases.lock("x").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
    };
    let waiters: Vec<_> = (0..20).map(|_| wait()).collect();
    eventually_async(LONG, "waiters", || async { leases.inspect("x").await.unwrap().waiting == 20 }).await;
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    // All of them meet a refusal, and ask again right after the break.
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let before = calls(&server);
    tokio::time::sleep(WATCHED).await;
    let asked = calls(&server) - before;
    assert!(asked <= 20 * 8, "{asked} calls");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let _ = guard.release().await.unwrap();
    for waiter in waiters {
        let _ = waiter.await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_has_too_many_clients_for_a_while_does_not_end_a_wait() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let (a, b) = (client(server.url()).await, client(server.url()).await);
    let guard = a.lock("x").ttl(LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(b.lock("x").wait(LONG).into_future());
    eventually_async(LONG, "the waiter", || async { a.inspect("x").await.unwrap().waiting == 1 }).await;
    let mut admin = server.connect().unwrap();
    let mut tell = |words: &[&str]| admin.command(words).unwrap();
    tell(&["CONFIG", "SET", "maxclients", "1"]);
    tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let mut refused = || {
        let info = tell(&["INFO", "stats"]);
        let count = info.text().lines().find_map(|line| line.strip_prefix("rejected_connections:"));
        count.is_some_and(|count| count.trim() != "0")
    };
    let began = std::time::Instant::now();
    while !refused() {
        assert!(began.elapsed() < LONG, "no dial was refused");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tell(&["CONFIG", "SET", "maxclients", "100"]);
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}
