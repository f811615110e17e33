//! Contestants take turns; what is compared was measured in the same round.

mod pin;
mod progress;
mod results;
mod side;
mod watch;

use leasehold_testkit::RedisServer;
use serde_json::Value;

use self::{
    pin::{CLIENT_CORE, SERVER_CORE},
    progress::Progress,
};
pub(crate) use self::{
    results::{OURS, Results, is_limit},
    side::{RUNTIMES, Side},
    watch::{DISTURBED, Used, Watch, Watched},
};
use crate::{
    Failure,
    contestant::{Contestant, Started},
    report::Figures,
};

/// The processes of one side, or why there are none.
pub(crate) type Processes = Result<Vec<Contestant>, String>;

/// Starts processes of one side, pinned.
pub(crate) fn start(
    side: &Side<'_>,
    processes: usize,
    workload: &str,
    keys: &[(&str, &str)],
) -> Result<Processes, Failure> {
    let mut contestants = Vec::new();
    for _ in 0..processes {
        let start = || Contestant::start(side.command(workload, keys), &side.label);
        match pin::from_the_start(CLIENT_CORE, start) {
            Ok(Started::Ready(contestant)) => contestants.push(contestant),
            Ok(Started::Unsupported(why)) => return Ok(Err(why)),
            Err(error) if side.is_peer() => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(contestants))
}

pub(crate) fn pin_servers(servers: &[&RedisServer]) {
    servers.iter().for_each(|server| pin::to_core(server.pid(), SERVER_CORE));
}

/// One round of all processes of a side at the same time.
pub(crate) fn round_of(contestants: &mut [Contestant]) -> Result<Vec<Value>, Failure> {
    std::thread::scope(|scope| {
        let rounds: Vec<_> = contestants.iter_mut().map(|one| scope.spawn(|| one.round())).collect();
        let answers = rounds.into_iter().map(|round| round.join().map_err(|_| "a round panicked")?);
        answers.collect()
    })
}

/// Sides that are connected all the time and take turns on the same servers.
pub(crate) struct Contest<'a> {
    servers: &'a [&'a RedisServer],
    entrants: Vec<(Side<'a>, Vec<Contestant>)>,
    results: Results,
    progress: Progress,
}

impl<'a> Contest<'a> {
    pub(crate) fn new(title: &str, servers: &'a [&'a RedisServer]) -> Self {
        pin_servers(servers);
        Self { servers, entrants: Vec::new(), results: Results::default(), progress: Progress::new(title) }
    }

    /// Starts one side; one that does not support the workload is noted and left out.
    pub(crate) fn enter(
        &mut self,
        side: Side<'a>,
        processes: usize,
        workload: &str,
        keys: &[(&str, &str)],
    ) -> Result<(), Failure> {
        self.progress.says(&format!("{} starts", side.label));
        self.results.enter(&side.label);
        match start(&side, processes, workload, keys)? {
            Ok(contestants) => self.entrants.push((side, contestants)),
            Err(why) => self.results.leave(&side.label, &why),
        }
        Ok(())
    }

    /// One turn of every side in each round, in an order that changes; the first round is the warm-up.
    pub(crate) fn run(
        mut self,
        rounds: usize,
        figures: impl Fn(&[Value], &Used) -> Result<Figures, Failure>,
    ) -> Result<Results, Failure> {
        for round in 0..=rounds {
            self.progress.round(round, rounds);
            let order = rotated(self.entrants.iter().map(|(side, _)| side), round);
            for label in order {
                match self.turn(&label).and_then(|(answers, used)| Ok((figures(&answers, &used)?, used))) {
                    Ok((figures, used)) if round > 0 => {
                        self.results.add(&label, figures);
                        self.results.others.push(used.others_share);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        let which = self.place_of(&label);
                        if !self.entrants[which].0.is_peer() {
                            return Err(error);
                        }
                        self.entrants.remove(which);
                        self.results.leave(&label, &error.to_string());
                    }
                }
            }
        }
        for (side, contestants) in self.entrants {
            for contestant in contestants {
                if let Err(error) = contestant.quit() {
                    self.results.notes.push(format!("{}: {error}", side.label));
                }
            }
        }
        Ok(self.results)
    }

    fn place_of(&self, label: &str) -> usize {
        self.entrants.iter().position(|(side, _)| side.label == label).expect("it takes part")
    }

    fn turn(&mut self, label: &str) -> Result<(Vec<Value>, Used), Failure> {
        let which = self.place_of(label);
        let pids = |contestants: &[Contestant]| contestants.iter().map(Contestant::pid).collect::<Vec<_>>();
        let clients = pids(&self.entrants[which].1);
        let others = self.entrants.iter().filter(|(side, _)| side.label != label);
        let idle = others.flat_map(|(_, contestants)| pids(contestants)).collect();
        let watch = Watch::begin(Watched { servers: self.servers, clients, idle })?;
        let answers = round_of(&mut self.entrants[which].1)?;
        Ok((answers, watch.end()?))
    }
}

/// Who has a turn when: each round begins with another side.
fn rotated<'s>(sides: impl Iterator<Item = &'s Side<'s>>, round: usize) -> Vec<String> {
    let mut labels: Vec<_> = sides.map(|side| side.label.clone()).collect();
    let first = round % labels.len().max(1);
    labels.rotate_left(first);
    labels
}

/// What a turn of its own gave, with what others used of a core meanwhile; or why a side takes no part.
pub(crate) type Turn = Result<(Figures, f64), String>;

/// Sides that have a turn each in every round, with everything started afresh for it: what they leave behind, or do in
/// the background, must not reach the others.
pub(crate) fn one_by_one(
    title: &str,
    mut sides: Vec<Side<'_>>,
    rounds: usize,
    turn: impl Fn(&Side<'_>) -> Result<Turn, Failure>,
) -> Result<Results, Failure> {
    let (mut results, mut progress) = (Results::default(), Progress::new(title));
    sides.iter().for_each(|side| results.enter(&side.label));
    for round in 1..=rounds {
        progress.round(round, rounds);
        for label in rotated(sides.iter(), round) {
            let side = sides.iter().find(|side| side.label == label).expect("it takes part");
            progress.says(&format!("{label}'s turn"));
            let why = match turn(side) {
                Ok(Ok((figures, others_share))) => {
                    results.add(&label, figures);
                    results.others.push(others_share);
                    continue;
                }
                Ok(Err(why)) => why,
                Err(error) if side.is_peer() => error.to_string(),
                Err(error) => return Err(error),
            };
            results.leave(&label, &why);
            sides.retain(|side| side.label != label);
        }
    }
    Ok(results)
}
