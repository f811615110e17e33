//! `leasehold stats`: statistics of the whole store.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use clap::Args;
use leasehold::{Holder, engine::Inspection};
use serde::Serialize;

use super::{Global, ls};
use crate::{
    exit::{Exit, Failure},
    output::{self, spoken},
    store::{self, Store},
    view::millis,
};

/// Count held locks and waiters in the whole store
#[derive(Args)]
#[command(after_help = "\
These numbers describe the store at this moment. Counters of one client (acquired, lost,
latencies) are in the program that uses the library: `Leasehold::stats()`.

Examples:
  leasehold stats
  leasehold stats --prometheus > /var/lib/node_exporter/leasehold.prom")]
pub(super) struct Stats {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Print in Prometheus' text format
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

/// All modes, so that a gauge falls to zero and does not vanish.
const MODES: [&str; 3] = ["exclusive", "shared", "permits"];

/// Most names that are counted.
const NAMES_MAX: usize = 100_000;

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Figures {
    held: u64,
    held_by_other_libraries: u64,
    waited_for: u64,
    waiters: u64,
    longest_queue: u64,
    longest_wait_ms: u64,
    longest_held_ms: u64,
    /// Holders by mode: of a shared lock and of a semaphore there may be several.
    holders: BTreeMap<&'static str, u64>,
    permits_used: u64,
    /// There are more names than are counted.
    incomplete: bool,
}

impl Stats {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let listed = ls::all(&leases, &self.prefix, NAMES_MAX).await;
        store::close(&leases).await;
        let (locks, incomplete) = listed?;
        let figures = Figures { incomplete, ..figures(&locks) };
        let out = global.output();
        if self.prometheus {
            output::print(&figures.prometheus())?;
        } else {
            let facts = figures.facts();
            out.print(figures, || out.facts(&facts))?;
        }
        Ok(Exit::OK)
    }
}

fn figures(locks: &[Inspection]) -> Figures {
    let mut figures = Figures { holders: MODES.map(|mode| (mode, 0)).into(), ..Figures::default() };
    for lock in locks {
        if let Some(tenure) = &lock.held() {
            figures.held += 1;
            figures.held_by_other_libraries += u64::from(tenure.holder == Holder::Foreign);
            *figures.holders.entry(tenure.mode.as_str()).or_default() += u64::from(lock.holders.total);
        }
        let ages = lock.holders.shown.iter().filter_map(|tenure| tenure.holder.age()).map(millis);
        figures.longest_held_ms = ages.fold(figures.longest_held_ms, u64::max);
        figures.permits_used += u64::from(lock.permits_used().unwrap_or(0));
        let waiting = u64::from(lock.waiting);
        figures.waited_for += u64::from(waiting > 0);
        figures.waiters += waiting;
        figures.longest_queue = figures.longest_queue.max(waiting);
        let longest = lock.waiters.iter().map(|waiter| millis(waiter.waiting_for)).max();
        figures.longest_wait_ms = figures.longest_wait_ms.max(longest.unwrap_or(0));
    }
    figures
}

impl Figures {
    fn facts(&self) -> Vec<(String, String)> {
        let time = |ms: u64| spoken(Duration::from_millis(ms));
        let mut facts = vec![
            ("held", self.held.to_string()),
            ("held by other libraries", self.held_by_other_libraries.to_string()),
            ("waited for", self.waited_for.to_string()),
            ("waiters", self.waiters.to_string()),
            ("longest queue", self.longest_queue.to_string()),
            ("longest wait", time(self.longest_wait_ms)),
            ("longest held", time(self.longest_held_ms)),
            ("readers", self.holders["shared"].to_string()),
            ("permits in use", self.permits_used.to_string()),
        ];
        if self.incomplete {
            facts.push(("incomplete", format!("only {NAMES_MAX} names were counted")));
        }
        facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect()
    }

    fn prometheus(&self) -> String {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let gauges = [
            ("locks_held", "Locks that are held.", self.held as f64),
            (
                "locks_held_foreign",
                "Locks that are held by clients of other libraries.",
                self.held_by_other_libraries as f64,
            ),
            ("locks_waited_for", "Locks with waiters.", self.waited_for as f64),
            ("waiters", "Attempts waiting for a lock.", self.waiters as f64),
            ("longest_queue", "Length of the longest queue.", self.longest_queue as f64),
            ("longest_wait_seconds", "Longest current wait.", seconds(self.longest_wait_ms)),
            (
                "longest_held_seconds",
                "Longest time since a current holder started to acquire its lock.",
                seconds(self.longest_held_ms),
            ),
            ("permits_used", "Permits of semaphores that are in use.", self.permits_used as f64),
        ];
        let text = gauges.iter().fold(String::new(), |mut text, (name, help, value)| {
            let _ = writeln!(text, "# HELP leasehold_store_{name} {help}");
            let _ = writeln!(text, "# TYPE leasehold_store_{name} gauge");
            let _ = writeln!(text, "leasehold_store_{name} {value}");
            text
        });
        let head = "# HELP leasehold_store_holders Holders of locks, by how they hold them.\n\
                    # TYPE leasehold_store_holders gauge\n";
        self.holders.iter().fold(text + head, |mut text, (mode, holders)| {
            let _ = writeln!(text, "leasehold_store_holders{{mode=\"{mode}\"}} {holders}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::{
        Fence, Name,
        engine::{Mode, Tenure, Waiter},
    };

    fn lock(name: &str, held: bool, waits_ms: &[u64]) -> Inspection {
        let mode = Mode::Exclusive;
        let tenure = Tenure { holder: Holder::Foreign, fence: Fence::new(0), mode, expires_in: None };
        let waiter = |ms: &u64| {
            let waiting_for = Duration::from_millis(*ms);
            Waiter { holder: Holder::Foreign, mode, waiting_for }
        };
        Inspection {
            holders: held.then_some(tenure).into(),
            waiters: waits_ms.iter().map(waiter).collect(),
            waiting: waits_ms.len() as u32,
            ..Inspection::unused(Name::new(name).unwrap())
        }
    }

    #[test]
    fn figures_add_up_over_all_locks() {
        let figures = figures(&[lock("a", true, &[]), lock("b", true, &[5, 9]), lock("c", false, &[7])]);
        assert_eq!((figures.held, figures.held_by_other_libraries), (2, 2));
        assert_eq!((figures.waited_for, figures.waiters), (2, 3));
        assert_eq!((figures.longest_queue, figures.longest_wait_ms), (2, 9));
        assert_eq!(figures.holders, BTreeMap::from([("exclusive", 2), ("permits", 0), ("shared", 0)]));
        assert!(figures.prometheus().contains("\nleasehold_store_holders{mode=\"exclusive\"} 2\n"));
        assert!(figures.prometheus().contains("\nleasehold_store_longest_wait_seconds 0.009\n"));
    }
}
