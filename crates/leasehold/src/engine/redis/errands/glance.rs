//! A cheap question before errands that are mostly needless: is anything in their sorted sets due?
//!
//! A script in each bucket costs a node more than everything else of a claim that finds nothing; a plain count does not. How
//! many are due by a time can only be asked with the time, so it is ours, a little ahead; and the node tells its own after
//! all counts. If that is later, our clock is no good, and the errands are sent.

use redis::{Cmd, Value};

use super::Errand;
use crate::{
    clock::Until,
    engine::redis::{answer::text, connection::Link},
};

/// A sorted set by due times, and a time that the node will not have reached when it is asked; both in ms.
pub(super) struct Glance {
    pub(super) key: String,
    pub(super) soon: u64,
}

impl Glance {
    fn question(&self) -> Cmd {
        let mut cmd = Cmd::with_capacity(4, self.key.len() + 30);
        cmd.arg("ZCOUNT").arg(&self.key).arg("-inf").arg(self.soon);
        cmd
    }

    /// Whether nothing was due when the node counted, which told its time after it.
    fn is_needless(&self, count: &Value, now: u64) -> bool {
        *count == Value::Int(0) && now <= self.soon
    }
}

/// Which of these errands are needless. What the node does not answer, or answers in another way than expected, is left to the
/// errand itself.
pub(super) async fn needless(link: &Link, errands: &[&Errand<'_>], until: Until) -> Vec<bool> {
    let mut needless = vec![false; errands.len()];
    let asked = || errands.iter().enumerate().filter_map(|(at, errand)| Some((at, errand.glance.as_ref()?)));
    let mut calls: Vec<_> = asked().map(|(_, glance)| glance.question()).collect();
    if calls.is_empty() {
        return needless;
    }
    calls.push(redis::cmd("TIME"));
    let mut answers = link.send_all(calls, until).await;
    let Some(now) = answers.pop().and_then(Result::ok).as_ref().and_then(now_ms) else { return needless };
    for ((at, glance), answer) in asked().zip(answers) {
        needless[at] = answer.is_ok_and(|count| glance.is_needless(&count, now));
    }
    needless
}

/// The answer of TIME in milliseconds.
fn now_ms(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let part = |value| text(value)?.parse::<u64>().ok();
    Some(part(seconds)? * 1000 + part(micros)? / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_needless_by_a_clock_that_is_behind() {
        let glance = Glance { key: String::new(), soon: 1000 };
        let needless = |count, now| glance.is_needless(&Value::Int(count), now);
        assert!(needless(0, 0) && needless(0, 1000));
        assert!(!needless(0, 1001) && !needless(1, 0) && !glance.is_needless(&Value::Nil, 0));
    }

    #[test]
    fn the_time_of_a_node_is_read_in_milliseconds() {
        let texts = |parts: &[&str]| {
            Value::Array(parts.iter().map(|part| Value::BulkString((*part).into())).collect())
        };
        assert_eq!(now_ms(&texts(&["1700000000", "5999"])), Some(1_700_000_000_005));
        for other in [texts(&["1"]), texts(&["a", "b"]), texts(&["1", "2", "3"]), Value::Nil] {
            assert_eq!(now_ms(&other), None);
        }
    }
}
