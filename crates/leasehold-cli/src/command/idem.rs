//! `leasehold idem`: the record of a request that must not be executed twice.

use clap::{Args, Subcommand};
use leasehold::{
    Fence, Holder, IdempotencyKey, Leasehold,
    engine::records::{Content, Record, State, Stored},
};
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::{self, Output, spoken},
    store::{self, Store},
    view::{millis, readable},
};

/// Show or remove idempotency keys
#[derive(Subcommand)]
#[command(after_help = "\
Example:
  leasehold idem get payout 42
  leasehold idem rm payout 42")]
pub(super) enum Idem {
    Get(Get),
    Rm(Rm),
}

/// Show the state of a request: running, completed, failed, quarantined or marked
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 found · 1 not found: the next call executes

Examples:
  leasehold idem get payout 42
  leasehold idem get payout 42 --json")]
pub(super) struct Get {
    #[command(flatten)]
    request: Request,
}

/// Remove the record of a request: the next call executes again
///
/// A running execution continues, and its result is stored unless another execution has started by then.
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 removed · 1 not found

Example:
  leasehold idem rm payout 42")]
pub(super) struct Rm {
    #[command(flatten)]
    request: Request,
}

/// One request.
#[derive(Args)]
struct Request {
    /// The operation
    #[arg(value_name = "OP")]
    operation: String,

    /// The idempotency key
    key: String,
}

impl Request {
    fn of(&self, leases: &Leasehold) -> IdempotencyKey {
        leases.idempotency(&self.operation).key(&self.key)
    }
}

#[derive(Serialize)]
struct RecordView {
    key: String,
    state: &'static str,
    holder: Option<Holder>,
    fence: Option<Fence>,
    fingerprint: Option<String>,
    expires_in_ms: Option<u64>,
    /// The result, or why it failed, where it is text.
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_hex: Option<String>,
}

#[derive(Serialize)]
struct Removed {
    key: String,
    removed: bool,
}

impl Idem {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let leases = Store::choose(global)?.connect().await?;
        let result = match self {
            Self::Get(get) => get.execute(&leases, global.output()).await,
            Self::Rm(rm) => rm.execute(&leases, global.output()).await,
        };
        store::close(&leases).await;
        result
    }
}

impl Get {
    async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let request = self.request.of(leases);
        let key = request.store_key()?.to_string();
        let found = request.get().await?;
        let exit = if found.is_some() { Exit::OK } else { Exit::NO };
        let view = RecordView::new(key, found);
        let facts = view.facts();
        out.print(view, || out.facts(&facts))?;
        Ok(exit)
    }
}

impl Rm {
    async fn execute(self, leases: &Leasehold, out: Output) -> Result<Exit, Failure> {
        let request = self.request.of(leases);
        let (key, removed) = (request.store_key()?.to_string(), request.remove().await?);
        out.print(Removed { key, removed }, String::new)?;
        if removed {
            return Ok(Exit::OK);
        }
        if !out.json {
            output::say("nothing to remove");
        }
        Ok(Exit::NO)
    }
}

impl RecordView {
    fn new(key: String, record: Option<Record>) -> Self {
        let expires_in_ms = record.as_ref().and_then(|record| record.expires_in).map(millis);
        let blank = Self {
            key,
            state: "absent",
            holder: None,
            fence: None,
            fingerprint: None,
            expires_in_ms,
            result: None,
            result_hex: None,
        };
        match record.map(|record| record.content) {
            None => blank,
            Some(Content::Mark) => Self { state: "marked", ..blank },
            Some(Content::Corrupt) => Self { state: "corrupt", ..blank },
            Some(Content::Stored(stored)) => blank.with(&stored),
        }
    }

    fn with(self, Stored { state, fence, fingerprint }: &Stored) -> Self {
        let view = Self {
            state: state.as_str(),
            fence: Some(*fence),
            fingerprint: fingerprint.as_ref().map(ToString::to_string),
            ..self
        };
        match state {
            State::Running(owner) => Self { holder: Some(owner.holder()), ..view },
            State::Completed(result) | State::Failed(result) | State::Quarantined(result) => {
                match readable(result) {
                    Ok(text) => Self { result: Some(text), ..view },
                    Err(hex) => Self { result_hex: Some(hex), ..view },
                }
            }
        }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let expires_in = self.expires_in_ms.map(|left| spoken(std::time::Duration::from_millis(left)));
        let result = self.result.clone().or_else(|| Some(format!("0x{}", self.result_hex.as_ref()?)));
        let facts = [
            ("key", Some(self.key.clone())),
            ("state", Some(self.state.to_owned())),
            ("holder", self.holder.as_ref().map(ToString::to_string)),
            ("fence", self.fence.map(|fence| fence.to_string())),
            ("fingerprint", self.fingerprint.clone()),
            ("expires", expires_in),
            ("result", result),
        ];
        let known = facts.into_iter().filter_map(|(what, value)| Some((what.to_owned(), value?)));
        known.collect()
    }
}
