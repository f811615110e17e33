//! Reading what a server tells about itself.

use redis::{Cmd, Value};

use crate::engine::{EngineError, Fault, redis::answer};

/// An answer to INFO.
#[derive(Default)]
pub(in crate::engine::redis) struct Info(Vec<(String, String)>);

impl Info {
    pub(in crate::engine::redis) fn parse(value: &Value) -> Self {
        let text = match value {
            Value::VerbatimString { text, .. } => text,
            other => answer::text(other).unwrap_or_default(),
        };
        let pair = |line: &str| {
            line.split_once(':').map(|(field, value)| (field.to_owned(), value.trim().to_owned()))
        };
        Self(text.lines().filter_map(pair).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }

    pub(in crate::engine::redis) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }
}

/// Names and values, as CONFIG GET tells them.
pub(super) fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| answer::text(value).unwrap_or_default().to_owned();
    match value {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        Value::Array(list) => list.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect(),
        _ => Vec::new(),
    }
}

/// The server's wall clock in microseconds since 1970, from its answer to TIME.
pub(super) fn server_us(value: &Value) -> Option<u64> {
    let Value::Array(parts) = value else { return None };
    let number = |at: usize| answer::text(parts.get(at)?)?.parse::<u64>().ok();
    number(0)?.checked_mul(1_000_000)?.checked_add(number(1)?)
}

pub(super) fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    words.iter().for_each(|word| {
        cmd.arg(word);
    });
    cmd
}

/// A refusal means that this user may not see it, which is a finding; silence is a fault.
pub(super) fn permitted(answer: Result<Value, EngineError>) -> Result<Option<Value>, EngineError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(EngineError { fault: Fault::Refused(_), .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
