//! `leasehold deadlines add`: sets a deadline.

use std::time::Duration;

use clap::{Args, ValueEnum};
use leasehold::{Deadline, deadlines::Placement};
use serde::Serialize;

use crate::{
    command::Global,
    duration,
    exit::{Exit, Failure},
    store::{self, Store},
    view::millis,
};

/// Set a deadline, replacing one with the same id
#[derive(Args)]
#[command(after_help = "\
The first use creates a pool and fixes its number of buckets and their placement; giving other
values for an existing pool is an error.

Examples:
  leasehold deadlines add payments tx:42 --in 30m
  leasehold deadlines add payments tx:42 --in 90s --context '{\"order\":7}' --json")]
pub(crate) struct Add {
    /// The pool
    pool: String,

    /// The deadline
    id: String,

    /// Time until it is due, by the store's clock
    #[arg(long = "in", value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    after: Duration,

    /// Context for the handler that claims the deadline
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,

    /// Number of buckets of a new pool [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    buckets: Option<u16>,

    /// Placement of a new pool's buckets on a cluster [default: spread]
    #[arg(long, value_name = "WHERE")]
    placement: Option<Where>,
}

/// Where the buckets of a pool are.
#[derive(Clone, Copy, ValueEnum)]
enum Where {
    /// Each bucket on any shard
    Spread,
    /// All buckets on one shard
    Together,
}

#[derive(Serialize)]
struct Added {
    pool: String,
    id: String,
    due_in_ms: u64,
}

impl Add {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let mut pool = leases.deadlines(&self.pool);
        if let Some(buckets) = self.buckets {
            pool = pool.buckets(buckets);
        }
        if let Some(placement) = self.placement {
            pool = pool.placement(match placement {
                Where::Spread => Placement::Spread,
                Where::Together => Placement::Together,
            });
        }
        let mut deadline = Deadline::new(&*self.id, self.after);
        if let Some(context) = self.context {
            deadline = deadline.context(context);
        }
        let answer = pool.set_many(&[deadline]).await;
        store::close(&leases).await;
        answer?;
        let added = Added { pool: self.pool, id: self.id, due_in_ms: millis(self.after) };
        global.output().print(added, String::new)?;
        Ok(Exit::OK)
    }
}
