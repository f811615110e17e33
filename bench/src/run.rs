//! A run: the chosen workloads, one after the other, and their report.

use std::{io::Write, path::PathBuf};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::{
    Failure,
    docs::Page,
    machine,
    peers::{self, Program},
    report::numbers,
    section::Section,
    workloads::{Setup, Workload},
};

/// The folder of the documentation: `cargo xtask` runs in the root of the workspace.
const DOCS: &str = "docs";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Short rounds and few of them: shows that everything runs, the numbers mean little
    #[arg(long)]
    quick: bool,
    /// Also measure other libraries, each in a program in its own language; those that cannot be built are skipped
    #[arg(long)]
    peers: bool,
    /// Write docs/benchmarks.md and its charts, too, or into another folder
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = DOCS)]
    write: Option<PathBuf>,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1..)]
    only: Vec<Workload>,
}

/// Measures what was chosen; returns the text to print.
pub(crate) fn run(options: &Options) -> Result<String, Failure> {
    let (peers, skipped) = if options.peers { prepare_peers()? } else { Default::default() };
    let setup = Setup { quick: options.quick, peers };
    let is_chosen = |workload: &&Workload| options.only.is_empty() || options.only.contains(workload);
    let chosen: Vec<_> = Workload::value_variants().iter().filter(is_chosen).collect();
    let mut sections = Vec::new();
    for (number, workload) in chosen.iter().enumerate() {
        let name = workload.to_possible_value().expect("none is hidden");
        let _ =
            writeln!(std::io::stderr(), "workload {} of {}: {}", number + 1, chosen.len(), name.get_name());
        sections.extend(workload.measure(&setup)?);
    }
    let facts = machine::facts(&setup.peers)?;
    if let Some(folder) = &options.write {
        let command = std::iter::once("cargo xtask bench".to_owned()).chain(std::env::args().skip(1));
        let command = command.collect::<Vec<_>>().join(" ");
        let (sections, skipped, facts) = (&sections, &skipped, &facts);
        Page { sections, skipped, facts, command, is_quick: options.quick }.write(folder)?;
    }
    Ok(if options.json {
        json(&sections, &skipped, &facts)
    } else {
        sections.iter().map(Section::text).collect::<Vec<_>>().join("\n")
    })
}

/// Programs that can be started, and why others cannot.
fn prepare_peers() -> Result<(Vec<Program>, Vec<String>), Failure> {
    let (mut programs, mut skipped) = (Vec::new(), Vec::new());
    for peer in peers::all() {
        let _ = writeln!(std::io::stderr(), "{} is built", peer.name);
        match peers::prepare(peer, &peers::folder()?) {
            Ok(program) => programs.push(program),
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "{} is skipped: {why}", peer.name);
                skipped.push(format!("{}: {why}", peer.name));
            }
        }
    }
    Ok((programs, skipped))
}

/// The results are at the top, by key.
fn json(sections: &[Section], skipped: &[String], facts: &[(String, String)]) -> String {
    let mut object = Map::new();
    object.insert("schema".into(), json!({ "version": "v2" }));
    object.insert("skipped".into(), json!(skipped));
    let facts = facts.iter().map(|(name, value)| (name.clone(), json!(value)));
    object.insert("machine".into(), Value::Object(facts.collect()));
    for outcome in sections.iter().flat_map(|section| &section.outcomes) {
        let mut result = numbers(outcome.spread);
        if let Some(target) = outcome.target.words() {
            result.insert("target".into(), json!(target));
            result.insert("verdict".into(), json!(outcome.verdict()));
        }
        object.insert(outcome.key.clone(), Value::Object(result));
    }
    let workloads = sections.iter().map(|section| (section.key.clone(), section.json()));
    object.insert("workloads".into(), Value::Object(workloads.collect()));
    format!("{}\n", Value::Object(object))
}
