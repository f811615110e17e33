//! `leasehold marker`: marks that something is in progress.

use std::time::Duration;

use clap::{Args, Subcommand};
use leasehold::{Leasehold, marker::Cleared};
use serde::Serialize;

use super::Global;
use crate::{
    duration,
    exit::{Exit, Failure},
    output::{self, Output},
    store::{self, Store},
};

/// Set, test and clear marks: something is in progress
#[derive(Subcommand)]
#[command(after_help = "\
A mark does not record who set it, and anybody can clear it. `test` followed by `set` is a race;
`set --if-absent` is one atomic step.

Example:
  leasehold marker set processing a.csv --ttl 10m --if-absent && ./import a.csv
  leasehold marker clear processing a.csv")]
pub(super) enum Marker {
    Set(Set),
    Test(Test),
    Clear(Clear),
}

/// Mark something; a mark that exists gets a new ttl
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 marked · 1 nothing done: the key belongs to a guard or another program, or with
--if-absent it was already marked

Examples:
  leasehold marker set processing a.csv
  leasehold marker set processing a.csv --ttl 10m --if-absent")]
pub(super) struct Set {
    #[command(flatten)]
    mark: Mark,

    /// How long it stays marked [default: 5m]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Do nothing if it is already marked
    #[arg(long)]
    if_absent: bool,
}

/// Test whether something is marked
#[derive(Args)]
#[command(after_help = "\
Prints nothing without --json.

Exit codes: 0 marked · 1 not marked · 69 store unreachable

Example:
  leasehold marker test processing a.csv || echo not in progress")]
pub(super) struct Test {
    #[command(flatten)]
    mark: Mark,
}

/// Clear a mark, whoever set it; marks of a guard and values of other programs are not touched
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 cleared · 1 not marked, or the key belongs to a guard or another program

Example:
  leasehold marker clear processing a.csv")]
pub(super) struct Clear {
    #[command(flatten)]
    mark: Mark,
}

/// Why a mark is not touched.
const NO_MARK: &str = "the key belongs to a guard or another program";

/// One mark.
#[derive(Args)]
struct Mark {
    /// The kind of mark
    kind: String,

    /// What is marked
    id: String,
}

#[derive(Serialize)]
struct MarkView {
    kind: String,
    id: String,
    marked: bool,
    /// Whether the command changed the mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
}

impl Marker {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let result = match self {
            Self::Set(set) => set.execute(&leases, global.output()).await,
            Self::Test(test) => test.execute(&leases, global.output()).await,
            Self::Clear(clear) => clear.execute(&leases, global.output()).await,
        };
        store::close(&leases).await;
        result
    }
}

impl Set {
    async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let mut marker = leases.marker(&self.mark.kind);
        if let Some(ttl) = self.ttl {
            marker = marker.ttl(ttl);
        }
        let id = &*self.mark.id;
        let set = if self.if_absent { marker.mark_if_absent(id).await? } else { marker.mark(id).await? };
        let refused = if self.if_absent { "it is already marked" } else { NO_MARK };
        self.mark.changed(out, true, set, refused)
    }
}

impl Test {
    async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let Mark { kind, id } = self.mark;
        let marked = leases.marker(&kind).is_marked(&*id).await?;
        out.print(MarkView { kind, id, marked, changed: None }, String::new)?;
        Ok(if marked { Exit::OK } else { Exit::NO })
    }
}

impl Clear {
    async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let cleared = leases.marker(&self.mark.kind).clear(&*self.mark.id).await?;
        let refused = if cleared == Cleared::Guarded { NO_MARK } else { "it is not marked" };
        self.mark.changed(out, cleared == Cleared::Guarded, cleared == Cleared::Cleared, refused)
    }
}

impl Mark {
    fn changed(self, out: Output, marked: bool, changed: bool, refused: &str) -> Result<Exit, Failure> {
        let Self { kind, id } = self;
        out.print(MarkView { kind, id, marked, changed: Some(changed) }, String::new)?;
        if changed {
            return Ok(Exit::OK);
        }
        if !out.json {
            output::say(&format!("nothing done: {refused}"));
        }
        Ok(Exit::NO)
    }
}
