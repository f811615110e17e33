//! `leasehold leader`: who leads an election, now or as it changes.

use std::time::{Duration, SystemTime};

use clap::Args;
use leasehold::{
    Fence, Holder,
    election::{Leaders, Observed},
};
use serde::Serialize;

use super::Global;
use crate::{
    duration,
    exit::{Exit, Failure},
    hint::word,
    output::{self, Envelope, Output, clean, spoken},
    signals::{FORWARDED, Signals},
    store::{self, Store},
    waiting::ending,
};

/// Show who leads an election, or print a line for every change
#[derive(Args)]
#[command(after_help = "\
The state is led, vacant or unknown. It is unknown when the store cannot be asked, when it answers
from old data, and when the name is in use as something else than an election. \"since\" is when the
leader began to campaign, by its own clock. `leasehold inspect NAME` also shows who waits to lead.

With --watch the first line is the present. Each line has the time at which the change was seen, in
UTC, the state, the leader and its fence. The store is polled: a leader for less than the interval
may not be seen. Fences of leaders only grow. Exits with 0 on INT, on TERM, or when the reader of
its output is gone.

Exit codes: 0 led, or the end of --watch · 1 vacant · 2 unknown · 64 wrong usage · 69 store unreachable

Examples:
  leasehold leader scheduler
  leasehold leader scheduler --json
  leasehold leader scheduler --watch --interval 200ms")]
pub(super) struct Leader {
    /// The election
    name: String,

    /// Print a line for every change, the present first
    #[arg(long)]
    watch: bool,

    /// How often to poll, from 10ms to 1h [default: 1s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, requires = "watch")]
    interval: Option<Duration>,

    /// Exit after this many lines
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
}

/// An election as it was seen.
#[derive(Serialize)]
struct Seen<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    name: &'a str,
    state: &'static str,
    holder: Option<Holder>,
    fence: Option<Fence>,
}

impl Leader {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let mut signals = Signals::listen(&FORWARDED)?;
        let leases = Store::choose(global)?.connect().await?;
        let election = leases.election(&self.name);
        let election = self.interval.into_iter().fold(election, leasehold::Election::poll_every);
        let out = global.output();
        let result = tokio::select! {
            biased;
            signal = ending(&mut signals) => Ok(if self.watch { Exit::OK } else { Exit::by_signal(signal.as_raw()) }),
            () = output::unread(), if self.watch => Ok(Exit::OK),
            result = async {
                let leaders = election.observe()?;
                if self.watch { self.follow(leaders, out).await } else { self.show(leaders, out).await }
            } => result,
        };
        store::close(&leases).await;
        result
    }

    /// The present.
    async fn show(&self, mut leaders: Leaders, out: Output) -> Result<Exit, Failure> {
        let seen = Seen::new(&self.name, leaders.next().await, None);
        let exit = match seen.state {
            LED => Exit::OK,
            VACANT => Exit::NO,
            _ => Exit::UNKNOWN,
        };
        let facts = seen.facts();
        out.print(seen, || out.facts(&facts))?;
        if exit == Exit::UNKNOWN && !out.json {
            output::say(&format!(
                "hint: `leasehold inspect {}` shows how the name is used",
                word(&self.name)
            ));
        }
        Ok(exit)
    }

    /// The present, then every change.
    async fn follow(&self, mut leaders: Leaders, out: Output) -> Result<Exit, Failure> {
        let mut seen_at = SystemTime::UNIX_EPOCH;
        for _ in 0..self.count.unwrap_or(u64::MAX) {
            let Some(observed) = leaders.next().await else { break };
            // The clock may be set back; the order of the lines stays.
            seen_at = SystemTime::now().max(seen_at);
            let at = humantime::format_rfc3339_millis(seen_at).to_string();
            output::print(&Seen::new(&self.name, Some(observed), Some(at)).line(out)?)?;
        }
        Ok(Exit::OK)
    }
}

const LED: &str = "led";
const VACANT: &str = "vacant";
const UNKNOWN: &str = "unknown";

impl<'a> Seen<'a> {
    fn new(name: &'a str, observed: Option<Observed>, at: Option<String>) -> Self {
        let (state, leader) = match observed {
            Some(Observed::Leader { holder, fence, .. }) => (LED, Some((holder, fence))),
            Some(Observed::Vacant { .. }) => (VACANT, None),
            _ => (UNKNOWN, None),
        };
        let (holder, fence) = leader.unzip();
        Self { at, name, state, holder, fence }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let fact = |what: &str, value: String| (what.to_owned(), value);
        let mut facts = vec![fact("name", self.name.to_owned()), fact("state", self.state.to_owned())];
        if let (Some(holder), Some(fence)) = (&self.holder, self.fence) {
            facts.push(fact("leader", holder.to_string()));
            facts.extend(holder.age().map(|age| fact("since", format!("{} ago", spoken(age)))));
            facts.push(fact("fence", fence.to_string()));
        }
        facts
    }

    fn line(self, out: Output) -> std::io::Result<String> {
        if out.json {
            return Envelope::new(self).line();
        }
        let holder = self.holder.as_ref().map_or_else(|| "-".into(), |holder| clean(&holder.to_string()));
        let fence = self.fence.map_or_else(|| "-".into(), |fence| fence.to_string());
        let (at, state) = (self.at.unwrap_or_default(), self.state);
        Ok(if out.terminal {
            format!("{at}  {state:7}  {holder}  fence {fence}\n")
        } else {
            format!("{at}\t{state}\t{holder}\t{fence}\n")
        })
    }
}
