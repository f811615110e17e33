//! Reading what a server reports about itself.

use redis::{Cmd, Value};

use crate::engine::{EngineError, Fault, redis::answer};

/// Fields of INFO, and settings of CONFIG GET, whose names are others.
#[derive(Default)]
pub(in crate::engine::redis) struct Info(Vec<(String, String)>);

impl Info {
    pub(in crate::engine::redis) fn parse(value: &Value) -> Self {
        let text = match value {
            Value::VerbatimString { text, .. } => text,
            other => answer::text(other).unwrap_or_default(),
        };
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(field, value)| (field.to_owned(), value.trim().to_owned())).collect())
    }

    /// Adds an answer to CONFIG GET.
    pub(super) fn add(&mut self, value: &Value) {
        let text = |value: &Value| answer::text(value).unwrap_or_default().to_owned();
        self.0.extend(pairs(value).map(|(name, value)| (text(name), text(value))));
    }

    pub(super) fn get(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == field).map(|(_, value)| value.as_str())
    }

    pub(super) fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    pub(in crate::engine::redis) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }
}

/// Names and values, as a map or as a list.
fn pairs(value: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    let (map, list) = match value {
        Value::Map(map) => (map.as_slice(), &[][..]),
        Value::Array(list) => (&[][..], list.as_slice()),
        _ => (&[][..], &[][..]),
    };
    let in_map = map.iter().map(|(name, value)| (name, value));
    in_map.chain(list.chunks_exact(2).map(|pair| (&pair[0], &pair[1])))
}

/// A value by its name.
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    pairs(value).find(|(field, _)| answer::text(field) == Some(name)).map(|(_, value)| value)
}

/// The server's wall clock in microseconds since 1970, from its answer to TIME.
pub(super) fn server_us(value: &Value) -> Option<u64> {
    let Value::Array(parts) = value else { return None };
    let number = |at: usize| answer::text(parts.get(at)?)?.parse::<u64>().ok();
    number(0)?.checked_mul(1_000_000)?.checked_add(number(1)?)
}

pub(super) fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
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
