//! `leasehold deadlines cancel`: removes a deadline in any state.

use clap::Args;
use serde::Serialize;

use crate::{
    command::Global,
    exit::{Exit, Failure},
    output,
    store::{self, Store},
};

/// Remove a deadline, claimed or not, alive or dead
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 removed · 1 there was none

Example:
  leasehold deadlines cancel payments tx:42")]
pub(crate) struct Cancel {
    /// The pool
    pool: String,

    /// The deadline
    id: String,
}

#[derive(Serialize)]
struct Cancelled {
    pool: String,
    id: String,
    cancelled: bool,
}

impl Cancel {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let answer = leases.deadlines(&self.pool).cancel(self.id.as_str()).await;
        store::close(&leases).await;
        let cancelled = answer?;
        let out = global.output();
        out.print(Cancelled { pool: self.pool, id: self.id, cancelled }, String::new)?;
        if cancelled {
            return Ok(Exit::OK);
        }
        if !out.json {
            output::say("no such deadline");
        }
        Ok(Exit::NO)
    }
}
