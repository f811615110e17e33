//! `leasehold deadlines claim`: claims due deadlines and prints their receipts.

use std::time::Duration;

use clap::Args;
use leasehold::Due;
use serde::Serialize;

use super::ContextView;
use crate::{
    command::Global,
    duration,
    exit::{Exit, Failure},
    output::{self, spoken},
    store::{self, Store},
    view::millis,
};

/// Claim due deadlines
///
/// A claimed deadline is hidden from other claims for the visibility timeout, and is due again unless it is acknowledged by
/// then.
#[derive(Args)]
#[command(after_help = "\
Columns: id, receipt, attempt, how late it is, context. In a pipe the columns are separated by
tabs and there is no heading.

Example:
  leasehold deadlines claim payments | while IFS=$(printf '\\t') read -r id receipt rest; do
    ./handle \"$id\" && leasehold deadlines ack payments \"$id\" \"$receipt\"
  done")]
pub(crate) struct Claim {
    /// The pool
    pool: String,

    /// Claim at most this many from each bucket
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,

    /// Visibility timeout: how long a claim hides a deadline from other claims
    #[arg(long, value_name = "DUR", default_value = "60s", value_parser = duration::parse, allow_hyphen_values = true)]
    visibility: Duration,
}

#[derive(Serialize)]
struct ClaimedView {
    pool: String,
    due: Vec<DueView>,
    /// More deadlines are due than the limit allowed.
    more: bool,
}

#[derive(Serialize)]
struct DueView {
    id: String,
    receipt: u64,
    attempt: u32,
    overdue_ms: u64,
    #[serde(flatten)]
    context: ContextView,
}

impl Claim {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let answer = leases.deadlines(&self.pool).claim().limit(self.limit).visibility(self.visibility).await;
        store::close(&leases).await;
        let claimed = answer?;
        let more = claimed.more;
        let due: Vec<_> = claimed.due.iter().map(DueView::new).collect();
        let out = global.output();
        let rows: Vec<_> = due.iter().map(DueView::row).collect();
        out.print(ClaimedView { pool: self.pool, due, more }, || {
            out.table(&["ID", "RECEIPT", "ATTEMPT", "OVERDUE", "CONTEXT"], &rows)
        })?;
        if more && !out.json {
            output::say("note: more deadlines are due; claim again");
        }
        Ok(Exit::OK)
    }
}

impl DueView {
    fn new(due: &Due) -> Self {
        Self {
            id: due.id().into(),
            receipt: due.receipt().number,
            attempt: due.attempt(),
            overdue_ms: millis(due.overdue()),
            context: ContextView::new(due.context().map(|context| &context[..])),
        }
    }

    fn row(&self) -> Vec<String> {
        let overdue = spoken(Duration::from_millis(self.overdue_ms));
        let (receipt, attempt) = (self.receipt.to_string(), self.attempt.to_string());
        vec![self.id.clone(), receipt, attempt, overdue, self.context.text()]
    }
}
