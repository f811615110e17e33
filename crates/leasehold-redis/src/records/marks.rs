//! Marks, many at once.

use redis::Cmd;

use super::{
    super::fan_out::{self, ScriptCall},
    check, wrong_type,
};
use crate::{
    Redis,
    script::{MARKS, px},
    topology::{
        outcome::{self, Resend},
        slots,
    },
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, records::MarkOp},
    name::Name,
};

/// Keys in one call; bounds how long the server is busy with one.
const MARKS_PER_CALL: usize = 1000;

impl Redis {
    /// One answer per key. On one server all leave in one write; in a cluster all that a shard has.
    pub(super) async fn call_marks(
        &self,
        keys: &[Name],
        op: MarkOp,
        until: Until,
    ) -> Result<Vec<bool>, EngineError> {
        keys.iter().try_for_each(check)?;
        let slot = |key: &Name| self.topology.slot(|| slots::slot(key.as_str()));
        let mut parts = fan_out::grouped(keys.iter().map(slot), MARKS_PER_CALL);
        let mut resend = Resend::NotWhileMigrating;
        let mut found = vec![false; keys.len()];
        while !parts.is_empty() {
            let calls = parts.iter().map(|(slot, places)| {
                ScriptCall::new(&MARKS, *slot, |cmd| write(cmd, places.iter().map(|at| &keys[*at]), op))
            });
            let answers = self.call_each(keys.first(), resend, calls, until).await;
            let mut apart = Vec::new();
            for ((slot, places), answer) in parts.into_iter().zip(answers) {
                match answer {
                    // Its keys are on two nodes at the moment; each alone can be found.
                    Err(error) if outcome::is_try_again(&error) && places.len() > 1 => {
                        apart.extend(places.into_iter().map(|at| (slot, vec![at])));
                    }
                    answer => {
                        for (at, digit) in places.iter().zip(fan_out::digits(answer?, places.len())?) {
                            found[*at] = match digit {
                                b'0' => false,
                                b'1' => true,
                                _ => return Err(wrong_type(&keys[*at])),
                            };
                        }
                    }
                }
            }
            (parts, resend) = (apart, Resend::AwaitMigration);
        }
        Ok(found)
    }
}

fn write<'a>(cmd: &mut Cmd, keys: impl ExactSizeIterator<Item = &'a Name>, op: MarkOp) {
    cmd.arg(keys.len());
    for key in keys {
        cmd.arg(key.as_str());
    }
    match op {
        MarkOp::Set(ttl) => cmd.arg("m").arg(px(ttl)),
        MarkOp::SetIfAbsent(ttl) => cmd.arg("n").arg(px(ttl)),
        MarkOp::Test => cmd.arg("e"),
        MarkOp::Clear => cmd.arg("c"),
    };
}
