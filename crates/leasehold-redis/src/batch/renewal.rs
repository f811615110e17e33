//! Renewals after which the server reports when somebody else changes what was renewed.

use redis::{Value, cmd};

use super::Lane;
use crate::{
    Result,
    connection::Link,
    reply::WATCHED,
    script::{self, Call, Op, parts},
};
use leasehold_core::{
    clock::Until,
    engine::{Held, Hold},
};

impl Lane {
    /// Renews in one call; one reply each. It is [`WATCHED`] instead of 1 where the server reports changes from here on.
    pub(super) async fn renew_and_watch(
        &self,
        link: &Link,
        call: Call,
        ops: &[&Op],
        until: Until,
    ) -> Result<Vec<Value>> {
        let era = link.identity.as_deref().zip(self.connection.options.grace());
        let build = |by_hash| self.scripts.build(call, by_hash, ops, link.number, era);
        if !link.is_tracked(until).await? {
            return script::replies(link.run_script(false, build, until).await?, ops.len());
        }
        if call == Call::Renew {
            let build = |by_hash| build(by_hash).arg(1).clone();
            let (renewed, _) = link.run_tracked(build, None, until).await?;
            let mut replies = script::replies(renewed, ops.len())?;
            replies.iter_mut().filter(|reply| **reply == Value::Int(1)).for_each(|reply| *reply = WATCHED);
            return Ok(replies);
        }
        // A script that reads more than its last read would have the server remember all its keys each time.
        let holds = || ops.iter().enumerate().filter_map(|(at, op)| Some((at, op.watches()?)));
        let mut read = cmd("MGET");
        for (at, _) in holds() {
            read.arg(ops[at].keys.lock());
        }
        let (renewed, read) = link.run_tracked(build, Some(read), until).await?;
        let mut replies = script::replies(renewed, ops.len())?;
        let Some(Value::Array(values)) = read else { return Ok(replies) };
        for ((at, hold), value) in holds().zip(values) {
            // Somebody else may have come in between.
            if replies[at] == Value::Int(1) {
                replies[at] = if has(&value, hold) { WATCHED } else { Value::Int(0) };
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
