//! Contestants take turns on the same servers; what is compared was measured in the same round.

mod pin;
mod watch;

use std::{
    collections::BTreeMap,
    io::Write,
    process::Command,
    time::{Duration, Instant},
};

use leasehold_testkit::RedisServer;
use serde_json::Value;

pub(crate) use self::watch::{DISTURBED, Used};
use self::{
    pin::{CLIENT_CORE, SERVER_CORE},
    watch::Watch,
};
use crate::{
    Failure,
    contestant::{Contestant, Started},
    report::Figures,
    spread::Spread,
};

/// One who takes part: a library, on a runtime if that makes a difference.
pub(crate) struct Entrant {
    pub(crate) label: String,
    contestants: Vec<Contestant>,
}

/// The servers, the entrants, and what is said about them on the way.
pub(crate) struct Contest<'a> {
    title: String,
    servers: Vec<&'a RedisServer>,
    entrants: Vec<Entrant>,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(title: impl Into<String>, servers: Vec<&'a RedisServer>) -> Self {
        let contest = Self { title: title.into(), servers, entrants: Vec::new() };
        for pid in contest.server_pids() {
            warn_if_unpinned(pin::to_core(pid, SERVER_CORE));
        }
        contest
    }

    /// Starts one entrant with so many processes; one that does not support the workload is left out.
    pub(crate) fn enter(
        &mut self,
        label: &str,
        processes: usize,
        command: impl Fn(usize) -> Command,
    ) -> Result<(), Failure> {
        let mut contestants = Vec::new();
        for process in 0..processes {
            let Started::Ready(contestant) = Contestant::start(command(process), label)? else {
                return Ok(());
            };
            warn_if_unpinned(pin::to_core(contestant.pid(), CLIENT_CORE));
            contestants.push(contestant);
        }
        self.entrants.push(Entrant { label: label.to_owned(), contestants });
        Ok(())
    }

    /// One turn of every entrant in each round, in an order that changes; the first round is the warm-up.
    pub(crate) fn run(
        mut self,
        rounds: usize,
        figures: impl Fn(&[Value], &Used) -> Result<Figures, Failure>,
    ) -> Result<Results, Failure> {
        let mut results = Results::default();
        let began = Instant::now();
        for round in 0..=rounds {
            self.tell_progress(round, rounds, began.elapsed());
            for place in 0..self.entrants.len() {
                let which = (place + round) % self.entrants.len();
                let (answers, used) = self.turn(which)?;
                if round > 0 {
                    results.add(&self.entrants[which].label, figures(&answers, &used)?);
                    results.others.push(used.others_share);
                }
            }
        }
        Ok(results)
    }

    fn turn(&mut self, which: usize) -> Result<(Vec<Value>, Used), Failure> {
        let servers = self.server_pids();
        let pids = |entrant: &Entrant| entrant.contestants.iter().map(Contestant::pid).collect::<Vec<_>>();
        let clients = pids(&self.entrants[which]);
        let others = self.entrants.iter().enumerate().filter(|(number, _)| *number != which);
        let idle: Vec<_> = others.flat_map(|(_, entrant)| pids(entrant)).collect();
        let watch = Watch::begin(&servers, &clients, &idle)?;
        let answers = std::thread::scope(|scope| {
            let contestants = self.entrants[which].contestants.iter_mut();
            let rounds: Vec<_> = contestants.map(|one| scope.spawn(|| one.round())).collect();
            let ended = |_| Failure::from("a round panicked");
            rounds.into_iter().map(|round| round.join().map_err(ended)?).collect::<Result<Vec<_>, _>>()
        })?;
        Ok((answers, watch.end(&servers, &clients, &idle)?))
    }

    fn server_pids(&self) -> Vec<u32> {
        self.servers.iter().map(|server| server.pid()).collect()
    }

    fn tell_progress(&self, round: usize, rounds: usize, elapsed: Duration) {
        let text = match round {
            0 => format!("{}: warm-up of {}", self.title, self.entrants.len()),
            _ => {
                let left = elapsed.mul_f64((rounds + 1 - round) as f64 / round as f64);
                format!("{}: round {round} of {rounds}, about {} s left", self.title, left.as_secs() + 1)
            }
        };
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

fn warn_if_unpinned(outcome: Result<(), Failure>) {
    static SAID: std::sync::Once = std::sync::Once::new();
    if let Err(error) = outcome {
        SAID.call_once(|| {
            let _ = writeln!(std::io::stderr(), "warning: {error}; the figures spread more");
        });
    }
}

/// The figures of all rounds, by entrant.
#[derive(Default)]
pub(crate) struct Results {
    /// In the order of their first turns.
    pub(crate) entrants: Vec<(String, BTreeMap<String, Vec<f64>>)>,
    /// What others used in each turn, as a share of a core.
    pub(crate) others: Vec<f64>,
}

impl Results {
    fn add(&mut self, label: &str, figures: Figures) {
        let found = self.entrants.iter().position(|(entrant, _)| entrant == label);
        let entrant = found.unwrap_or_else(|| {
            self.entrants.push((label.to_owned(), BTreeMap::new()));
            self.entrants.len() - 1
        });
        for (name, value) in figures {
            self.entrants[entrant].1.entry(name.to_owned()).or_default().push(value);
        }
    }

    fn values(&self, label: &str, figure: &str) -> Option<&[f64]> {
        let (_, figures) = self.entrants.iter().find(|(entrant, _)| entrant == label)?;
        figures.get(figure).map(Vec::as_slice)
    }

    /// A figure of one entrant over that of another, round by round.
    pub(crate) fn ratio(&self, figure: &str, one: &str, other: &str) -> Option<Spread> {
        let (one, other) = (self.values(one, figure)?, self.values(other, figure)?);
        Some(Spread::of(one.iter().zip(other).map(|(one, other)| one / other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_by_round() {
        let mut results = Results::default();
        for (ours, theirs) in [(1.0, 2.0), (30.0, 60.0), (5.0, 5.0)] {
            results.add("ours", vec![("p50_us", ours)]);
            results.add("theirs", vec![("p50_us", theirs)]);
        }
        let ratio = results.ratio("p50_us", "ours", "theirs").unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.5, 0.5, 1.0));
        assert!(results.ratio("p50_us", "ours", "nobody").is_none());
    }
}
