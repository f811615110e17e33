//! Sixty-four tasks: each begins and completes its own record, or acquires and releases its own lock.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{
    Leasehold,
    engine::records::{Begun, Outcome, Settle, Settled},
};
use tokio::task::JoinSet;

use super::{Bench, Store, random};
use crate::{Failure, report::Figures};

const TASKS: usize = 64;
/// Every record is new; they expire soon, or they would fill the memory.
const KEEP: Duration = Duration::from_secs(2);

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let leases = Leasehold::connect(bench.server.url()).await?;
    let store = Arc::new(Store::open(&bench.server.url())?);
    let turns = bench.count(8, 1);
    let turn_length = Duration::from_millis(bench.count(250, 50) as u64);
    let [mut records, mut locks] = [(0, Duration::ZERO); 2];
    // The first turn of each contestant is the warm-up.
    for now in 0..=turns {
        for contestant in 0..2 {
            let (total, (cycles, time)) = if (contestant + now + turn).is_multiple_of(2) {
                (&mut records, record_turn(&store, turn_length).await?)
            } else {
                (&mut locks, lock_turn(&leases, turn_length).await?)
            };
            if now > 0 {
                *total = (total.0 + cycles, total.1 + time);
            }
        }
    }
    leases.close().await?;
    let per_second = |(cycles, time): (u64, Duration)| cycles as f64 / time.as_secs_f64();
    Ok(vec![("record_cycles_per_s_64", per_second(records)), ("lock_cycles_per_s_64", per_second(locks))])
}

async fn record_turn(store: &Arc<Store>, length: Duration) -> Result<(u64, Duration), Failure> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, first) = (store.clone(), random(0));
        tasks.spawn(async move {
            let mut cycles = 0;
            while began.elapsed() < length {
                let random = first + u128::from(cycles);
                let begin = store.attempt(&format!("bench:record:{task}:{random:032x}"), random)?;
                let records = store.records()?;
                let Begun::Yours(grant) = records.begin(&begin, store.until()).await? else {
                    return Err("a new record is not ours".into());
                };
                let outcome = Outcome::Completed(b"done".as_slice().into());
                let settle = Settle { hold: begin.hold(grant.fence), fingerprint: None, outcome, keep: KEEP };
                if records.settle(&settle, store.until()).await? != Settled::Stored {
                    return Err("our record was not settled".into());
                }
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        });
    }
    finish(tasks, began).await
}

async fn lock_turn(leases: &Leasehold, length: Duration) -> Result<(u64, Duration), Failure> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (leases, name) = (leases.clone(), format!("bench:record-beside:{task}"));
        tasks.spawn(async move {
            let mut cycles = 0;
            while began.elapsed() < length {
                leases.lock(&name).acquire().await?.release().await?;
                cycles += 1;
            }
            Ok::<_, Failure>(cycles)
        });
    }
    finish(tasks, began).await
}

async fn finish(
    mut tasks: JoinSet<Result<u64, Failure>>,
    began: Instant,
) -> Result<(u64, Duration), Failure> {
    let mut cycles = 0;
    while let Some(done) = tasks.join_next().await {
        cycles += done??;
    }
    Ok((cycles, began.elapsed()))
}
