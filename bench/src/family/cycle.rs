//! Acquire and release in each mode.

use std::time::{Duration, Instant};

use leasehold::{Leasehold, Lock};
use tokio::task::JoinSet;

use super::Bench;
use crate::{Failure, report::Figures, spread::p50_us};

/// Cycles of one mode before the next has its turn.
const PER_TURN: usize = 50;
const TASKS: usize = 64;

#[derive(Clone, Copy)]
enum Mode {
    Exclusive,
    Shared,
    Permit,
}

const MODES: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::Permit];

/// The lock of one task: nobody else wants it.
fn lock(leases: &Leasehold, mode: Mode, task: usize) -> Lock {
    match mode {
        Mode::Exclusive => leases.lock(format!("bench:exclusive:{task}")),
        Mode::Shared => leases.read_lock(format!("bench:shared:{task}")),
        Mode::Permit => leases.semaphore(format!("bench:permit:{task}"), 5),
    }
}

async fn cycle(leases: &Leasehold, mode: Mode, task: usize) -> Result<(), Failure> {
    let released = lock(leases, mode, task).acquire().await?.release().await?;
    if released.was_held() { Ok(()) } else { Err("a lease was lost".into()) }
}

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let mut samples = [const { Vec::<Duration>::new() }; 3];
    let mut rates = [0.0; 3];
    // The first turn of each mode is the warm-up.
    for now in 0..=bench.count(60, 2) {
        for place in 0..MODES.len() {
            let which = (place + now + turn) % MODES.len();
            for _ in 0..PER_TURN {
                let began = Instant::now();
                cycle(&leases, MODES[which], 0).await?;
                samples[which].push(began.elapsed());
            }
            if now == 0 {
                samples[which].clear();
            }
        }
    }
    let each = bench.count(400, 5);
    for place in 0..MODES.len() {
        let which = (place + turn) % MODES.len();
        rates[which] = rate(&leases, MODES[which], each).await?;
    }
    leases.close().await?;
    let [exclusive, shared, permit] = samples.map(|samples| p50_us(&samples));
    Ok(vec![
        ("exclusive_cycle_us", exclusive),
        ("shared_cycle_us", shared),
        ("permit_cycle_us", permit),
        ("exclusive_cycles_per_s_64", rates[0]),
        ("shared_cycles_per_s_64", rates[1]),
        ("permit_cycles_per_s_64", rates[2]),
    ])
}

/// Cycles per second of many tasks with a lock each.
async fn rate(leases: &Leasehold, mode: Mode, each: usize) -> Result<f64, Failure> {
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for task in 0..TASKS {
        let leases = leases.clone();
        tasks.spawn(async move {
            for _ in 0..each {
                cycle(&leases, mode, task).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok((TASKS * each) as f64 / began.elapsed().as_secs_f64())
}
