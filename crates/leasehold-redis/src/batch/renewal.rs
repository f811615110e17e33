//! Renewals, after which the server reports when somebody else changes what was renewed.

use redis::{Value, cmd};

use super::Lane;
use crate::{
    Result,
    connection::Link,
    reply::WATCHED,
    script::{self, Op, parts},
};
use leasehold_core::{
    clock::Until,
    engine::{Held, Hold},
};

impl Lane {
    /// Renews in one call; one reply each. It is [`WATCHED`] instead of 1 if the server reports changes from here on.
    pub(super) async fn renew(&self, link: &Link, ops: &[&Op], until: Until) -> Result<Vec<Value>> {
        let era = link.identity.as_deref().zip(self.connection.options.grace());
        let call = self.scripts.group(ops[0]).0;
        let build = |by_hash| self.scripts.build(call, by_hash, ops, link.number, era);
        let mut read = cmd("MGET");
        for op in ops {
            read.arg(op.keys.lock());
        }
        let (renewed, read) = link.renew_and_read(build, &read, until).await?;
        let mut replies = script::replies(renewed, ops.len())?;
        let Some(Value::Array(values)) = read else { return Ok(replies) };
        for ((reply, op), value) in replies.iter_mut().zip(ops).zip(values) {
            // Somebody else may have come in between.
            if *reply == Value::Int(1) {
                *reply =
                    if op.renews().is_some_and(|hold| has(&value, hold)) { WATCHED } else { Value::Int(0) };
            }
        }
        Ok(replies)
    }
}

/// Whether a key has the owner of what is held.
fn has(value: &Value, hold: &Hold) -> bool {
    let Value::BulkString(text) = value else { return false };
    match hold.of {
        Held::Record => text.ends_with(hold.owner.expose().as_bytes()),
        _ => text.starts_with(parts(&hold.owner).0.as_bytes()),
    }
}
