//! `leasehold ls`: the locks that are held or have waiters.

use clap::Args;
use leasehold::{Leasehold, engine::Inspection};
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output,
    store::{self, Store},
    view::LockView,
};

/// List all locks that are held or have waiters
#[derive(Args)]
#[command(after_help = "\
One line for each holder, or one for a lock that is only waited for. Columns: name, state (held,
waiting), holder, fence, time until it expires unless renewed, waiters, how it is held (exclusive,
shared, 2 permits), permits in use of all that a semaphore has (3 of 5). In a pipe the columns are
separated by tabs and there is no heading.

Examples:
  leasehold ls
  leasehold ls deal: --json
  leasehold ls | cut -f1 | uniq")]
pub(super) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Show at most this many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Serialize)]
struct Listing {
    locks: Vec<LockView>,
    /// The limit cut the list short.
    more: bool,
}

impl Ls {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let listed = all(&leases, &self.prefix, self.limit as usize).await;
        store::close(&leases).await;
        let (locks, more) = listed?;
        let locks: Vec<_> = locks.iter().map(LockView::from).collect();
        let out = global.output();
        let rows: Vec<_> = locks.iter().flat_map(rows).collect();
        out.print(Listing { locks, more }, || {
            out.table(&["NAME", "STATE", "HOLDER", "FENCE", "TTL", "WAITERS", "MODE", "PERMITS"], &rows)
        })?;
        if rows.is_empty() && out.terminal && !out.json {
            output::say("no locks are held and nobody waits");
        }
        if more && !out.json {
            output::say("note: more locks follow; raise --limit or give a longer prefix");
        }
        Ok(Exit::OK)
    }
}

/// A row for each holder.
fn rows(lock: &LockView) -> Vec<Vec<String>> {
    let none = || "-".to_owned();
    let permits = lock.permits_used.zip(lock.limit).map(|(used, limit)| format!("{used} of {limit}"));
    let row = |holder: String, fence: String, ttl: String, mode: String| {
        let (name, state) = (lock.name.clone(), lock.state.as_str().to_owned());
        let waiting = lock.waiting.to_string();
        vec![name, state, holder, fence, ttl, waiting, mode, permits.clone().unwrap_or_else(none)]
    };
    let mut rows: Vec<_> = lock
        .holders
        .iter()
        .map(|held| {
            row(held.holder.to_string(), held.fence.to_string(), held.ttl_text(), held.mode.to_string())
        })
        .collect();
    if rows.is_empty() {
        rows.push(row(none(), none(), none(), none()));
    }
    if lock.unlisted() > 0 {
        rows.push(row(format!("{} more", lock.unlisted()), none(), none(), none()));
    }
    rows
}

/// Locks per page.
const PAGE: u32 = 500;

/// All pages, sorted by name, and whether the limit cut them short.
pub(super) async fn all(
    leases: &Leasehold,
    prefix: &str,
    limit: usize,
) -> leasehold::Result<(Vec<Inspection>, bool)> {
    let mut found: Vec<Inspection> = Vec::new();
    let mut from = None;
    loop {
        let page = leases.list_page(prefix, from, PAGE).await?;
        found.extend(page.items);
        from = page.next;
        if from.is_none() || found.len() > limit {
            break;
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let more = from.is_some() || found.len() > limit;
    found.truncate(limit);
    Ok((found, more))
}
