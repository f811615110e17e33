//! `leasehold inspect`: who holds one lock and who waits for it.

use std::time::Duration;

use clap::Args;
use leasehold::engine::{Inspection, WAITERS_SHOWN};
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::{Output, spoken},
    store::{self, Store},
    view::{LockView, ModeView, WaiterView},
};

/// Show who holds a lock and who waits for it, in order
#[derive(Args)]
#[command(after_help = "\
\"since\" is when the holder started to acquire the lock, by its own clock. Readers and holders of
permits are listed one by one, and waiters with what they wait for.

Examples:
  leasehold inspect nightly
  leasehold inspect gpu
  leasehold inspect deal:42 --json")]
pub(super) struct Inspect {
    /// The lock
    name: String,
}

#[derive(Serialize)]
struct Shown {
    lock: LockView,
    waiters: Vec<WaiterView>,
}

impl Inspect {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let answer = leases.inspect(&self.name).await;
        store::close(&leases).await;
        let found = answer?;
        let out = global.output();
        let lock = LockView::from(&found);
        let waiters: Vec<_> = found.waiters.iter().map(WaiterView::from).collect();
        out.print(Shown { lock, waiters }, || text(out, &found))?;
        Ok(Exit::OK)
    }
}

/// The lock as lines of facts, then its waiters.
pub(super) fn text(out: Output, found: &Inspection) -> String {
    let lock = LockView::from(found);
    let fact = |what: &str, value: String| (what.to_owned(), value);
    let mut facts = vec![fact("name", lock.name.clone()), fact("state", lock.state.as_str().into())];
    facts.extend(lock.mode.map(|mode| fact("mode", mode.into())));
    facts.extend(lock.permits_text().map(|permits| fact("in use", permits)));
    match &lock.holders[..] {
        [] => {}
        [held] => {
            facts.push(fact("holder", held.holder.to_string()));
            facts.extend(held.holder.age().map(|age| fact("since", format!("{} ago", spoken(age)))));
            facts.push(fact("fence", held.fence.to_string()));
            facts.push(fact("ttl", held.ttl_text()));
        }
        several => {
            facts.push(fact("holders", lock.holders_total.to_string()));
            for (place, held) in several.iter().enumerate() {
                let since = held.holder.age().map_or_else(String::new, |age| format!(" for {}", spoken(age)));
                let (holder, mode, fence, ttl) = (&held.holder, held.mode, held.fence, held.ttl_text());
                let about = format!("{holder}{since}, {mode}, fence {fence}, ttl {ttl}");
                facts.push(fact(&format!("holder {}", place + 1), about));
            }
        }
    }
    if lock.unlisted() > 0 {
        facts.push(fact("holders not shown", lock.unlisted().to_string()));
    }
    facts.push(fact("waiters", lock.waiting.to_string()));
    for (place, waiter) in found.waiters.iter().enumerate() {
        let waited = spoken(Duration::from_millis(waiter.waiting_for.as_millis() as u64));
        let (holder, mode) = (&waiter.holder, ModeView::from(waiter.mode));
        facts.push(fact(&format!("waiter {}", place + 1), format!("{holder} for {waited}, {mode}")));
    }
    if lock.waiting > WAITERS_SHOWN {
        facts.push(fact("not shown", (lock.waiting - WAITERS_SHOWN).to_string()));
    }
    out.facts(&facts)
}
