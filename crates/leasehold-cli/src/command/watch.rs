//! `leasehold watch`: one line for every change of a lock.

use std::time::{Duration, SystemTime};

use clap::Args;
use futures_util::StreamExt;
use leasehold::{
    Fence, Holder, Leasehold,
    engine::{Change, ChangeKind},
};
use serde::Serialize;

use super::Global;
use crate::{
    duration,
    exit::{Exit, Failure},
    output::{self, Envelope, Output, clean},
    signals::Signals,
    store::{self, Store},
    view::ModeView,
    waiting::ending,
};

/// Print a line for every change: acquired, handed-over, converted, released, expired, force-released, waiting
#[derive(Args)]
#[command(after_help = "\
Each line begins with the time at which the change was seen, in UTC, and ends with how the lock is
held: exclusive, shared, or a number of permits. Readers and holders of permits are acquired and
released one by one beside each other; \"handed-over\" is from a holder that the next one had to wait
for, and \"converted\" is a writer that became a reader, or a reader that became the writer. Of more
than 100 holders of one name the first are watched. The store is polled: a lock
held for less than the interval may not be seen, and one whose ttl is not longer than that may be
reported as expired although it was released. On redlock:// a force-release reads as released.
Exits with 0 on INT, on TERM, or when the reader of its output is gone.

Examples:
  leasehold watch
  leasehold watch deal: --interval 200ms --json")]
pub(super) struct Watch {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// How often to poll
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,

    /// Exit after this many lines
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Shortest interval: below it, polling would dominate the load of the store.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

#[derive(Serialize)]
struct Line {
    at: String,
    change: ChangeKind,
    name: String,
    holder: Option<Holder>,
    fence: Option<Fence>,
    waiting: u32,
    #[serde(flatten)]
    mode: Option<ModeView>,
}

impl Watch {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        if self.interval < INTERVAL_MIN {
            return Err(Failure::usage("the interval is too short", "give 10ms or more"));
        }
        let mut signals = Signals::listen(&crate::signals::FORWARDED)?;
        let leases = Store::choose(global)?.connect().await?;
        let out = global.output();
        let result = tokio::select! {
            biased;
            _ = ending(&mut signals) => Ok(()),
            () = output::unread() => Ok(()),
            result = self.follow(&leases, out) => result,
        };
        store::close(&leases).await;
        result.map(|()| Exit::OK)
    }

    async fn follow(&self, leases: &Leasehold, out: Output) -> Result<(), Failure> {
        let mut changes = leases.watch_prefix(&self.prefix, self.interval)?;
        if let Some(present) = changes.next().await.transpose()?
            && !out.json
        {
            output::say(&format!("watching {} locks; changes follow", present.len()));
        }
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut seen_at = SystemTime::UNIX_EPOCH;
        while left > 0
            && let Some(seen) = changes.next().await.transpose()?
        {
            // The clock may be set back; the order of the lines stays.
            seen_at = SystemTime::now().max(seen_at);
            for change in seen.into_iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
                output::print(&Line::new(change, seen_at).text(out)?)?;
                left -= 1;
            }
        }
        Ok(())
    }
}

impl Line {
    /// The holder is the present one, or the last one where there is none.
    fn new(change: Change, seen_at: SystemTime) -> Self {
        let held = change.now.or(change.before);
        Self {
            at: humantime::format_rfc3339_millis(seen_at).to_string(),
            change: change.kind,
            name: change.name.to_string(),
            fence: held.as_ref().map(|held| held.fence),
            mode: held.as_ref().map(|held| held.mode.into()),
            holder: held.map(|held| held.holder),
            waiting: change.waiting,
        }
    }

    fn text(self, out: Output) -> std::io::Result<String> {
        if out.json {
            return Envelope::new(self).line();
        }
        let holder = self.holder.as_ref().map_or_else(|| "-".into(), ToString::to_string);
        let fence = self.fence.map_or_else(|| "-".into(), |fence| fence.to_string());
        let mode = self.mode.map_or_else(|| "-".into(), |mode| mode.to_string());
        let (at, change, name, waiting) = (self.at, self.change, clean(&self.name), self.waiting);
        Ok(if out.terminal {
            format!(
                "{at}  {change:14}  {name}  {}  fence {fence}  {waiting} waiting  {mode}\n",
                clean(&holder)
            )
        } else {
            format!("{at}\t{change}\t{name}\t{}\t{fence}\t{waiting}\t{mode}\n", clean(&holder))
        })
    }
}
