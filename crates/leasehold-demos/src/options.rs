//! How a demo is run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::stage::Topology;

/// How a demo is run.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Options {
    /// Where the locks are; by default in a file that only this demo uses.
    #[arg(skip)]
    pub store: Option<String>,
    /// Print the verdict as JSON.
    #[arg(skip)]
    pub json: bool,
    /// Switch coordination off, and see what breaks
    #[arg(long)]
    pub r#unsafe: bool,
    /// Run it with coordination and then without, and compare the two
    #[arg(long, conflicts_with = "unsafe")]
    pub both: bool,
    /// Amount of work, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub scale: u32,
    /// Number of workers to kill and restart before the work is done
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub kills: u32,
    /// Make the choice of victims repeatable
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Keep the database and the logs of all processes in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Variant of the demo; the page of the demo lists them
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Start servers of this kind for the run, and kill some of them on stage
    #[arg(long, value_enum, value_name = "KIND")]
    pub topology: Option<Topology>,
    /// Policy file to use instead of the demo's own
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: None,
            json: false,
            r#unsafe: false,
            both: false,
            scale: 100,
            kills: 12,
            seed: None,
            keep: None,
            variant: None,
            topology: None,
            config: None,
        }
    }
}

impl Options {
    /// An amount of work, scaled.
    pub(crate) fn scaled(&self, amount: u64) -> u64 {
        (amount * u64::from(self.scale) / 100).max(1)
    }

    /// The command that runs the same again, but for its seed and `more`.
    pub(crate) fn command(&self, demo: &str, more: &str) -> String {
        let defaults = Self::default();
        let mut words = vec![format!("leasehold demo {demo}")];
        words.extend(self.variant.iter().map(|variant| format!("--variant {variant}")));
        words.extend(self.topology.map(|topology| format!("--topology {}", topology.word())));
        words.extend((self.scale != defaults.scale).then(|| format!("--scale {}", self.scale)));
        words.extend((self.kills != defaults.kills).then(|| format!("--kills {}", self.kills)));
        words.push(more.into());
        words.join(" ")
    }
}
