//! Server memory per held lock, and what a released lock leaves behind.

use redis::{Value, aio::MultiplexedConnection};

use super::Bench;
use crate::{Failure, bare, report::Figures, scripts::RawLock, server};

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let mut bare = bare::connection(&bench.server.url()).await?;
    for cmd in RawLock::load() {
        bare.send_packed_command(&cmd).await?;
    }
    let locks = bench.count(20_000, 1_000);
    // Warm up first: tables have their size, and every code path has been used, before anything is counted.
    let mut figures = [0.0; 2];
    for _warm in 0..2 {
        figures = cycle(bench, &mut bare, turn, locks).await?;
    }
    let [held, left] = figures;
    Ok(vec![("memory_per_lock", held), ("memory_after_release", left)])
}

/// Bytes per lock while all are held, and when all were released.
async fn cycle(
    bench: &Bench,
    bare: &mut MultiplexedConnection,
    turn: usize,
    locks: usize,
) -> Result<[f64; 2], Failure> {
    let mut all: Vec<_> = (0..locks).map(|n| RawLock::new(&format!("m:{turn}:{n}"))).collect();
    let ids: Vec<_> = all.iter_mut().map(RawLock::next_id).collect();
    // A probe first, so that the counter of fences is there.
    run(bare, RawLock::new("m:probe").claim_shortly(&ids[0])).await?;
    run(bare, RawLock::new("m:probe").release(&ids[0])).await?;
    let before = server::number(&bench.server, "used_memory")?;
    for (lock, id) in all.iter().zip(&ids) {
        run(bare, lock.claim_shortly(id)).await?;
    }
    let held = server::number(&bench.server, "used_memory")?;
    for (lock, id) in all.iter().zip(&ids) {
        run(bare, lock.release(id)).await?;
    }
    let keys = bench.server.cli(&["KEYS", "*m:*"]).list().len();
    if keys > 0 {
        return Err(format!("{keys} keys are left of released locks").into());
    }
    // The tables shrink in the background.
    let after = server::number(&bench.server, "used_memory")?;
    Ok([(held - before) / locks as f64, ((after - before) / locks as f64).max(0.0).floor()])
}

async fn run(bare: &mut MultiplexedConnection, cmd: redis::Cmd) -> Result<(), Failure> {
    match bare.send_packed_command(&cmd).await? {
        Value::Nil => Err("an uncontended lock was refused".into()),
        _ => Ok(()),
    }
}
