//! Many who wait for permits, and what measurements with many waiters share.

use std::time::Duration;

use leasehold::{Guard, Leasehold, Lock, Retry};
use leasehold_testkit::{RedisServer, eventually_async};
use tokio::task::JoinSet;

use super::Bench;
use crate::{Failure, report::Figures, server};

pub(super) const LONG: Duration = Duration::from_secs(60);
/// Clients that waiters belong to.
pub(super) const CLIENTS: usize = 4;
const PERMITS: u32 = 100;
const HANDOVERS: usize = 8;
/// A new holder renews at once, off its caller's path; that renewal belongs to the hand-over.
const SETTLED: Duration = Duration::from_millis(4);

pub(super) async fn connect(bench: &Bench) -> Result<Vec<Leasehold>, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Leasehold::builder(bench.server.url()).command_timeout(LONG).connect().await?);
    }
    Ok(clients)
}

pub(super) async fn close(clients: Vec<Leasehold>) -> Result<(), Failure> {
    for client in clients {
        client.close().await?;
    }
    Ok(())
}

/// Starts to wait, and does not poll: what is measured ends before the first poll.
pub(super) fn wait(waiting: &mut JoinSet<leasehold::Result<Guard>>, lock: Lock) {
    waiting.spawn(lock.ttl(LONG).retry(Retry::fixed(LONG)).wait_forever().acquire());
}

pub(super) async fn all_wait(server: &RedisServer, name: &str, waiters: usize) {
    let queue = format!("leasehold:waiters:{{lock:{name}}}");
    eventually_async(LONG, "all wait", async || server.cli(&["ZCARD", &queue]).int() == waiters as i64).await;
    tokio::time::sleep(SETTLED).await;
}

pub(super) async fn release_all(waiting: JoinSet<leasehold::Result<Guard>>) -> Result<(), Failure> {
    for guard in waiting.join_all().await {
        let _ = guard?.release().await?;
    }
    Ok(())
}

pub(super) async fn permits(bench: &Bench) -> Result<Figures, Failure> {
    Ok(vec![
        ("permit_commands_10_waiters", per_handover(bench, 10).await?.0),
        ("permit_commands_1000_waiters", per_handover(bench, 1_000).await?.0),
        ("bytes_per_permit_holder", per_handover(bench, 10).await?.1),
    ])
}

/// The server's commands per hand-over of a permit, and bytes per holder.
async fn per_handover(bench: &Bench, waiters: usize) -> Result<(f64, f64), Failure> {
    let (clients, name) = (connect(bench).await?, format!("bench:permits:{waiters}"));
    let semaphore = |client: usize| clients[client % CLIENTS].semaphore(&name, PERMITS).ttl(LONG);
    let _ = semaphore(0).acquire().await?.release().await?;
    let keys = format!("*{name}*");
    let before = server::memory_of(&bench.server, &keys);
    let mut held = Vec::new();
    for holder in 0..PERMITS as usize {
        held.push(semaphore(holder).acquire().await?);
    }
    let bytes = (server::memory_of(&bench.server, &keys) - before) as f64 / f64::from(PERMITS);
    let mut waiting = JoinSet::new();
    for waiter in 0..waiters {
        wait(&mut waiting, semaphore(waiter));
    }
    all_wait(&bench.server, &name, waiters).await;
    let before = server::commands(&bench.server);
    for _ in 0..HANDOVERS {
        let _ = held.pop().ok_or("nobody holds a permit")?.release().await?;
        held.push(waiting.join_next().await.ok_or("nobody waits")???);
        tokio::time::sleep(SETTLED).await;
    }
    let commands = (server::commands(&bench.server) - before) as f64 / HANDOVERS as f64;
    waiting.shutdown().await;
    for guard in held {
        let _ = guard.release().await?;
    }
    close(clients).await?;
    Ok((commands, bytes))
}
