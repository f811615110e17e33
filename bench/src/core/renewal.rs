//! The cost of keeping many locks alive.

use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold};
use tokio::task::JoinSet;

use super::Bench;
use crate::{Failure, cpu, report::Figures};

const TASKS: usize = 64;
/// A kept-alive lease is renewed every third of its ttl.
const RENEWALS_PER_TTL: u32 = 3;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let locks = bench.count(10_000, 500);
    let ttl = if bench.quick { Duration::from_millis(1_500) } else { Duration::from_secs(30) };
    let interval = ttl / RENEWALS_PER_TTL;

    let leases = Leasehold::connect(bench.server.url()).await?;
    let guards = acquire(&leases, locks, ttl).await?;
    // Warm: each was renewed once. The window then begins and ends between two bursts of renewals.
    leasehold_testkit::eventually_async(ttl, "every lock is renewed", async || {
        leases.stats().renewed >= locks as u64
    })
    .await;
    tokio::time::sleep(interval / 2).await;

    let pids = [std::process::id(), bench.server.pid()];
    let renewed_before = leases.stats().renewed;
    let (began, before) = (Instant::now(), [cpu::time_of(pids[0])?, cpu::time_of(pids[1])?]);
    tokio::time::sleep(interval).await;
    let (time, after) = (began.elapsed(), [cpu::time_of(pids[0])?, cpu::time_of(pids[1])?]);
    let stats = leases.stats();

    if stats.lost > 0 || guards.iter().any(|guard| !guard.is_held()) {
        return Err("a lock was lost while it was kept alive".into());
    }
    release(guards).await?;
    leases.close().await?;
    let share = |side: usize| (after[side] - before[side]).as_secs_f64() / time.as_secs_f64();
    Ok(vec![
        ("renewal_client_core_share", share(0)),
        ("renewal_server_core_share", share(1)),
        ("renewals_per_s", (stats.renewed - renewed_before) as f64 / time.as_secs_f64()),
    ])
}

async fn acquire(leases: &Leasehold, locks: usize, ttl: Duration) -> Result<Vec<Guard>, Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let leases = leases.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in (task..locks).step_by(TASKS) {
                let lock = leases.lock(format!("bench:renewal:{number}"));
                guards.push(lock.ttl(ttl).keep_alive().acquire().await?);
            }
            Ok::<_, Failure>(guards)
        });
    }
    let mut guards = Vec::with_capacity(locks);
    while let Some(done) = tasks.join_next().await {
        guards.extend(done??);
    }
    Ok(guards)
}

async fn release(guards: Vec<Guard>) -> Result<(), Failure> {
    let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
    let mut guards = guards.into_iter().peekable();
    while guards.peek().is_some() {
        let some: Vec<_> = guards.by_ref().take(TASKS).collect();
        tasks.spawn(async move {
            for guard in some {
                let _ = guard.release().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
