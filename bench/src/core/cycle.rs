//! One task acquires and releases one uncontended lock.

use std::time::{Duration, Instant};

use super::Bench;
use crate::{
    Failure,
    library::{Library, Lock, Ours, Pings, Scripts},
    report::Figures,
    spread::p50_us,
};

/// Cycles of one contestant before the next takes its turn.
const PER_TURN: usize = 50;

pub(super) async fn measure(bench: &Bench, turn: usize) -> Result<Figures, Failure> {
    let url = bench.server.url();
    let mut library = Ours::connect(&[&url]).await?.lock("bench:cycle");
    let mut scripts = Scripts::connect(&url).await?.lock("bench:cycle:raw");
    let mut pings = Pings::connect(&url).await?;

    let mut samples = [const { Vec::new() }; 3];
    // The first turn of each contestant is the warm-up.
    for now in 0..=bench.count(100, 4) {
        for contestant in 0..3 {
            let which = (contestant + now + turn) % 3;
            let took = &mut samples[which];
            match which {
                0 => cycles(&mut library, took).await?,
                1 => cycles(&mut scripts, took).await?,
                _ => cycles(&mut pings, took).await?,
            }
            if now == 0 {
                took.clear();
            }
        }
    }
    let [library, scripts, pings] = samples.map(|samples| p50_us(&samples));
    Ok(vec![("cycle_us", library), ("cycle_raw_scripts_us", scripts), ("two_pings_us", pings)])
}

async fn cycles(lock: &mut impl Lock, samples: &mut Vec<Duration>) -> Result<(), Failure> {
    for _ in 0..PER_TURN {
        let began = Instant::now();
        lock.cycle().await?;
        samples.push(began.elapsed());
    }
    Ok(())
}
