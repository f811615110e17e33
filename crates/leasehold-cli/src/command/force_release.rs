//! `leasehold force-release`: releases a stuck lock.

use std::io::{self, BufRead, IsTerminal};

use clap::Args;
use leasehold::{Fence, Leasehold, Name, engine::Released};
use serde::Serialize;

use super::{Global, inspect};
use crate::{
    exit::{Exit, Failure},
    output::{self, Output},
    store::{self, Store},
};

/// Take a lock away from its holder, which may still be running
#[derive(Args)]
#[command(after_help = "\
The holder may still be running. It notices the loss at its next renewal, on Redis at once; until
then only a fence check in the resource stops it. `leasehold inspect` shows the fence. Of several
readers or holders of permits the one with that fence loses its part.

Exit codes: 0 released, or not held · 1 another holder has it, nothing was done

Examples:
  leasehold force-release nightly
  leasehold force-release nightly --fence 1753873200000001 --yes")]
pub(super) struct ForceRelease {
    /// The lock
    name: String,

    /// The fence of the holder to remove; required unless stdin is a terminal
    #[arg(long, value_name = "F")]
    fence: Option<Fence>,

    /// Do not ask for confirmation
    #[arg(long, requires = "fence")]
    yes: bool,
}

#[derive(Serialize)]
struct Done {
    name: String,
    fence: Fence,
    #[serde(flatten)]
    outcome: Released,
}

impl ForceRelease {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
        if self.fence.is_none() && !asks {
            return Err(Failure::usage(
                "--fence is required unless stdin is a terminal",
                format!("`leasehold inspect {}` shows the fence of the holder", self.name),
            ));
        }
        let leases = Store::choose(global)?.connect().await?;
        let result = self.release(&leases, asks && !self.yes, global.output()).await;
        store::close(&leases).await;
        result
    }

    async fn release(&self, leases: &Leasehold, ask: bool, out: Output) -> Result<Exit, Failure> {
        let name = Name::new(&self.name)?;
        let mut fence = self.fence;
        if ask {
            let found = leases.inspect(&name).await?;
            output::say(inspect::text(Output { json: false, terminal: true }, &found).trim_end());
            let Some(tenure) = found.held() else {
                output::say(&format!("\"{name}\" is not held"));
                return Ok(Exit::OK);
            };
            if fence.is_none() && found.holders.total > 1 {
                return Err(Failure::usage(
                    format!("{} hold \"{name}\" together", found.holders.total),
                    "say with --fence which of them shall lose it",
                ));
            }
            confirm(&name)?;
            fence = fence.or(Some(tenure.fence));
        }
        let fence = fence.ok_or_else(|| Failure::usage("--fence is missing", "see `leasehold inspect`"))?;
        let outcome = leases.force_release(&name, fence).await?;
        out.print(Done { name: name.to_string(), fence, outcome }, || text(&name, fence, outcome))?;
        Ok(if matches!(outcome, Released::Taken { .. }) { Exit::NO } else { Exit::OK })
    }
}

fn confirm(name: &Name) -> Result<(), Failure> {
    output::say("\nThe holder may still be running. Type the name of the lock to release it:");
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed)?;
    if typed.trim_end_matches(['\r', '\n']) == name.as_str() {
        return Ok(());
    }
    Err(Failure::usage("that is not the name; nothing was done", format!("type \"{name}\" to go on")))
}

/// What became of it, as a line.
pub(super) fn text(name: &Name, fence: Fence, outcome: Released) -> String {
    match outcome {
        Released::HandedOver { next: Some(next), .. } => {
            format!("released \"{name}\" from fence {fence}; handed over to fence {next}\n")
        }
        Released::HandedOver { next: None, .. } => {
            format!("released \"{name}\" from fence {fence}; the next waiter was woken\n")
        }
        Released::Taken { by: Some(by) } => {
            format!("nothing done: \"{name}\" is now held under fence {by}, not {fence}\n")
        }
        Released::Taken { by: None } => {
            format!("nothing done: \"{name}\" is now held by a client of another library\n")
        }
        Released::Expired => format!("nothing to do: nobody holds \"{name}\"\n"),
        _ => format!("released \"{name}\" from fence {fence}\n"),
    }
}
