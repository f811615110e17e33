//! Acquire and release on one store and on another, with names that lie in many slots.

use std::time::{Duration, Instant};

use leasehold::{Acks, Leasehold};
use leasehold_testkit::RedisServer;

use super::Bench;
use crate::{Failure, report::Figures, spread::p50_us};

/// Cycles of one contestant before the next has its turn; each with a name of its own.
const PER_TURN: usize = 64;

pub(super) async fn of_cluster(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let cluster = Contestant::connect([bench.cluster().await?.url()], Acks::None).await?;
    let one = Contestant::connect([bench.one.url()], Acks::None).await?;
    let apart =
        Contestant::connect(bench.apart().await?.each_ref().map(RedisServer::url), Acks::None).await?;
    let [cluster, one, apart] = in_turns(bench, turn, [cluster, one, apart]).await?;
    Ok(vec![
        ("cluster_cycle_us", cluster),
        ("beside_cluster_cycle_us", one),
        ("three_servers_cycle_us", apart),
    ])
}

pub(super) async fn of_sentinel(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let primary = Contestant::connect([bench.sentinel().await?.url()], Acks::None).await?;
    let one = Contestant::connect([bench.one.url()], Acks::None).await?;
    let [primary, one] = in_turns(bench, turn, [primary, one]).await?;
    Ok(vec![("sentinel_cycle_us", primary), ("beside_sentinel_cycle_us", one)])
}

pub(super) async fn with_acks(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let url = bench.sentinel().await?.url();
    let acks = Contestant::connect([&url], 1.into()).await?;
    let none = Contestant::connect([&url], Acks::None).await?;
    let [acks, none] = in_turns(bench, turn, [acks, none]).await?;
    Ok(vec![("acks_cycle_us", acks), ("no_acks_cycle_us", none)])
}

/// The contestants.
struct Contestant {
    /// One for each store; names are dealt out to them in turn.
    clients: Vec<Leasehold>,
    acks: Acks,
    samples: Vec<Duration>,
}

impl Contestant {
    async fn connect(urls: impl IntoIterator<Item: AsRef<str>>, acks: Acks) -> Result<Self, Failure> {
        let mut clients = Vec::new();
        for url in urls {
            clients.push(Leasehold::connect(url).await?);
        }
        Ok(Self { clients, acks, samples: Vec::new() })
    }

    async fn cycles(&mut self, names: &[String]) -> Result<(), Failure> {
        for (leases, name) in self.clients.iter().cycle().zip(names) {
            let began = Instant::now();
            let _ = leases.lock(name).acks(self.acks).acquire().await?.release().await?;
            self.samples.push(began.elapsed());
        }
        Ok(())
    }
}

/// The median of each contestant.
async fn in_turns<const N: usize>(
    bench: &Bench,
    turn: usize,
    mut contestants: [Contestant; N],
) -> Result<[f64; N], Failure> {
    let names: Vec<String> = (0..PER_TURN).map(|number| format!("bench:cycle:{number}")).collect();
    // The first turn of each contestant is the warm-up.
    for now in 0..=bench.count(50, 2) {
        for place in 0..N {
            let contestant = &mut contestants[(place + now + turn) % N];
            contestant.cycles(&names).await?;
            if now == 0 {
                contestant.samples.clear();
            }
        }
    }
    for client in contestants.iter().flat_map(|contestant| &contestant.clients) {
        client.close().await?;
    }
    Ok(contestants.map(|contestant| p50_us(&contestant.samples)))
}
