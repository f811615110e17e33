//! `leasehold deadlines ack`: removes a deadline that was claimed and handled.

use clap::Args;
use leasehold::deadlines::{Receipt, Settle};
use serde::Serialize;

use crate::{
    command::Global,
    exit::{Exit, Failure},
    output,
    store::{self, Store},
};

/// Acknowledge a claimed deadline
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 removed · 1 the receipt was no longer good: it was claimed, set or cancelled since

Example:
  leasehold deadlines ack payments tx:42 1763262847000000")]
pub(crate) struct Ack {
    /// The pool
    pool: String,

    /// The deadline
    id: String,

    /// The receipt that claim printed
    receipt: u64,
}

#[derive(Serialize)]
struct Acknowledged {
    pool: String,
    id: String,
    acknowledged: bool,
}

impl Ack {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let receipt = Receipt { id: self.id.as_str().into(), number: self.receipt };
        let answer = leases.deadlines(&self.pool).settle(&[(receipt, Settle::Done)]).await;
        store::close(&leases).await;
        let acknowledged = answer?.iter().all(|(_, outcome)| outcome.is_settled());
        let out = global.output();
        out.print(Acknowledged { pool: self.pool, id: self.id, acknowledged }, String::new)?;
        if acknowledged {
            return Ok(Exit::OK);
        }
        if !out.json {
            output::say("the receipt is no longer valid; nothing was removed");
        }
        Ok(Exit::NO)
    }
}
