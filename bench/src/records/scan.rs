//! A claim from all buckets of a pool that finds nothing due, beside a PING.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{Bench, EMPTY, LIMIT, MANY, Store, pool};
use crate::{Failure, bare, report::Figures, spread::p50_us};

/// Samples of one contestant before the next has its turn.
const PER_TURN: usize = 50;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let full = bench.full().await?;
    let cluster = bench.cluster().await?;
    let node = cluster.nodes().first().ok_or("a cluster without nodes")?;
    let (one, many) = (Store::open(&full.server.url())?, Store::open(&cluster.url())?);
    let mut ping = bare::connection(&full.server.url()).await?;
    let mut cluster_ping = bare::connection(&node.url()).await?;
    let mut samples = [const { Vec::new() }; 6];
    // The first turn of each contestant is the warm-up.
    for now in 0..=bench.count(60, 2) {
        for contestant in 0..samples.len() {
            let which = (contestant + now + turn) % samples.len();
            let took = &mut samples[which];
            match which {
                0 => pings(&mut ping, took).await?,
                1 => scans(&one, EMPTY, took).await?,
                2 => scans(&one, MANY, took).await?,
                3 => pings(&mut cluster_ping, took).await?,
                4 => scans(&many, EMPTY, took).await?,
                _ => scans(&many, MANY, took).await?,
            }
            if now == 0 {
                took.clear();
            }
        }
    }
    let names = [
        "ping_us",
        "empty_scan_us",
        "nothing_due_scan_us",
        "cluster_ping_us",
        "cluster_empty_scan_us",
        "cluster_nothing_due_scan_us",
    ];
    Ok(names.into_iter().zip(samples.iter().map(|samples| p50_us(samples))).collect())
}

async fn pings(bare: &mut MultiplexedConnection, samples: &mut Vec<Duration>) -> Result<(), Failure> {
    let ping = redis::cmd("PING");
    for _ in 0..PER_TURN {
        let began = Instant::now();
        bare.send_packed_command(&ping).await?;
        samples.push(began.elapsed());
    }
    Ok(())
}

async fn scans(store: &Store, name: &str, samples: &mut Vec<Duration>) -> Result<(), Failure> {
    let (pool, deadlines) = (pool(name)?, store.deadlines()?);
    for _ in 0..PER_TURN {
        let began = Instant::now();
        let claimed = deadlines.claim_due(&pool, 100, LIMIT, store.until()).await?;
        samples.push(began.elapsed());
        if !claimed.due.is_empty() {
            return Err("something was due".into());
        }
    }
    Ok(())
}
