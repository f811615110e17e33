//! One task acquires and releases one uncontended lock.

use std::time::{Duration, Instant};

use leasehold::Leasehold;
use redis::{Value, aio::MultiplexedConnection};

use super::Bench;
use crate::{Failure, bare, report::Figures, scripts::RawLock, spread::p50_us};

/// Cycles of one contestant before the next takes its turn.
const PER_TURN: usize = 50;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let mut bare = bare::connection(&bench.server.url()).await?;
    for cmd in RawLock::load() {
        bare.send_packed_command(&cmd).await?;
    }
    let mut raw = RawLock::new("bench:cycle:raw");

    let turns = bench.count(100, 4);
    let [mut library, mut scripts, mut pings] = [const { Vec::new() }; 3];
    // The first turn of each contestant is the warm-up.
    for now in 0..=turns {
        for contestant in 0..3 {
            let samples = match (contestant + now + turn) % 3 {
                0 => library_cycles(&leases, &mut library).await?,
                1 => script_cycles(&mut bare, &mut raw, &mut scripts).await?,
                _ => two_pings(&mut bare, &mut pings).await?,
            };
            if now == 0 {
                samples.clear();
            }
        }
    }
    leases.close().await?;
    Ok(vec![
        ("cycle_us", p50_us(&library)),
        ("cycle_raw_scripts_us", p50_us(&scripts)),
        ("two_pings_us", p50_us(&pings)),
    ])
}

type Samples = Vec<Duration>;

async fn library_cycles<'a>(
    leases: &Leasehold,
    samples: &'a mut Samples,
) -> Result<&'a mut Samples, Failure> {
    for _ in 0..PER_TURN {
        let began = Instant::now();
        let guard = leases.lock("bench:cycle").acquire().await?;
        guard.release().await?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}

async fn script_cycles<'a>(
    bare: &mut MultiplexedConnection,
    raw: &mut RawLock,
    samples: &'a mut Samples,
) -> Result<&'a mut Samples, Failure> {
    for _ in 0..PER_TURN {
        let began = Instant::now();
        let id = raw.next_id();
        let granted = bare.send_packed_command(&raw.claim(&id)).await?;
        let released = bare.send_packed_command(&raw.release(&id)).await?;
        samples.push(began.elapsed());
        if !matches!((&granted, &released), (Value::BulkString(_), Value::Int(1))) {
            return Err(format!("the bare scripts answered {granted:?} and {released:?}").into());
        }
    }
    Ok(samples)
}

async fn two_pings<'a>(
    bare: &mut MultiplexedConnection,
    samples: &'a mut Samples,
) -> Result<&'a mut Samples, Failure> {
    let ping = redis::cmd("PING");
    for _ in 0..PER_TURN {
        let began = Instant::now();
        bare.send_packed_command(&ping).await?;
        bare.send_packed_command(&ping).await?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}
