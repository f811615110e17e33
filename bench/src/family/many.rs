//! Many readers, and many who wait for permits.

use std::time::Duration;

use leasehold::{Guard, Leasehold, Lock, Released, Retry};
use leasehold_testkit::{RedisServer, eventually_async};
use tokio::task::JoinSet;

use super::Bench;
use crate::{Failure, report::Figures, server};

const LONG: Duration = Duration::from_secs(60);
/// Clients that waiters belong to.
const CLIENTS: usize = 4;
const PERMITS: u32 = 100;
const HANDOVERS: usize = 8;
/// A new holder renews at once, off its caller's path; that renewal belongs to the hand-over.
const SETTLED: Duration = Duration::from_millis(4);

async fn connect(bench: &Bench) -> Result<Vec<Leasehold>, Failure> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Leasehold::connect(bench.server.url()).await?);
    }
    Ok(clients)
}

async fn close(clients: Vec<Leasehold>) -> Result<(), Failure> {
    for client in clients {
        client.close().await?;
    }
    Ok(())
}

/// Starts to wait, and does not poll: what is measured ends before the first poll.
fn wait(waiting: &mut JoinSet<leasehold::Result<Guard>>, lock: Lock) {
    waiting.spawn(lock.ttl(LONG).retry(Retry::fixed(LONG)).wait_forever().acquire());
}

async fn all_wait(server: &RedisServer, name: &str, waiters: usize) {
    let queue = format!("leasehold:waiters:{{lock:{name}}}");
    eventually_async(LONG, "all wait", async || server.cli(&["ZCARD", &queue]).int() == waiters as i64).await;
    tokio::time::sleep(SETTLED).await;
}

async fn release_all(waiting: JoinSet<leasehold::Result<Guard>>) -> Result<(), Failure> {
    for guard in waiting.join_all().await {
        let _ = guard?.release().await?;
    }
    Ok(())
}

pub(super) async fn readers(bench: &Bench) -> Result<Figures, Failure> {
    let clients = connect(bench).await?;
    let many = bench.count(500, 50);
    let (mut one_us, mut many_us) = (Vec::new(), Vec::new());
    for _ in 0..bench.count(5, 1) {
        one_us.push(admission(bench, &clients, 1).await?);
        many_us.push(admission(bench, &clients, many).await?);
    }
    let beside_few = beside(bench, &clients, 10).await?;
    let beside_many = beside(bench, &clients, many).await?;
    close(clients).await?;
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    Ok(vec![
        ("admit_one_server_us", median(one_us)),
        ("admit_500_server_us", median(many_us)),
        ("reader_beside_10_server_us", beside_few),
        ("reader_beside_500_server_us", beside_many),
    ])
}

/// The server's time in scripts for the release of a writer that so many readers wait for.
async fn admission(bench: &Bench, clients: &[Leasehold], readers: usize) -> Result<f64, Failure> {
    const NAME: &str = "bench:admission";
    let writer = clients[0].write_lock(NAME).ttl(LONG).acquire().await?;
    let mut waiting = JoinSet::new();
    for reader in 0..readers {
        wait(&mut waiting, clients[reader % CLIENTS].read_lock(NAME));
    }
    all_wait(&bench.server, NAME, readers).await;
    let before = server::script_us(&bench.server);
    let released = writer.release().await?;
    let took = server::script_us(&bench.server) - before;
    if !matches!(released, Released::HandedOver { to, .. } if to as usize == readers) {
        return Err(format!("{readers} readers waited, and the release was {released:?}").into());
    }
    release_all(waiting).await?;
    Ok(took)
}

/// The server's time in scripts for a reader that comes and goes beside others.
async fn beside(bench: &Bench, clients: &[Leasehold], readers: usize) -> Result<f64, Failure> {
    const NAME: &str = "bench:beside";
    let mut held = Vec::new();
    for reader in 0..readers {
        held.push(clients[reader % CLIENTS].read_lock(NAME).ttl(LONG).acquire().await?);
    }
    let cycles = bench.count(500, 20);
    let before = server::script_us(&bench.server);
    for _ in 0..cycles {
        let _ = clients[0].read_lock(NAME).ttl(LONG).acquire().await?.release().await?;
    }
    let took = server::script_us(&bench.server) - before;
    for guard in held {
        let _ = guard.release().await?;
    }
    Ok(took / cycles as f64)
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
    let before = server::memory(&bench.server)?;
    let mut held = Vec::new();
    for holder in 0..PERMITS as usize {
        held.push(semaphore(holder).acquire().await?);
    }
    let bytes = (server::memory(&bench.server)? - before) / f64::from(PERMITS);
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
