//! Marks, many at once.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use redis::{Cmd, Value};

use super::{super::fan_out::ScriptCall, foreign};
use crate::{
    clock::Until,
    engine::{
        EngineError,
        redis::{
            Redis, answer,
            script::{self, Script, px},
            topology::{outcome, slots},
        },
    },
    name::Name,
};

/// Sets, tests and clears.
static MARKS: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/records/marks.lua")));

/// Keys in one call; bounds how long the server is busy with one.
const MARKS_PER_CALL: usize = 1000;

/// About the size of a key.
const KEY_BYTES: usize = 64;

/// What to do with marks.
#[derive(Clone, Copy)]
pub(super) enum MarkOp {
    Set(Duration),
    SetIfAbsent(Duration),
    Test,
    Clear,
}

impl Redis {
    /// One answer per key. On one server all leave in one write; in a cluster all that a shard has.
    pub(super) async fn on_marks(
        &self,
        keys: &[Name],
        op: MarkOp,
        until: Until,
    ) -> Result<Vec<bool>, EngineError> {
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            foreign::check(key)?;
            let slot = self.topology.slot(|| slots::slot(key.as_str()));
            groups.entry(slot).or_default().push(at);
        }
        let calls: Vec<(u16, &[usize])> = groups
            .iter()
            .flat_map(|(slot, places)| places.chunks(MARKS_PER_CALL).map(|some| (*slot, some)))
            .collect();
        let build = |places: &[usize], script: &Script, by_hash: bool| {
            call(script, by_hash, places.iter().map(|at| &keys[*at]), op)
        };
        let whole =
            calls.iter().map(|(slot, places)| ScriptCall::new(*slot, |s, h| build(places, s, h)).fail_fast());
        let answers = self.call_each(keys.first(), &MARKS, whole.collect(), until).await;
        let mut found = vec![false; keys.len()];
        for ((slot, places), answer) in calls.iter().zip(answers) {
            let digits = match answer {
                // Its keys are on two nodes at the moment; each alone can be found.
                Err(error) if outcome::is_try_again(&error) && places.len() > 1 => {
                    let alone = places
                        .iter()
                        .map(|at| ScriptCall::new(*slot, |s, h| build(std::slice::from_ref(at), s, h)));
                    let answers = self.call_each(None, &MARKS, alone.collect(), until).await;
                    let digits = answers.into_iter().map(|answer| digits(answer?, 1));
                    digits.collect::<Result<Vec<_>, _>>()?.concat()
                }
                answer => digits(answer?, places.len())?,
            };
            for (at, digit) in places.iter().zip(digits) {
                found[*at] = match digit {
                    b'0' => false,
                    b'1' => true,
                    _ => return Err(foreign::kind(&keys[*at])),
                };
            }
        }
        Ok(found)
    }
}

fn call<'a>(
    script: &Script,
    by_hash: bool,
    keys: impl ExactSizeIterator<Item = &'a Name>,
    op: MarkOp,
) -> Cmd {
    let mut cmd = script::begin(script, by_hash, keys.len() * KEY_BYTES);
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
    cmd
}

fn digits(value: Value, expected: usize) -> Result<Vec<u8>, EngineError> {
    match value {
        Value::BulkString(digits) if digits.len() == expected => Ok(digits),
        other => Err(answer::unexpected(&other)),
    }
}
