//! What a recovery logs while its store is away. Alone in its process: the log is the process's.
#![cfg(feature = "redis")]

mod log;

use std::time::Duration;

use leasehold::{Due, Leasehold, deadlines::Scans};
use leasehold_testkit::eventually_async;
use log::Log;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_outage_is_logged_once_and_its_end_too() {
    let Some(server) = leasehold_testkit::redis_or_skip() else { return };
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let leases = Leasehold::connect(server.url()).await.unwrap();
    let mut recoveries = Vec::new();
    for (pool, scans) in [("shared", Scans::Shared), ("single", Scans::SingleWinner)] {
        let recover = leases.deadlines(pool).recover(async |_: Due| leasehold::Result::<()>::Ok(()));
        recoveries.push(recover.scans(scans).every(Duration::from_millis(20)).await.unwrap());
    }
    eventually_async(LONG, "scans", || async { leases.stats().recovery_scans > 2 }).await;
    server.kill();
    let count = |what: &str| log.text().lines().filter(|line| line.contains(what)).count();
    for pool in ["shared", "single"] {
        let again = format!("DEBUG recovery still waits for the store pool={pool} ");
        eventually_async(LONG, "two tries more", || async { count(&again) >= 2 }).await;
        assert_eq!(count(&format!("ERROR recovery waits for the store pool={pool} ")), 1, "{}", log.text());
    }
    // A release that met the outage is logged by the lock, and again when it is given up.
    assert!(count("ERROR") <= 4, "the lock's own errors come once, too:\n{}", log.text());
    server.restart();
    for pool in ["shared", "single"] {
        let over = format!("INFO recovery goes on pool={pool}");
        eventually_async(LONG, "the end of the outage", || async { count(&over) == 1 }).await;
    }
    for recovery in recoveries {
        assert!(recovery.stop().await);
    }
    leases.close().await.unwrap();
}
