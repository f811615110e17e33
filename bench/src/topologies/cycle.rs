//! Acquire and release on one store and on another, with names that lie in many slots.

use std::time::{Duration, Instant};

use leasehold::{Acks, Leasehold};

use super::Bench;
use crate::{Failure, report::Figures, spread::p50_us};

/// Cycles of one contestant before the other has its turn; each with a name of its own.
const PER_TURN: usize = 64;

pub(super) async fn of_cluster(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let cluster = Leasehold::connect(bench.cluster().await?.url()).await?;
    let one = Leasehold::connect(bench.one.url()).await?;
    let [cluster, one] = in_turns(bench, turn, [(&cluster, Acks::None), (&one, Acks::None)]).await?;
    Ok(vec![("cluster_cycle_us", cluster), ("beside_cluster_cycle_us", one)])
}

pub(super) async fn of_sentinel(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let primary = Leasehold::connect(bench.sentinel().await?.url()).await?;
    let one = Leasehold::connect(bench.one.url()).await?;
    let [primary, one] = in_turns(bench, turn, [(&primary, Acks::None), (&one, Acks::None)]).await?;
    Ok(vec![("sentinel_cycle_us", primary), ("beside_sentinel_cycle_us", one)])
}

pub(super) async fn with_acks(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.sentinel().await?.url()).await?;
    let [acks, none] = in_turns(bench, turn, [(&leases, 1.into()), (&leases, Acks::None)]).await?;
    Ok(vec![("acks_cycle_us", acks), ("no_acks_cycle_us", none)])
}

/// The medians of two contestants: a client, and which replicas must have a grant.
async fn in_turns(
    bench: &Bench,
    turn: usize,
    contestants: [(&Leasehold, Acks); 2],
) -> Result<[f64; 2], Failure> {
    let names: Vec<String> = (0..PER_TURN).map(|number| format!("bench:cycle:{number}")).collect();
    let mut samples = [const { Vec::new() }; 2];
    // The first turn of each warms up.
    for now in 0..=bench.count(50, 2) {
        for contestant in 0..2 {
            let who = (contestant + now + turn) % 2;
            cycles(contestants[who], &names, &mut samples[who]).await?;
            if now == 0 {
                samples[who].clear();
            }
        }
    }
    for (leases, _) in contestants {
        leases.close().await?;
    }
    Ok(samples.map(|samples| p50_us(&samples)))
}

async fn cycles(
    (leases, acks): (&Leasehold, Acks),
    names: &[String],
    samples: &mut Vec<Duration>,
) -> Result<(), Failure> {
    for name in names {
        let began = Instant::now();
        leases.lock(name).acks(acks).acquire().await?.release().await?;
        samples.push(began.elapsed());
    }
    Ok(())
}
