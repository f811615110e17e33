//! Sixty-four tasks, each with a lock of its own.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Bench;
use crate::{
    Failure, cpu,
    library::{Library, Lock, Ours, Rslock},
    report::Figures,
};

const TASKS: usize = 64;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let url = bench.server.url();
    let (leases, rslock) = (Ours::connect(&[&url]).await?, Rslock::open(&[&url])?);

    let turns = bench.count(8, 1);
    let turn_length = Duration::from_millis(bench.count(250, 50) as u64);
    let [mut library, mut peer] = [Work::default(); 2];
    // The first turn of each contestant is the warm-up.
    for now in 0..=turns {
        for contestant in 0..2 {
            let before = computed(bench)?;
            let (total, mut done) = if (contestant + now + turn).is_multiple_of(2) {
                (&mut library, cycles(&leases, turn_length).await?)
            } else {
                (&mut peer, cycles(&rslock, turn_length).await?)
            };
            let after = computed(bench)?;
            done.computed = [after[0] - before[0], after[1] - before[1]];
            if now > 0 {
                total.add(&done);
            }
        }
    }
    Ok(vec![
        ("cycles_per_s_64", library.per_second()),
        ("cycle_64_client_cpu_us", library.cpu_us(0)),
        ("cycle_64_server_cpu_us", library.cpu_us(1)),
        ("rslock_cycles_per_s_64", peer.per_second()),
        ("rslock_cycle_64_client_cpu_us", peer.cpu_us(0)),
        ("rslock_cycle_64_server_cpu_us", peer.cpu_us(1)),
    ])
}

/// Processor time of this process and of the server, which is more reliable than wall time on a busy machine.
fn computed(bench: &Bench) -> Result<[Duration; 2], Failure> {
    Ok([cpu::time_of(std::process::id())?, cpu::time_of(bench.server.pid())?])
}

#[derive(Clone, Copy, Default)]
struct Work {
    cycles: u64,
    time: Duration,
    computed: [Duration; 2],
}

impl Work {
    fn add(&mut self, more: &Work) {
        self.cycles += more.cycles;
        self.time += more.time;
        self.computed[0] += more.computed[0];
        self.computed[1] += more.computed[1];
    }

    fn per_second(&self) -> f64 {
        self.cycles as f64 / self.time.as_secs_f64()
    }

    fn cpu_us(&self, side: usize) -> f64 {
        self.computed[side].as_secs_f64() * 1e6 / self.cycles as f64
    }
}

async fn cycles(library: &impl Library, length: Duration) -> Result<Work, Failure> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let mut lock = library.lock(&format!("bench:throughput:{task}"));
        tasks.spawn(async move {
            let mut cycles = 0;
            while began.elapsed() < length {
                lock.cycle().await?;
                cycles += 1;
            }
            Ok::<u64, Failure>(cycles)
        });
    }
    let mut cycles = 0;
    while let Some(done) = tasks.join_next().await {
        cycles += done??;
    }
    Ok(Work { cycles, time: began.elapsed(), ..Work::default() })
}
