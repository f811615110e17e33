//! Deadlines that are claimed and acknowledged over one connection, beside many and beside few that are not due.

use std::time::{Duration, Instant};

use leasehold::engine::deadlines::{DueTime, Settle};

use super::{BUCKETS, Bench, FEW, LIMIT, MANY, Store, pool};
use crate::{Failure, report::Figures};

/// Limit per bucket, the default of the library.
const PER_BUCKET: u32 = 100;
/// What one claim takes at most.
pub(crate) const BATCH: usize = PER_BUCKET as usize * BUCKETS as usize;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let full = bench.full().await?;
    let store = Store::open(&full.server.url())?;
    let [mut many, mut few] = [(0, Duration::ZERO); 2];
    // The first turn of each contestant is the warm-up.
    for now in 0..=bench.count(3, 1) {
        for contestant in 0..2 {
            let (total, name) =
                if (contestant + now + turn).is_multiple_of(2) { (&mut many, MANY) } else { (&mut few, FEW) };
            let (count, time) = work_off(&store, name, bench.count(16_000, 1600)).await?;
            if now > 0 {
                *total = (total.0 + count, total.1 + time);
            }
        }
    }
    let per_second = |(count, time): (usize, Duration)| count as f64 / time.as_secs_f64();
    Ok(vec![
        ("deadlines_per_s_many_pending", per_second(many)),
        ("deadlines_per_s_few_pending", per_second(few)),
        ("pending_deadline_bytes", full.bytes_each),
    ])
}

/// Claims and acknowledges this many; returns how many there were and how long it took.
pub(crate) async fn work_off(store: &Store, name: &str, count: usize) -> Result<(usize, Duration), Failure> {
    store.set(name, "due", count, DueTime::AtMs(1)).await?;
    let (pool, deadlines) = (pool(name)?, store.deadlines()?);
    let (began, mut done) = (Instant::now(), 0);
    while done < count {
        let claimed = deadlines.claim_due(&pool, PER_BUCKET, LIMIT, store.until()).await?;
        if claimed.due.is_empty() {
            return Err("fewer deadlines were due than were set".into());
        }
        let handled: Vec<_> = claimed.due.into_iter().map(|due| (due.receipt, Settle::Done)).collect();
        if deadlines.settle(&pool, &handled, store.until()).await?.contains(&false) {
            return Err("a claim was not ours".into());
        }
        done += handled.len();
    }
    Ok((done, began.elapsed()))
}
