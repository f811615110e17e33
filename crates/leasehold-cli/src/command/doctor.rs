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
        let leases = Store::choose_any(global)?.connect_lazy()?;
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
    // A pipe gets one fact a line.
    let nodes = Nodes::of(&health.facts).filter(|nodes| out.terminal && nodes.rows.len() > 1);
    facts.extend(match &nodes {
        Some(nodes) => nodes.other_facts.clone(),
        None => health.facts.clone(),
    });
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
    let table = nodes.map(|nodes| {
        let heading: Vec<_> = nodes.heading.iter().map(String::as_str).collect();
        out.table(&heading, &nodes.rows) + "\n"
    });
    table.unwrap_or_default() + &out.facts(&facts)
}

/// The facts about each of several nodes as a table.
#[derive(Debug, Default, PartialEq, Eq)]
struct Nodes {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    other_facts: Vec<(String, String)>,
}

/// Facts of one server that a set puts into one line: see `summary` of the Redis engine.
const SUMMARISED: [&str; 4] = ["version ", "valkey version ", "persistence ", "link "];

impl Nodes {
    /// `None` if no fact is about a node. Such a fact begins with the node's address.
    fn of(facts: &[(String, String)]) -> Option<Self> {
        let mut nodes = Self { heading: vec!["NODE".into(), "STATE".into()], ..Self::default() };
        for (what, value) in facts {
            let (node, fact) = what.split_once(' ').unwrap_or((what, ""));
            if !node.contains(':') {
                nodes.other_facts.push((what.clone(), value.clone()));
            } else if fact.is_empty() {
                let is_fact = |part: &&str| SUMMARISED.iter().any(|fact| part.starts_with(fact));
                let (facts, state): (Vec<_>, Vec<_>) = value.split(", ").partition(is_fact);
                nodes.rows.push(vec![node.to_owned(), state.join(", ")]);
                for (fact, value) in facts.iter().filter_map(|fact| fact.rsplit_once(' ')) {
                    nodes.put(fact, value);
                }
            } else {
                nodes.put(fact, value);
            }
        }
        (!nodes.rows.is_empty()).then_some(nodes)
    }

    /// Puts a fact into the last row.
    fn put(&mut self, fact: &str, value: &str) {
        let heading = fact.to_uppercase();
        let column = self.heading.iter().position(|known| *known == heading).unwrap_or_else(|| {
            self.heading.push(heading);
            self.heading.len() - 1
        });
        if let Some(row) = self.rows.last_mut() {
            row.resize(row.len().max(column + 1), String::new());
            row[column] = value.to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(facts: &[(&str, &str)]) -> Vec<(String, String)> {
        facts.iter().map(|(what, value)| ((*what).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_nodes_of_a_quorum_are_rows() {
        let found = facts(&[
            ("engine", "redlock"),
            ("a:1", "votes"),
            ("a:1 version", "7.0.15"),
            ("a:1 eviction policy", "noeviction"),
            ("b:1", "unreachable"),
            ("c:1", "votes"),
            ("c:1 eviction policy", "noeviction"),
        ]);
        let nodes = Nodes::of(&found).unwrap();
        assert_eq!(nodes.heading, ["NODE", "STATE", "VERSION", "EVICTION POLICY"]);
        assert_eq!(nodes.rows[0], ["a:1", "votes", "7.0.15", "noeviction"]);
        assert_eq!(nodes.rows[1], ["b:1", "unreachable"]);
        assert_eq!(nodes.rows[2], ["c:1", "votes", "", "noeviction"]);
        assert_eq!(nodes.other_facts, facts(&[("engine", "redlock")]));
    }

    #[test]
    fn the_servers_of_a_set_are_rows() {
        let found = facts(&[
            ("sentinel s:1", "names a:1, epoch 0"),
            ("a:1", "primary of 0-5460, 7000-7001, version 7.0.15, persistence aof"),
            ("b:1", "replica, cannot be asked"),
        ]);
        let nodes = Nodes::of(&found).unwrap();
        assert_eq!(nodes.heading, ["NODE", "STATE", "VERSION", "PERSISTENCE"]);
        assert_eq!(nodes.rows[0], ["a:1", "primary of 0-5460, 7000-7001", "7.0.15", "aof"]);
        assert_eq!(nodes.rows[1], ["b:1", "replica, cannot be asked"]);
        assert_eq!(nodes.other_facts.len(), 1);
        assert_eq!(Nodes::of(&facts(&[("version", "7.0.15")])), None);
    }
}
