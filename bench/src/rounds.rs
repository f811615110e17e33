//! Rounds: everything that was chosen is measured once in each, in an order that changes from round to round.

use std::io::Write;

use clap::ValueEnum;

use crate::{
    Failure,
    report::{Figures, Ratio, Report, Round},
    section::Section,
    workloads::Setup,
};

#[derive(clap::Args, Clone)]
pub(crate) struct Options<M: Measurement> {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A few seconds of everything: shows that it runs, the numbers mean little
    #[arg(long)]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<M>,
}

/// The variants that take turns in a round.
pub(crate) trait Measurement: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    /// What the measurements share.
    type Bench: Send + Sync + 'static;

    fn start(quick: bool) -> Result<Self::Bench, Failure>;

    fn run(self, bench: &Self::Bench, turn: usize) -> impl Future<Output = Result<Figures, Failure>> + Send;

    fn ratios(self) -> Vec<Ratio>;
}

/// Runs all rounds; returns the text to print.
pub(crate) fn run<M: Measurement>(options: &Options<M>) -> Result<String, Failure> {
    let is_chosen = |one: &M| options.only.is_empty() || options.only.contains(one);
    let chosen: Vec<M> = M::value_variants().iter().copied().filter(is_chosen).collect();
    let rounds = measure(&chosen, options.quick, options.rounds as usize)?;
    let ratios: Vec<_> = chosen.into_iter().flat_map(Measurement::ratios).collect();
    let report = Report { rounds: &rounds, ratios: &ratios };
    Ok(if options.json { report.json() } else { report.table() })
}

/// The same measurements as a part of a larger report.
pub(crate) fn section<M: Measurement>(
    key: &str,
    title: &str,
    setup: &Setup,
    chosen: &[M],
) -> Result<Section, Failure> {
    let _ = writeln!(std::io::stderr(), "{title}");
    let rounds = measure(chosen, setup.quick, setup.count(5, 1))?;
    let ratios: Vec<_> = chosen.iter().flat_map(|one| one.ratios()).collect();
    Ok(Section::inside(key, title, &rounds, &ratios))
}

fn measure<M: Measurement>(chosen: &[M], quick: bool, number: usize) -> Result<Vec<Round>, Failure> {
    let (bench, order) = (M::start(quick)?, chosen.to_vec());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // On a worker, as an application's tasks are; the main thread would add a hop to everything.
    runtime.block_on(runtime.spawn(async move {
        let mut rounds = Vec::new();
        for turn in 0..number {
            let _ = writeln!(std::io::stderr(), "round {} of {number}", turn + 1);
            let mut round = Round::default();
            for place in 0..order.len() {
                let measurement = order[(place + turn) % order.len()];
                round.0.extend(measurement.run(&bench, turn).await?);
            }
            rounds.push(round);
        }
        Ok(rounds)
    }))?
}
