//! `leasehold top`: all locks of a store, live on a terminal.

mod cursor;
mod dialog;
mod model;
mod poll;
mod rows;
#[cfg(test)]
mod samples;
mod screen;
mod seen;
mod session;
mod view;

use std::{
    env,
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;

use super::Global;
use crate::{
    duration,
    exit::{Exit, Failure},
    output,
    store::{self, Store},
};
use session::Session;

/// Show all locks live on a terminal: who holds what, who waits, and for how long
#[derive(Args)]
#[command(after_help = "\
Keys: arrows or j k and PgUp PgDn move, Enter shows one lock with its holders and its queue, Esc goes
back, / filters, s sorts, p pauses, 1 2 3 4 turn to locks, hot names, who waited for whom and nodes,
f takes a lock from its holder, ? lists all keys, q quits.

The store is polled, one poll at a time, and never more than a fifth of the time: a poll that takes
longer than a quarter of the interval makes the next one later. At most 10,000 names are listed; give
a prefix where there are more. The store keeps no history, so ages, renewals, hot names and who waited
for whom are what was seen since the start. While the store does not answer, the last picture stays
and the first line says since when.

f asks for the name of the lock and a reason, and takes it only from the holder that was seen: it
refuses when that has changed, as `leasehold force-release` does. What was done is printed with its
reason to stderr at the end.

Exits with 0 on q, INT and TERM. NO_COLOR is respected.

Examples:
  leasehold top
  leasehold top --prefix deal: --interval 500ms
  leasehold top --read-only --store redis://db1")]
pub(super) struct Top {
    /// Only names that begin with this
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,

    /// How often to poll
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration::parse)]
    interval: Duration,

    /// Without the key that takes a lock from its holder
    #[arg(long)]
    read_only: bool,
}

const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

impl Top {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        self.check(global)?;
        let leases = Store::choose(global)?.connect().await?;
        let about = model::About {
            store: leases.store().to_owned(),
            prefix: self.prefix,
            capabilities: leases.capabilities().clone(),
            read_only: self.read_only,
        };
        let (ended, done) = Session::new(&leases, about, self.interval).run().await;
        done.iter().for_each(|line| output::say(line));
        store::close(&leases).await;
        ended?;
        Ok(Exit::OK)
    }

    fn check(&self, global: &Global) -> Result<(), Failure> {
        let other = "`leasehold ls` lists the locks, `leasehold watch --json` reports every change";
        if global.json {
            return Err(Failure::usage("top is for people and prints no JSON", other));
        }
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Failure::usage("top needs a terminal for its input and its output", other));
        }
        if env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb") {
            return Err(Failure::usage("top cannot use this terminal: TERM is unset or dumb", other));
        }
        if global.verbose > 0 && io::stderr().is_terminal() {
            return Err(Failure::usage(
                "the log would overwrite the picture",
                "send it to a file: 2> top.log",
            ));
        }
        if !INTERVALS.contains(&self.interval) {
            return Err(Failure::usage("the interval is out of range", "give 100ms to 1h"));
        }
        Ok(())
    }
}
