//! `leasehold latch rearm`.

use std::num::NonZeroU32;

use clap::Args;
use leasehold::{Leasehold, engine::latches::Kind, latch::Rearmed};
use serde::Serialize;

use super::shows;
use crate::{
    exit::{Exit, Failure},
    output::{Output, clean},
    sharing,
};

/// Arm a latch or a barrier again, once it is open or broken
#[derive(Args)]
#[command(after_help = "\
It becomes a new generation: nothing of the old one counts in it. Refused if somebody else has armed
it since it was looked at.

Exit codes: 0 armed · 1 nothing done: it is not over, was armed by somebody else, or does not exist ·
69 store unreachable

Examples:
  leasehold latch rearm migration
  leasehold latch rearm migration --of 5")]
pub(in crate::command) struct Rearm {
    /// The latch, or the barrier
    name: String,

    /// How many parties it has from now on [default: as many as before]
    #[arg(long, value_name = "N", value_parser = sharing::number, allow_hyphen_values = true)]
    of: Option<NonZeroU32>,
}

#[derive(Serialize)]
struct RearmedView<'a> {
    name: &'a str,
    generation: u64,
    count: u32,
}

impl Rearm {
    pub(super) async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let name = &self.name;
        let nothing_done = |why: String| {
            let message = format!("\"{}\" was not armed: {why}", clean(name));
            Err(Failure::new(Exit::NO.0, "not_armed", message).hint(shows(name)))
        };
        let Some(seen) = leases.latch(name, 1).state().await? else {
            return nothing_done("there is none of that name; its first use arms it".into());
        };
        let count = self.of.map_or(seen.count, NonZeroU32::get);
        let rearmed = match seen.kind {
            Kind::Barrier => leases.barrier(name, count).rearm(seen.generation).await?,
            _ => leases.latch(name, count).rearm(seen.generation).await?,
        };
        match rearmed {
            Rearmed::Done { generation } => {
                out.print(RearmedView { name, generation, count }, || {
                    format!("{}\t{generation}\n", clean(name))
                })?;
                Ok(Exit::OK)
            }
            Rearmed::Armed { missing, .. } => nothing_done(format!("{missing} have not counted down yet")),
            _ => nothing_done("somebody else has armed it".into()),
        }
    }
}
