//! `leasehold deadlines`: operations that must finish by a given time.

mod ack;
mod add;
mod cancel;
mod claim;
mod dead;
mod due;
mod stats;

use clap::Subcommand;
use leasehold::deadlines::PoolLayout;
use serde::Serialize;

use super::Global;
use crate::{
    exit::{Exit, Failure},
    output::{self, Output},
    view::readable,
};

/// Set, inspect and claim deadlines: operations that must finish by a given time
#[derive(Subcommand)]
#[command(after_help = "\
A deadline that is not cancelled in time becomes due. A claim hides it from other claims for the
visibility timeout and returns a receipt. Unless it is acknowledged with that receipt, it is due
again afterwards.

Example:
  leasehold deadlines add payments tx:42 --in 30m --context 'order 7'
  leasehold deadlines due payments
  leasehold deadlines claim payments --visibility 1m
  leasehold deadlines ack payments tx:42 1763262847000000")]
pub(super) enum Deadlines {
    Add(add::Add),
    Due(due::ShowDue),
    Claim(claim::Claim),
    Ack(ack::Ack),
    Cancel(cancel::Cancel),
    Stats(stats::Stats),
    Dead(dead::ShowDead),
}

impl Deadlines {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Self::Add(add) => add.execute(global).await,
            Self::Due(due) => due.execute(global).await,
            Self::Claim(claim) => claim.execute(global).await,
            Self::Ack(ack) => ack.execute(global).await,
            Self::Cancel(cancel) => cancel.execute(global).await,
            Self::Stats(stats) => stats.execute(global).await,
            Self::Dead(dead) => dead.execute(global).await,
        }
    }
}

/// The exit code of a command that reads a pool; prints a message if the pool does not exist.
fn exit_code(layout: Option<PoolLayout>, out: Output) -> Exit {
    if layout.is_some() {
        return Exit::OK;
    }
    if !out.json {
        output::say("no such pool");
    }
    Exit::NO
}

/// A context in JSON: text where it is text, else its bytes in hexadecimal.
#[derive(Debug, Default, Serialize)]
struct ContextView {
    context: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_hex: Option<String>,
}

impl ContextView {
    fn new(context: Option<&[u8]>) -> Self {
        match context.map(readable) {
            None => Self::default(),
            Some(Ok(text)) => Self { context: Some(text), context_hex: None },
            Some(Err(hex)) => Self { context: None, context_hex: Some(hex) },
        }
    }

    fn text(&self) -> String {
        match (&self.context, &self.context_hex) {
            (Some(text), _) => text.clone(),
            (None, Some(hex)) => format!("0x{hex}"),
            (None, None) => "-".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_shown_as_text_where_it_is_text() {
        assert_eq!(ContextView::new(Some("größe".as_bytes())).text(), "größe");
        assert_eq!(ContextView::new(Some(&[0, 255])).text(), "0x00ff");
        assert_eq!(ContextView::new(None).text(), "-");
    }
}
