//! The server's work for one hand-over, with few and with many waiters.

use std::time::Duration;

use leasehold::{Guard, Leasehold, Retry};
use tokio::task::JoinSet;

use super::Bench;
use crate::{Failure, report::Figures, server};

const HANDOVERS: usize = 8;
/// Clients that the waiters belong to.
const CLIENTS: usize = 4;
/// A new holder renews at once, off its caller's path; that renewal belongs to the hand-over.
const SETTLED: Duration = Duration::from_millis(4);
/// The server answers late to a thousand who ask at once beside other load, and nobody asks again before a poll.
const PATIENCE: Duration = Duration::from_secs(50);

pub(super) async fn measure(bench: &Bench) -> Result<Figures, Failure> {
    Ok(vec![
        ("commands_per_handover_10_waiters", per_handover(bench, 10).await?),
        ("commands_per_handover_1000_waiters", per_handover(bench, 1_000).await?),
    ])
}

async fn per_handover(bench: &Bench, waiters: usize) -> Result<f64, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Leasehold::builder(bench.server.url()).command_timeout(PATIENCE).connect().await?);
    }
    let name = format!("bench:commands:{waiters}");
    let mut holder = clients[0].lock(&name).acquire().await?;
    // Polls are not what is counted: the window ends before the first one.
    let no_polls = Retry::fixed(Duration::from_secs(60));
    let mut waiting: JoinSet<leasehold::Result<Guard>> = JoinSet::new();
    for waiter in 0..waiters {
        let lock = clients[waiter % CLIENTS].lock(&name).retry(no_polls).wait_forever();
        waiting.spawn(lock.acquire());
    }
    let queue = format!("leasehold:waiters:{{lock:{name}}}");
    leasehold_testkit::eventually_async(PATIENCE, "all wait", async || {
        bench.server.cli(&["ZCARD", &queue]).int() == waiters as i64
    })
    .await;
    tokio::time::sleep(SETTLED).await;

    let before = server::commands(&bench.server);
    for _ in 0..HANDOVERS {
        let _ = holder.release().await?;
        holder = waiting.join_next().await.ok_or("nobody waits")???;
        tokio::time::sleep(SETTLED).await;
    }
    let after = server::commands(&bench.server);

    waiting.shutdown().await;
    let _ = holder.release().await?;
    for client in &clients {
        client.close().await?;
    }
    Ok((after - before) as f64 / HANDOVERS as f64)
}
