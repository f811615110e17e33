//! Readers that come in together when a writer releases, and one that comes and goes beside others.

use leasehold::{Leasehold, Lock, Released};
use tokio::task::JoinSet;

use super::{
    Bench,
    many::{CLIENTS, LONG, all_wait, close, connect, release_all, wait},
};
use crate::{
    Failure,
    report::Figures,
    server::{self, ScriptCall, ScriptLog},
    spread::Spread,
};

pub(super) async fn readers(bench: &Bench) -> Result<Figures, Failure> {
    let clients = connect(bench).await?;
    let many = bench.count(500, 50);
    let (mut one_us, mut many_us, mut exclusive_us, mut calls) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let wanted = bench.count(5, 1);
    for _ in 0..3 * wanted {
        let all = handover(bench, &clients, many, |leases, name| leases.read_lock(name)).await?;
        let script = longest(&all)?.script.clone();
        let same: Vec<_> = all.iter().filter(|call| call.script == script).collect();
        let one = handover(bench, &clients, 1, |leases, name| leases.read_lock(name)).await?;
        // On a busy machine another call may have been the longest: then this is not what is compared.
        let Some(one) = one.iter().find(|call| call.script == script) else { continue };
        one_us.push(one.us);
        calls.push(same.len() as f64);
        many_us.push(same.iter().map(|call| call.us).sum());
        let exclusive = handover(bench, &clients, 1, |leases, name| leases.write_lock(name)).await?;
        exclusive_us.push(longest(&exclusive)?.us);
        if one_us.len() == wanted {
            break;
        }
    }
    if one_us.is_empty() {
        return Err("one reader is never admitted by the script that admits many".into());
    }
    let beside_few = beside(bench, &clients, 10).await?;
    let beside_many = beside(bench, &clients, many).await?;
    close(clients).await?;
    let median = |samples: Vec<f64>| Spread::of(samples).median;
    Ok(vec![
        ("admit_one_server_us", median(one_us)),
        ("admit_500_server_us", median(many_us)),
        ("admit_500_calls", median(calls)),
        ("exclusive_handover_server_us", median(exclusive_us)),
        ("reader_beside_10_server_us", beside_few),
        ("reader_beside_500_server_us", beside_many),
    ])
}

fn longest(calls: &[ScriptCall]) -> Result<&ScriptCall, Failure> {
    let longest = calls.iter().max_by(|one, other| one.us.total_cmp(&other.us));
    Ok(longest.ok_or("no call of a script took long enough to be logged")?)
}

/// The calls of scripts around the release of a writer that so many wait for: it asks whether anybody waits, then hands over.
/// New holders renew at once, by another script.
async fn handover(
    bench: &Bench,
    clients: &[Leasehold],
    waiters: usize,
    lock: fn(&Leasehold, &str) -> Lock,
) -> Result<Vec<ScriptCall>, Failure> {
    const NAME: &str = "bench:admission";
    let writer = clients[0].write_lock(NAME).ttl(LONG).acquire().await?;
    let mut waiting = JoinSet::new();
    for waiter in 0..waiters {
        wait(&mut waiting, lock(&clients[waiter % CLIENTS], NAME));
    }
    all_wait(&bench.server, NAME, waiters).await;
    let log = ScriptLog::begin(&bench.server);
    let released = writer.release().await?;
    let calls = log.end();
    if !matches!(released, Released::HandedOver { to, .. } if to as usize == waiters) {
        return Err(format!("{waiters} waited, and the release was {released:?}").into());
    }
    release_all(waiting).await?;
    Ok(calls)
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
