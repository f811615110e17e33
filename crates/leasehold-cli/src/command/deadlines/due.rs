//! `leasehold deadlines due`: lists due deadlines without claiming them.

use clap::Args;
use leasehold::deadlines::Pending;
use serde::Serialize;

use super::exit_code;
use crate::{
    command::Global,
    exit::{Exit, Failure},
    output::{self, spoken},
    store::{self, Store},
    view::millis,
};

/// List due deadlines that are not claimed, oldest first
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 the pool exists · 1 no such pool: it was never used

Columns: id, attempts so far, how long it has been due. In a pipe the columns are separated by
tabs and there is no heading.

Examples:
  leasehold deadlines due payments
  leasehold deadlines due payments --limit 10 --json")]
pub(crate) struct ShowDue {
    /// The pool
    pool: String,

    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=9_999))]
    limit: u32,
}

#[derive(Serialize)]
struct Shown {
    pool: String,
    due: Vec<PendingView>,
    /// The limit cut the list short.
    more: bool,
}

#[derive(Serialize)]
struct PendingView {
    id: String,
    attempts: u32,
    overdue_ms: u64,
}

impl ShowDue {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let pool = leases.deadlines(&self.pool);
        let (layout, answer) = (pool.layout().await, pool.peek(self.limit + 1).await);
        store::close(&leases).await;
        let (layout, mut pending) = (layout?, answer?);
        let more = pending.len() > self.limit as usize;
        pending.truncate(self.limit as usize);
        let out = global.output();
        let row = |due: &Pending| vec![due.id.to_string(), due.attempts.to_string(), spoken(due.overdue)];
        let rows: Vec<_> = pending.iter().map(row).collect();
        let view = |due: Pending| PendingView {
            id: due.id.to_string(),
            attempts: due.attempts,
            overdue_ms: millis(due.overdue),
        };
        let shown = Shown { pool: self.pool, due: pending.into_iter().map(view).collect(), more };
        out.print(shown, || out.table(&["ID", "ATTEMPTS", "OVERDUE"], &rows))?;
        if rows.is_empty() && layout.is_some() && out.terminal && !out.json {
            output::say("nothing is due");
        }
        if more && !out.json {
            output::say("note: more deadlines are due; raise --limit");
        }
        Ok(exit_code(layout, out))
    }
}
