//! What is measured: one file for each workload.

mod cycle;

use std::process::Command;

use crate::{Failure, section::Section};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Short rounds and few of them: shows that everything runs, the numbers mean little
    #[arg(long)]
    quick: bool,
    /// Measure only these
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Workload>,
}

/// The workloads, in the order of the report.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Acquire and release by one task
    Cycle,
    /// Acquire and release by 64 and by 512 tasks
    Throughput,
}

impl Workload {
    fn measure(self, scale: &Scale) -> Result<Vec<Section>, Failure> {
        match self {
            Self::Cycle => Ok(vec![cycle::latency(scale)?]),
            Self::Throughput => Ok(vec![cycle::throughput(scale, 64)?, cycle::throughput(scale, 512)?]),
        }
    }
}

/// How long it all takes.
pub(crate) struct Scale {
    quick: bool,
}

impl Scale {
    pub(crate) fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

/// Measures what was chosen; returns the text to print.
pub(crate) fn run(options: &Options) -> Result<String, Failure> {
    use clap::ValueEnum;
    let scale = Scale { quick: options.quick };
    let mut sections = Vec::new();
    for workload in Workload::value_variants() {
        if options.only.is_empty() || options.only.contains(workload) {
            sections.extend(workload.measure(&scale)?);
        }
    }
    Ok(if options.json {
        crate::section::json(&sections)
    } else {
        sections.iter().map(Section::table).collect::<Vec<_>>().join("\n")
    })
}

/// This program as a contestant.
fn contestant(workload: &str, keys: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program knows its path"));
    command.args(["contestant", workload]);
    command.args(keys.iter().map(|(key, value)| format!("{key}={value}")));
    command
}
