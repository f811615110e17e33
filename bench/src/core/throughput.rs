//! Sixty-four tasks, each with a lock of its own.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::Leasehold;
use rslock::LockManager;
use tokio::task::JoinSet;

use super::Bench;
use crate::{Failure, report::Figures};

const TASKS: usize = 64;
const TTL: Duration = Duration::from_secs(30);

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let manager = LockManager::from_clients(vec![bench.bare_client()?]);
    let names: Vec<Arc<str>> = (0..TASKS).map(|task| format!("bench:throughput:{task}").into()).collect();

    let turns = bench.count(8, 1);
    let turn_length = Duration::from_millis(bench.count(250, 50) as u64);
    let [mut library, mut peer] = [Rate::default(); 2];
    // The first turn of each warms up.
    for now in 0..=turns {
        for contestant in 0..2 {
            if (contestant + now + turn) % 2 == 0 {
                let rate = library_turn(&leases, &names, turn_length).await?;
                library.add(rate, now > 0);
            } else {
                let rate = peer_turn(&manager, &names, turn_length).await?;
                peer.add(rate, now > 0);
            }
        }
    }
    leases.close().await?;
    Ok(vec![("cycles_per_s_64", library.per_second()), ("rslock_cycles_per_s_64", peer.per_second())])
}

#[derive(Clone, Copy, Default)]
struct Rate {
    cycles: u64,
    time: Duration,
}

impl Rate {
    fn add(&mut self, more: Rate, counts: bool) {
        if counts {
            self.cycles += more.cycles;
            self.time += more.time;
        }
    }

    fn per_second(&self) -> f64 {
        self.cycles as f64 / self.time.as_secs_f64()
    }
}

async fn library_turn(leases: &Leasehold, names: &[Arc<str>], length: Duration) -> Result<Rate, Failure> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for name in names {
        let (leases, name) = (leases.clone(), name.clone());
        tasks.spawn(async move {
            let mut cycles = 0;
            while began.elapsed() < length {
                leases.lock(&name).ttl(TTL).acquire().await?.release().await?;
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        });
    }
    finish(tasks, began).await
}

async fn peer_turn(manager: &LockManager, names: &[Arc<str>], length: Duration) -> Result<Rate, Failure> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for name in names {
        let (manager, name) = (manager.clone(), name.clone());
        tasks.spawn(async move {
            let mut cycles = 0;
            while began.elapsed() < length {
                manager.lock(&*name, TTL).await?.release().await;
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        });
    }
    finish(tasks, began).await
}

async fn finish(mut tasks: JoinSet<Result<u64, Failure>>, began: Instant) -> Result<Rate, Failure> {
    let mut cycles = 0;
    while let Some(done) = tasks.join_next().await {
        cycles += done??;
    }
    Ok(Rate { cycles, time: began.elapsed() })
}
