//! `leasehold latch`: to wait until others have done their part.

mod count_down;
mod rearm;
mod run;
mod show;
mod wait;

use std::{num::NonZeroU32, time::Duration};

use clap::{Args, Subcommand};
use leasehold::{Holder, Leasehold, Participant, latch::Join};
use serde::Serialize;

use super::Global;
use crate::{
    duration,
    exit::{self, Exit, Failure},
    hint::word,
    output::clean,
    sharing,
    store::{self, Store},
};

/// Wait until others have done their part, or do a part
#[derive(Subcommand)]
#[command(after_help = "\
A latch opens when as many participants have counted down as it has parties (--of), and stays open
until it is armed again. A participant that dies, fails or is cut off breaks it: everybody who
waits is told who it was. A latch is armed by its first use and forgotten two days after its last.

Example:
  leasehold latch run migration --of 2 -- ./migrate shard-a    on one host
  leasehold latch run migration --of 2 -- ./migrate shard-b    on another
  leasehold latch wait migration --of 2 -w 1h && ./switch-over")]
pub(super) enum Latch {
    Wait(wait::Wait),
    CountDown(count_down::CountDown),
    Run(run::Run),
    Show(show::Show),
    Rearm(rearm::Rearm),
}

impl Latch {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let out = global.output();
        let result = match self {
            Self::Wait(wait) => wait.execute(&leases, out).await,
            Self::CountDown(count) => count.execute(&leases, out).await,
            Self::Run(run) => run.execute(&leases).await,
            Self::Show(show) => show.execute(&leases, out).await,
            Self::Rearm(rearm) => rearm.execute(&leases, out).await,
        };
        store::close(&leases).await;
        result
    }
}

/// Which latch.
#[derive(Args)]
struct Which {
    /// The latch
    name: String,

    /// How many participants have to count down
    #[arg(long, value_name = "N", value_parser = sharing::number, allow_hyphen_values = true)]
    of: NonZeroU32,
}

/// A part of a latch.
#[derive(Args)]
struct Part {
    #[command(flatten)]
    which: Which,

    /// How long a participant may be silent before it counts as dead [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Description of the participant, shown by show and to those who wait if it breaks the latch
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

impl Part {
    /// Takes part; `None` if the latch is open already.
    async fn join(&self, leases: &Leasehold, label: &str) -> Result<Option<Participant>, Failure> {
        let Which { name, of } = &self.which;
        let latch = leases.latch(name, of.get()).label(self.label.as_deref().unwrap_or(label));
        let latch = self.ttl.into_iter().fold(latch, leasehold::Latch::ttl);
        match latch.join().await? {
            Join::Joined(participant) => Ok(Some(participant)),
            Join::Opened { .. } => Ok(None),
            Join::Broken { who, .. } => Err(broken(name, who.as_ref())),
            _ => Err(Failure::new(
                Exit::NO.0,
                "full",
                format!("{of} take part in \"{}\" already", clean(name)),
            )
            .hint(shows(name))),
        }
    }
}

/// How a latch stands after a command.
#[derive(Serialize)]
struct StandingView<'a> {
    name: &'a str,
    state: &'static str,
    generation: u64,
    missing: u32,
}

impl<'a> StandingView<'a> {
    fn open(name: &'a str, generation: u64) -> Self {
        Self { name, state: "open", generation, missing: 0 }
    }
}

fn shows(name: &str) -> String {
    format!("`leasehold latch show {}` shows who takes part", word(name))
}

/// A latch that never opens.
fn broken(name: &str, who: Option<&Holder>) -> Failure {
    let who = who.map_or_else(
        || "the store has forgotten this generation of it".to_owned(),
        |who| format!("{who} did not count down"),
    );
    Failure::new(exit::BROKEN, "broken", clean(&format!("\"{name}\" is broken: {who}")))
        .hint(format!("find out why; `leasehold latch rearm {}` arms it again for everybody", word(name)))
}
