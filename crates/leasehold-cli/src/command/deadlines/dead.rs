//! `leasehold deadlines dead`: deadlines that were given up.

use std::time::{Duration, UNIX_EPOCH};

use clap::Args;
use leasehold::{Deadlines, deadlines::Dead};
use serde::Serialize;

use super::{ContextView, exit_code};
use crate::{
    command::Global,
    exit::{Exit, Failure},
    output,
    store::{self, Store},
};

/// List dead deadlines and why each was given up
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 the pool exists · 1 no such pool: it was never used

Columns: id, attempts, when it was given up, why, context. In a pipe the columns are separated by
tabs and there is no heading. Set a dead deadline again to retry it, or cancel it to
remove it.

Examples:
  leasehold deadlines dead payments
  leasehold deadlines dead payments --json")]
pub(crate) struct ShowDead {
    /// The pool
    pool: String,

    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Serialize)]
struct Shown {
    pool: String,
    dead: Vec<DeadView>,
    /// The limit cut the list short.
    more: bool,
}

#[derive(Serialize)]
struct DeadView {
    id: String,
    attempts: u32,
    buried_at_ms: u64,
    why: String,
    #[serde(flatten)]
    context: ContextView,
}

impl ShowDead {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let pool = leases.deadlines(&self.pool);
        let (layout, answer) = (pool.layout().await, all(&pool, self.limit as usize).await);
        store::close(&leases).await;
        let (layout, (dead, more)) = (layout?, answer?);
        let dead: Vec<_> = dead.into_iter().map(DeadView::new).collect();
        let out = global.output();
        let rows: Vec<_> = dead.iter().map(DeadView::row).collect();
        out.print(Shown { pool: self.pool, dead, more }, || {
            out.table(&["ID", "ATTEMPTS", "BURIED", "WHY", "CONTEXT"], &rows)
        })?;
        if rows.is_empty() && layout.is_some() && out.terminal && !out.json {
            output::say("no dead deadlines");
        }
        if more && !out.json {
            output::say("note: more follow; raise --limit");
        }
        Ok(exit_code(layout, out))
    }
}

impl DeadView {
    fn new(dead: Dead) -> Self {
        Self {
            id: dead.id.to_string(),
            attempts: dead.attempts,
            buried_at_ms: dead.buried_at_ms,
            why: dead.why,
            context: ContextView::new(dead.context.as_deref()),
        }
    }

    fn row(&self) -> Vec<String> {
        let buried = UNIX_EPOCH + Duration::from_millis(self.buried_at_ms);
        let buried = humantime::format_rfc3339_seconds(buried).to_string();
        vec![self.id.clone(), self.attempts.to_string(), buried, self.why.clone(), self.context.text()]
    }
}

/// Dead deadlines per page.
const PAGE: u32 = 500;

/// All pages, sorted by id, and whether the limit cut them short.
async fn all(pool: &Deadlines, limit: usize) -> Result<(Vec<Dead>, bool), Failure> {
    let mut found: Vec<Dead> = Vec::new();
    let mut from = None;
    loop {
        let page = pool.dead_page(from, PAGE).await?;
        found.extend(page.items);
        from = page.next;
        if from.is_none() || found.len() > limit {
            break;
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    let more = from.is_some() || found.len() > limit;
    found.truncate(limit);
    Ok((found, more))
}
