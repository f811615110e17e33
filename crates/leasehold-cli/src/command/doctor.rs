//! `leasehold doctor`: checks the store and measures round trips.

use std::time::{Duration, Instant};

use clap::Args;
use leasehold::{
    Error, ErrorKind, Leasehold,
    engine::{Health, Warning},
};
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::Output,
    store::{self, Store},
};

/// Check the store: facts, round-trip times and warnings
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 no warnings · 1 warnings · 69 unreachable · 77 refused

Examples:
  leasehold doctor
  leasehold doctor --store redis://db1 --json")]
pub(super) struct Doctor {}

/// Calls that are timed.
const PROBES: usize = 9;
/// Locks that are inspected for that; they need not be held. If the shard of one is unreachable, the next one is tried.
const PROBE: [&str; 4] =
    ["leasehold:doctor", "leasehold:doctor:1", "leasehold:doctor:2", "leasehold:doctor:3"];

#[derive(Serialize)]
struct Findings {
    store: String,
    engine: &'static str,
    facts: Vec<Fact>,
    /// `None` if all probed locks are unreachable.
    round_trip: Option<RoundTrip>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct Fact {
    what: String,
    value: String,
}

#[derive(Clone, Copy, Serialize)]
struct RoundTrip {
    calls: usize,
    fastest_us: u64,
    median_us: u64,
    slowest_us: u64,
}

impl Doctor {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect_lazy()?;
        let checked = check(&leases).await;
        store::close(&leases).await;
        let (health, round_trip) = checked?;
        let exit = if health.warnings.is_empty() { Exit::OK } else { Exit::NO };
        let out = global.output();
        let text = text(out, leases.store(), &health, round_trip);
        let facts = health.facts.into_iter().map(|(what, value)| Fact { what, value }).collect();
        let findings = Findings {
            store: leases.store().to_owned(),
            engine: leases.capabilities().engine,
            facts,
            round_trip,
            warnings: health.warnings,
        };
        out.print(findings, || text)?;
        Ok(exit)
    }
}

async fn check(leases: &Leasehold) -> Result<(Health, Option<RoundTrip>), Failure> {
    let health = leases.health().await?;
    for name in PROBE {
        match time(leases, name).await {
            Ok(trip) => return Ok((health, Some(trip))),
            // The warnings say what is wrong, and matter more than this number.
            Err(error) if error.kind() == ErrorKind::StoreUnreachable && !health.warnings.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((health, None))
}

async fn time(leases: &Leasehold, name: &str) -> Result<RoundTrip, Error> {
    let mut times = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let began = Instant::now();
        leases.inspect(name).await?;
        times.push(began.elapsed().as_micros() as u64);
    }
    times.sort_unstable();
    let (fastest_us, median_us, slowest_us) = (times[0], times[PROBES / 2], times[PROBES - 1]);
    Ok(RoundTrip { calls: PROBES, fastest_us, median_us, slowest_us })
}

fn text(out: Output, store: &str, health: &Health, trip: Option<RoundTrip>) -> String {
    let shown = |us: u64| humantime::format_duration(Duration::from_micros(us)).to_string();
    let mut facts = vec![("store".to_owned(), store.to_owned())];
    facts.extend(health.facts.iter().cloned());
    let trip = match trip {
        Some(trip) => {
            format!("{} ({} to {})", shown(trip.median_us), shown(trip.fastest_us), shown(trip.slowest_us))
        }
        None => "no lock could be inspected".into(),
    };
    facts.push(("round trip".into(), trip));
    for warning in &health.warnings {
        facts.push((format!("warning {}", warning.code), format!("{}; {}", warning.found, warning.cure)));
    }
    facts.push((
        "verdict".into(),
        match health.warnings.len() {
            0 => "in order".into(),
            1 => "1 warning".into(),
            many => format!("{many} warnings"),
        },
    ));
    out.facts(&facts)
}
