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
    view::{LockView, State, WaiterView},
};

/// Show who holds a lock and who waits for it, in order
#[derive(Args)]
#[command(after_help = "\
\"since\" is when the holder started to acquire the lock, by its own clock.

Examples:
  leasehold inspect nightly
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
    if lock.state == State::Held {
        facts.push(fact("holder", lock.holder_text()));
        if let Some(age) = lock.holder.as_ref().and_then(leasehold::Holder::age) {
            facts.push(fact("since", format!("{} ago", spoken(age))));
        }
        facts.push(fact("fence", lock.fence_text()));
        facts.push(fact("ttl", lock.ttl_text()));
    }
    facts.push(fact("waiters", lock.waiting.to_string()));
    for (place, waiter) in found.waiters.iter().enumerate() {
        let waited = spoken(Duration::from_millis(waiter.waiting_for.as_millis() as u64));
        facts.push(fact(&format!("waiter {}", place + 1), format!("{} for {waited}", waiter.holder)));
    }
    if lock.waiting > WAITERS_SHOWN {
        facts.push(fact("not shown", (lock.waiting - WAITERS_SHOWN).to_string()));
    }
    out.facts(&facts)
}
