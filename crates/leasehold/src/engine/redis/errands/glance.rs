//! A cheap question before errands that are mostly needless: has the time come for anything in their sorted sets?
//!
//! A script in each bucket costs a node more than everything else of a claim that finds nothing; a plain read does not.

use redis::{Cmd, Value};

use super::Errand;
use crate::{
    clock::Until,
    engine::redis::{
        answer::text,
        node::{Connection, Node},
    },
};

/// Which of these errands are needless, by the node's own time. What the node does not answer, or answers in another way than
/// expected, is left to the errand itself.
pub(super) async fn needless(
    node: &Node,
    connection: &Connection,
    errands: &[&Errand<'_>],
    until: Until,
) -> Vec<bool> {
    let asked: Vec<_> = (0..errands.len()).filter(|at| errands[*at].unless_due.is_some()).collect();
    let mut needless = vec![false; errands.len()];
    if asked.is_empty() {
        return needless;
    }
    let firsts = asked.iter().filter_map(|at| errands[*at].unless_due.as_deref()).map(first);
    let calls = std::iter::once(redis::cmd("TIME")).chain(firsts).collect();
    let mut answers = node.send_all(connection, calls, until).await.into_iter();
    let Some(now) = answers.next().and_then(Result::ok).as_ref().and_then(now_ms) else { return needless };
    for (at, answer) in asked.into_iter().zip(answers) {
        needless[at] = answer.is_ok_and(|first| is_later(&first, now));
    }
    needless
}

/// Asks for the member of a sorted set that is due first.
fn first(key: &str) -> Cmd {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(key).arg(0).arg(0).arg("WITHSCORES");
    cmd
}

fn now_ms(time: &Value) -> Option<f64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let part = |value| text(value)?.parse::<u64>().ok();
    Some((part(seconds)? * 1000 + part(micros)? / 1000) as f64)
}

/// Whether the first member, if there is one, is due after this time. With its score it comes as a pair, which newer
/// protocols put into a list of its own.
fn is_later(first: &Value, now: f64) -> bool {
    match first {
        Value::Array(parts) => match &parts[..] {
            [] => true,
            [pair @ Value::Array(_)] => is_later(pair, now),
            [_, Value::Double(score)] => *score > now,
            [_, score] => {
                text(score).and_then(|score| score.parse::<f64>().ok()).is_some_and(|due| due > now)
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(parts: &[&str]) -> Value {
        Value::Array(parts.iter().map(|part| Value::BulkString((*part).into())).collect())
    }

    #[test]
    fn only_what_is_surely_due_later_is_needless() {
        let now = now_ms(&texts(&["1700000000", "5999"])).unwrap();
        assert_eq!(now, 1_700_000_000_005.0);
        let later = [
            texts(&[]),
            texts(&["a", "1700000000006"]),
            texts(&["a", "inf"]),
            Value::Array(vec![Value::Array(vec![Value::Nil, Value::Double(now + 1.0)])]),
        ];
        assert!(later.iter().all(|first| is_later(first, now)));
        let unsure = [
            texts(&["a", "1700000000005"]),
            texts(&["a", "-inf"]),
            texts(&["a", "x"]),
            texts(&["a", "nan"]),
            texts(&["a"]),
            Value::Nil,
            Value::Array(vec![Value::Array(vec![Value::Nil, Value::Double(now)])]),
        ];
        assert!(unsure.iter().all(|first| !is_later(first, now)));
        assert!([texts(&["1"]), texts(&["a", "b"]), Value::Nil].iter().all(|time| now_ms(time).is_none()));
    }
}
