//! What the client sends for a re-entry, and for several locks at once.

use leasehold::Leasehold;

use super::{Bench, many::LONG};
use crate::{Failure, monitor::watch_sent, report::Figures, server};

const LOCKS: usize = 8;

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let times = bench.count(100, 5);
    let reentry = reentry(bench, &leases, times).await?;
    let (acquire, release) = lock_all(bench, &leases, times).await?;
    leases.close().await?;
    Ok(vec![
        ("reentry_commands", reentry),
        ("lock_all_8_sent", acquire),
        ("lock_all_8_release_sent", release),
    ])
}

/// The server's commands for a lock that its owner takes again and gives back, while it holds it.
async fn reentry(bench: &Bench, leases: &Leasehold, times: usize) -> Result<f64, Failure> {
    let me = leases.owner();
    let outer = me.lock("bench:reentry").ttl(LONG).acquire().await?;
    let before = server::commands(&bench.server);
    for _ in 0..times {
        let inner = me.lock("bench:reentry").acquire().await?;
        if inner.fence() != outer.fence() || !inner.release().await?.was_held() {
            return Err("a re-entry is not the lease of its owner".into());
        }
    }
    let commands = server::commands(&bench.server) - before;
    let _ = outer.release().await?;
    Ok(commands as f64 / times as f64)
}

/// Commands that the client sends to acquire several locks, and to release them.
async fn lock_all(bench: &Bench, leases: &Leasehold, times: usize) -> Result<(f64, f64), Failure> {
    let all = || leases.lock_all((0..LOCKS).map(|lock| leases.lock(format!("bench:all:{lock}")).ttl(LONG)));
    // Loads the scripts.
    let _ = all().acquire().await?.release().await;
    let (mut acquired, mut released) = (0, 0);
    for _ in 0..times {
        let sent = watch_sent(&bench.server)?;
        let guards = all().acquire().await?;
        acquired += sent.end()?;
        let sent = watch_sent(&bench.server)?;
        let outcome = guards.release().await;
        released += sent.end()?;
        if !outcome.was_held() {
            return Err(format!("a set of locks was lost: {outcome:?}").into());
        }
    }
    Ok((acquired as f64 / times as f64, released as f64 / times as f64))
}
