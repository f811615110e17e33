//! `leasehold deadlines stats`: counts the deadlines of a pool.

use clap::Args;
use serde::Serialize;

use super::exit_code;
use crate::{
    command::Global,
    exit::{Exit, Failure},
    output::spoken,
    store::{self, Store},
    view::millis,
};

/// Count the deadlines of a pool
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 the pool exists · 1 no such pool: it was never used

pending: all deadlines that are not dead. due: pending deadlines whose time has come and that no
claim hides. tried: claimed at least once. overdue: how long the oldest has been due.

Examples:
  leasehold deadlines stats payments
  leasehold deadlines stats payments --json")]
pub(crate) struct Stats {
    /// The pool
    pool: String,
}

#[derive(Serialize)]
struct StatsView {
    pool: String,
    pending: u64,
    due: u64,
    tried: u64,
    overdue_ms: u64,
    dead: u64,
    buckets: Option<u16>,
    placement: Option<String>,
}

impl Stats {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let pool = leases.deadlines(&self.pool);
        let (layout, stats) = (pool.layout().await, pool.stats().await);
        store::close(&leases).await;
        let (layout, stats) = (layout?, stats?);
        let out = global.output();
        let view = StatsView {
            pool: self.pool,
            pending: stats.pending,
            due: stats.due,
            tried: stats.tried,
            overdue_ms: millis(stats.overdue),
            dead: stats.dead,
            buckets: layout.map(|layout| layout.buckets),
            placement: layout.map(|layout| layout.placement.to_string()),
        };
        let facts = [
            ("pending", Some(view.pending.to_string())),
            ("due", Some(view.due.to_string())),
            ("tried", Some(view.tried.to_string())),
            ("overdue", Some(spoken(stats.overdue))),
            ("dead", Some(view.dead.to_string())),
            ("buckets", view.buckets.map(|buckets| buckets.to_string())),
            ("placement", view.placement.clone()),
        ];
        let known: Vec<_> =
            facts.into_iter().filter_map(|(what, value)| Some((what.to_owned(), value?))).collect();
        out.print(view, || out.facts(&known))?;
        Ok(exit_code(layout, out))
    }
}
