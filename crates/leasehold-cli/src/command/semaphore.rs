//! `leasehold semaphore`: how many permits there are.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use leasehold::Leasehold;
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::clean,
    sharing,
    store::{self, Store},
};

/// Change how many permits a semaphore has
#[derive(Subcommand)]
#[command(after_help = "\
A semaphore is made by its first use: `leasehold run --of M NAME -- CMD`, or a policy with
kind = \"permits\". `leasehold inspect NAME` shows how many permits are in use, by whom, and who
waits for some.

Example:
  leasehold semaphore set-limit gpu 8")]
pub(super) enum Semaphore {
    SetLimit(SetLimit),
}

/// Change how many permits a semaphore has, also while they are in use
#[derive(Args)]
#[command(after_help = "\
The store keeps the number, so that two deployments never admit more than either of them says: a
program that names another one is refused (exit code 81). After this command programs may name the
new number or that of the semaphore's first use. A lower number takes nothing away: nobody is
admitted until enough permits came back. A higher one admits those who wait. The number of a
semaphore that nobody has used yet is set too.

Exit codes: 0 set · 64 not a number from 1 · 70 this store has no semaphores · 80 the name is in use as a lock

Examples:
  leasehold semaphore set-limit gpu 8
  leasehold semaphore set-limit gpu 8 --json")]
pub(super) struct SetLimit {
    /// The semaphore
    name: String,

    /// How many permits it has from now on
    #[arg(value_name = "N", value_parser = sharing::number, allow_hyphen_values = true)]
    limit: NonZeroU32,
}

#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    limit: u32,
    /// Unknown if nobody has used it lately.
    limit_before: Option<u32>,
    /// When it was changed: those who waited may have some by now.
    permits_used: u32,
}

impl Semaphore {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let Self::SetLimit(set) = self;
        let leases = Store::choose(global)?.connect().await?;
        let changed = set.send(&leases).await;
        store::close(&leases).await;
        let changed = changed?;
        let text = changed.text();
        global.output().print(changed, || text)?;
        Ok(Exit::OK)
    }
}

impl SetLimit {
    async fn send(self, leases: &Leasehold) -> Result<Changed, Failure> {
        let (name, limit) = (self.name, self.limit.get());
        let before = leases.inspect(&name).await?;
        leases.set_limit(&name, limit).await?;
        let (limit_before, used) = (before.limit.map(u32::from), before.permits_used());
        Ok(Changed { name, limit, limit_before, permits_used: used.unwrap_or(0) })
    }
}

impl Changed {
    fn text(&self) -> String {
        let Self { name, limit, limit_before, permits_used: used } = self;
        let before = limit_before.map_or_else(String::new, |before| format!(", instead of {before}"));
        let draining = if used > limit {
            format!("; {used} are in use, so nobody is admitted until {} came back", used - limit + 1)
        } else {
            format!("; {used} in use")
        };
        format!("\"{}\" has {limit} permits{before}{draining}\n", clean(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numbers_are_told_and_what_has_to_come_back_first() {
        let text = |limit_before, permits_used| {
            Changed { name: "gpu".into(), limit: 3, limit_before, permits_used }.text()
        };
        assert_eq!(text(None, 0), "\"gpu\" has 3 permits; 0 in use\n");
        assert_eq!(text(Some(5), 3), "\"gpu\" has 3 permits, instead of 5; 3 in use\n");
        let draining =
            "\"gpu\" has 3 permits, instead of 5; 5 are in use, so nobody is admitted until 3 came back\n";
        assert_eq!(text(Some(5), 5), draining);
    }
}
