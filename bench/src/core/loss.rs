//! How soon a holder learns that its lock was deleted, and what that costs the server at each renewal.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use leasehold::{Guard, Leasehold};

use super::Bench;
use crate::{Failure, bare, cpu, report::Figures, spread::p50_us};

/// May do everything but ask for reports.
const PLAIN_USER: [&str; 9] =
    ["ACL", "SETUSER", "plain", "on", ">plain", "~*", "&*", "+@all", "-client|tracking"];

/// For renewals that come every third of a ttl.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    bench.server.cli(&PLAIN_USER);
    let addr = bench.server.addr();
    let mut urls = [("reported", bench.server.url()), ("plain", format!("redis://plain:plain@{addr}"))];
    urls.rotate_left(turn % 2);
    let mut figures = delays(bench).await?;
    for (who, url) in urls {
        let name = if who == "plain" { "renewal_plain_server_us" } else { "renewal_reported_server_us" };
        figures.push((name, renewal(bench, &url).await?));
    }
    Ok(figures)
}

/// Locks that are kept alive, each of them renewed once.
async fn kept(leases: &Leasehold, locks: usize, ttl: Duration) -> Result<Vec<Guard>, Failure> {
    let lock = |number| leases.lock(format!("bench:loss:{number}")).ttl(ttl).keep_alive().acquire();
    let guards = try_join_all((0..locks).map(lock)).await?;
    let are_renewed = async || leases.stats().renewed >= locks as u64;
    leasehold_testkit::eventually_async(PATIENCE, "every lock is renewed", are_renewed).await;
    Ok(guards)
}

/// From just before the DEL is sent to `lost()` completing, in the holder's task.
async fn delays(bench: &Bench) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let mut bare = bare::connection(&bench.server.url()).await?;
    let guards = kept(&leases, bench.count(1_000, 50), Duration::from_secs(60)).await?;
    let mut samples = Vec::with_capacity(guards.len());
    for guard in guards {
        let mut delete = redis::cmd("DEL");
        delete.arg(format!("lock:{}", guard.name()));
        let lease = guard.lease();
        let holder = tokio::spawn(async move {
            lease.lost().await;
            Instant::now()
        });
        tokio::task::yield_now().await;
        let began = Instant::now();
        bare.send_packed_command(&delete).await?;
        samples.push(holder.await?.duration_since(began));
    }
    samples.sort_unstable();
    let p99 = samples[samples.len() * 99 / 100].as_secs_f64() * 1e6;
    leases.close().await?;
    Ok(vec![("loss_p50_us", p50_us(&samples)), ("loss_p99_us", p99)])
}

/// Processor time of the server per renewal, in microseconds.
async fn renewal(bench: &Bench, url: &str) -> Result<f64, Failure> {
    let locks = bench.count(10_000, 500);
    let ttl = Duration::from_secs(if bench.quick { 2 } else { 12 });
    let leases = Leasehold::connect(url).await?;
    let guards = kept(&leases, locks, ttl).await?;
    let spent = || Ok::<_, Failure>((cpu::time_of(bench.server.pid())?, leases.stats().renewed));
    let before = spent()?;
    let many = before.1 + locks as u64 * 2;
    leasehold_testkit::eventually_async(PATIENCE, "renewals", async || leases.stats().renewed >= many).await;
    let after = spent()?;
    if guards.iter().any(|guard| !guard.is_held()) {
        return Err("a lock was lost while it was kept alive".into());
    }
    try_join_all(guards.into_iter().map(Guard::release)).await?;
    leases.close().await?;
    Ok((after.0 - before.0).as_secs_f64() * 1e6 / (after.1 - before.1) as f64)
}
