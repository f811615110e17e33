//! `leasehold latch count-down`.

use clap::Args;
use leasehold::{Leasehold, latch::CountedDown};

use super::{Part, StandingView, Which, broken};
use crate::{
    exit::{Exit, Failure},
    output::{Output, clean},
};

/// Count down: one part is done
///
/// Every call is a participant of its own. `latch run` counts down for a command, and breaks the latch if it fails.
#[derive(Args)]
#[command(after_help = "\
Prints nothing without --json. A latch that is open already is a success, too.

Exit codes: 0 counted, or open · 1 as many take part as there are parties · 69 store unreachable ·
80 the name is a barrier · 82 the latch is armed for another number · 83 broken

Examples:
  ./migrate shard-a && leasehold latch count-down migration --of 3
  leasehold latch count-down migration --of 3 --json")]
pub(in crate::command) struct CountDown {
    #[command(flatten)]
    part: Part,
}

impl CountDown {
    pub(super) async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let Which { name, of } = &self.part.which;
        let counted = match self.part.join(leases, "").await? {
            Some(participant) => {
                let counted = participant.count_down().await?;
                Some((counted, participant.generation()))
            }
            None => None,
        };
        let view = match counted {
            None => {
                let state = leases.latch(name, of.get()).state().await?;
                StandingView::open(name, state.map_or(0, |state| state.generation))
            }
            Some((CountedDown::Opened { generation }, _)) => StandingView::open(name, generation),
            Some((CountedDown::Counted { missing } | CountedDown::Again { missing }, generation)) => {
                StandingView { name, state: "armed", generation, missing }
            }
            Some((CountedDown::Broken { who, .. }, _)) => return Err(broken(name, who.as_ref())),
            Some(_) => return Err(forgotten(name)),
        };
        out.print(view, String::new)?;
        Ok(Exit::OK)
    }
}

/// The store does not know a participant that has joined.
pub(super) fn forgotten(name: &str) -> Failure {
    let why = format!("the store has forgotten that we take part in \"{}\"", clean(name));
    Failure::new(Exit::NO.0, "stranger", why).hint("it has lost data; count down once more")
}
