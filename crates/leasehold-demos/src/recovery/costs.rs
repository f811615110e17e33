//! The cost of a scan in round trips, as the client counts them.
//!
//! Counted before the first transaction, on the pool of this run: nothing else uses the client, and nothing is due.

use std::time::{Duration, Instant};

use leasehold::{Deadlines, Due, Leasehold, deadlines::Scans};

use super::{pool, scan_lock};
use crate::{Result, supervisor::Supervisor};

/// Scans that are counted, of each kind.
const SCANS: u64 = 20;
/// Time between two scans. Long enough for the lock of the one before to be open again.
const EVERY: Duration = Duration::from_millis(50);
const POLL_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn measure(supervisor: &Supervisor) -> Result<()> {
    let (leases, database) = (supervisor.new_client().await?, supervisor.database()?);
    let pool = leases.deadlines(pool(supervisor.workers.template()));
    // From here on the store has the pool and the scripts.
    drop(pool.claim().limit(1).visibility(Duration::from_secs(1)).await?);
    let _ = scan_lock(&leases)?.acquire().await?.release().await?;
    for _ in 0..SCANS {
        let began = Instant::now();
        let winner = scan_lock(&leases)?.acquire().await?;
        drop(pool.claim().limit(1).visibility(Duration::from_secs(1)).await?);
        let _ = winner.release().await?;
        let us = began.elapsed().as_micros() as u64;
        database.execute("insert into cycles (us) values (?)", [us])?;
    }
    let note = |scan: &str, asked: u64, scans: u64| {
        let sql = "insert into costs select ?1, ?2, ?3 where ?3 > 0";
        database.execute(sql, (scan, asked, scans))
    };
    // All primaries of a cluster are asked at once, and each counts as a round trip.
    let is_cluster = leases.capabilities().engine == "redis-cluster";
    let beside = if is_cluster { ", in parallel" } else { "" };
    let shared = scan(&leases, &pool, Scans::Shared).await?;
    note(&format!("that all pods share{beside}"), shared.asked, shared.done)?;
    let another = supervisor.new_client().await?;
    let winner = scan_lock(&another)?.wait(PATIENCE).keep_alive().acquire().await?;
    let lost = scan(&leases, &pool, Scans::SingleWinner).await?;
    let _ = winner.release().await?;
    note("left to the one who won", lost.asked, lost.skipped)?;
    let won = scan(&leases, &pool, Scans::SingleWinner).await?;
    // A scan that found the lock still closed was skipped by all, at the cost of a skipped scan.
    let in_vain = won.skipped * lost.asked.checked_div(lost.skipped).unwrap_or(1);
    note(&format!("by one winner, with its lock{beside}"), won.asked.saturating_sub(in_vain), won.done)?;
    another.close().await?;
    Ok(leases.close().await?)
}

/// Whether the error is temporary: the store may be unreachable for a while.
pub(super) fn may_pass(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<leasehold::Error>().is_some_and(leasehold::Error::is_retryable)
}

/// What some scans came to.
struct Counted {
    asked: u64,
    done: u64,
    skipped: u64,
}

async fn scan(leases: &Leasehold, pool: &Deadlines, scans: Scans) -> Result<Counted> {
    let (before, asked_before) = (leases.stats(), asked(leases)?);
    let count = || {
        let now = leases.stats();
        let (done, skipped) = (now.recovery_scans, now.recovery_skipped);
        (done - before.recovery_scans, skipped - before.recovery_skipped)
    };
    let nothing = async |_: Due| Result::<(), String>::Ok(());
    let recovery = pool.recover(nothing).every(EVERY).scans(scans).lock(scan_lock(leases)?).start().await?;
    let began = Instant::now();
    while count().0.max(count().1) < SCANS {
        if began.elapsed() > PATIENCE {
            return Err("scans take too long to be counted".into());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    // It finishes the current scan.
    recovery.stop().await;
    let (done, skipped) = count();
    Ok(Counted { asked: asked(leases)? - asked_before, done, skipped })
}

fn asked(leases: &Leasehold) -> Result<u64> {
    leases.round_trips().ok_or_else(|| "this store does not count round trips".into())
}
