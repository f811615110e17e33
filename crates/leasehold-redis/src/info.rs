//! What servers report about themselves, as fields and values.

use std::collections::HashMap;

use redis::{Cmd, FromRedisValue, Value, from_redis_value_ref};

/// Fields of INFO, CONFIG GET or SENTINEL MASTER.
#[derive(Clone, Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    /// Reads an answer to INFO.
    pub(super) fn parse(value: &Value) -> Self {
        let text: String = read(value).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(field, value)| (field.to_owned(), value.trim().to_owned())).collect())
    }

    /// Reads names and values, as a map or as a list.
    pub(super) fn of_pairs(value: &Value) -> Self {
        Self(read(value).unwrap_or_default())
    }

    /// Adds an answer to CONFIG GET, whose names are others than those of INFO.
    pub(super) fn add(&mut self, settings: &Value) {
        self.0.extend(Self::of_pairs(settings).0);
    }

    pub(super) fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub(super) fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }
}

/// A value in the form that is expected, if it has that.
pub(super) fn read<T: FromRedisValue>(value: &Value) -> Option<T> {
    from_redis_value_ref(value).ok()
}

pub(super) fn command(words: &[&str]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(words);
    cmd
}

/// A slot or a port; the driver's own conversion would cut off what is too large.
pub(super) fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}
