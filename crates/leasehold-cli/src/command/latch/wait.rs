//! `leasehold latch wait`.

use std::time::Duration;

use clap::Args;
use leasehold::{Leasehold, config::WAIT_MAX, latch::Awaited};

use super::{StandingView, Which, broken, shows};
use crate::{
    duration,
    exit::{Exit, Failure},
    output::{Output, clean},
    signals::{FORWARDED, Signals},
    waiting,
};

/// Wait until a latch is open
#[derive(Args)]
#[command(after_help = "\
Prints nothing without --json.

Exit codes: 0 open · 1 not open in time · 69 store unreachable · 80 the name is a barrier · 82 the
latch is armed for another number · 83 broken · 128+N signal N

Examples:
  leasehold latch wait migration --of 3 && ./switch-over
  leasehold latch wait migration --of 3 -w 5m")]
pub(in crate::command) struct Wait {
    #[command(flatten)]
    which: Which,

    /// Wait at most this long, in seconds if there is no unit; 0 means do not wait [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse_wait, allow_hyphen_values = true)]
    wait: Option<Duration>,
}

impl Wait {
    pub(super) async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let Which { name, of } = &self.which;
        let mut signals = Signals::listen(&FORWARDED)?;
        let latch = leases.latch(name, of.get());
        let awaited = tokio::select! {
            biased;
            signal = waiting::ending(&mut signals) => return Ok(Exit::by_signal(signal.as_raw())),
            awaited = latch.wait(self.wait.unwrap_or(WAIT_MAX)) => awaited?,
        };
        match awaited {
            Awaited::Opened { generation } => {
                out.print(StandingView::open(name, generation), String::new)?;
                Ok(Exit::OK)
            }
            Awaited::Broken { who, .. } => Err(broken(name, who.as_ref())),
            Awaited::NotYet { missing, .. } => {
                let why = format!("\"{}\" is not open: {missing} of {of} have not counted down", clean(name));
                Err(Failure::new(Exit::NO.0, "timed_out", why).hint(shows(name)))
            }
            other => Err(Failure::new(Exit::NO.0, "timed_out", format!("{other:?}"))),
        }
    }
}
