//! Tasks with a lock each, unless they share names, acquire and release it for a while.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::{Keys, Orders, say, say_ready};
use crate::{
    Failure,
    library::{Library, Lock},
    spread::percentile_us,
};

const WARM_UP: usize = 200;

pub(super) async fn play<L: Library>(library: L, keys: &Keys, mut orders: Orders) -> Result<(), Failure> {
    let (tasks, prefix) = (keys.number::<usize>("tasks")?, keys.text("prefix")?);
    let length = Duration::from_millis(keys.number("ms")?);
    let names = keys.find("names").map_or(Ok(tasks), str::parse)?;
    let mut locks: Vec<_> =
        (0..tasks).map(|task| library.lock(&format!("{prefix}{}", task % names))).collect();
    for turn in 0..WARM_UP {
        locks[turn % tasks].cycle().await?;
    }
    say_ready()?;
    while orders.next().await.is_some() {
        let began = Instant::now();
        let mut working = JoinSet::new();
        for lock in locks.drain(..) {
            working.spawn(cycles(lock, began, length));
        }
        let mut total = Tally::default();
        while let Some(done) = working.join_next().await {
            let (lock, tally) = done?;
            locks.push(lock);
            total.add(tally);
        }
        let seconds = began.elapsed().as_secs_f64();
        let Tally { mut samples, errors } = total;
        say(&json!({
            "cycles": samples.len(),
            "seconds": seconds,
            "p50_us": percentile_us(&mut samples, 0.5),
            "p99_us": percentile_us(&mut samples, 0.99),
            "errors": errors,
        }))?;
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    samples: Vec<Duration>,
    errors: u64,
}

impl Tally {
    fn add(&mut self, more: Self) {
        self.errors += more.errors;
        match self.samples.as_slice() {
            [] => self.samples = more.samples,
            _ => self.samples.extend(more.samples),
        }
    }
}

async fn cycles<L: Lock>(mut lock: L, began: Instant, length: Duration) -> (L, Tally) {
    let mut tally = Tally::default();
    let mut now = Instant::now();
    // At least once, also where the machine gave this process no time.
    loop {
        let outcome = lock.cycle().await;
        let then = Instant::now();
        match outcome {
            Ok(()) => tally.samples.push(then - now),
            Err(_) => tally.errors += 1,
        }
        now = then;
        if now - began >= length {
            return (lock, tally);
        }
    }
}
