//! An uncontended lock on three nodes: the library, the bare votes, and one node for comparison.

use std::time::{Duration, Instant};

use leasehold::Leasehold;

use super::Bench;
use crate::{Failure, report::Figures, spread::p50_us, votes::RawVotes};

/// Samples of one contestant before the next has its turn.
const PER_TURN: usize = 50;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let set = bench.quorum().await?;
    let engine = Leasehold::builder(set.url()).into_engine()?;
    let leases = Leasehold::builder(set.url()).engine(engine.clone()).connect().await?;
    let one = Leasehold::connect(bench.one.url()).await?;
    let mut raw = RawVotes::connect(set.nodes().iter().map(|node| node.url()), "bench:votes:raw").await?;

    let [mut library, mut votes, mut single] = [const { Vec::new() }; 3];
    // The first turn of each contestant is the warm-up.
    for now in 0..=bench.count(60, 3) {
        for contestant in 0..3 {
            let samples = match (contestant + now + turn) % 3 {
                0 => acquires(&leases, PER_TURN, &mut library).await?,
                1 => raw_acquires(&mut raw, &mut votes).await?,
                _ => acquires(&one, PER_TURN, &mut single).await?,
            };
            if now == 0 {
                samples.clear();
            }
        }
    }
    let rounds = engine.members().ok_or("no quorum")?.rounds();
    leases.close().await?;
    one.close().await?;
    Ok(vec![
        ("quorum_acquire_us", p50_us(&library)),
        ("raw_votes_us", p50_us(&votes)),
        ("one_node_acquire_us", p50_us(&single)),
        ("quorum_one_round_trip", 1.0 - rounds.confirmed as f64 / rounds.granted as f64),
    ])
}

type Samples = Vec<Duration>;

/// Times `try_acquire`; the release in between is not counted.
pub(super) async fn acquires<'a>(
    leases: &Leasehold,
    times: usize,
    samples: &'a mut Samples,
) -> Result<&'a mut Samples, Failure> {
    for _ in 0..times {
        let began = Instant::now();
        let guard =
            leases.lock("bench:votes").try_acquire().await?.held().ok_or("another holder has the lock")?;
        samples.push(began.elapsed());
        let _ = guard.release().await?;
    }
    Ok(samples)
}

async fn raw_acquires<'a>(raw: &mut RawVotes, samples: &'a mut Samples) -> Result<&'a mut Samples, Failure> {
    for _ in 0..PER_TURN {
        let began = Instant::now();
        let guard = raw.acquire().await?;
        samples.push(began.elapsed());
        raw.release(guard).await?;
    }
    Ok(samples)
}
