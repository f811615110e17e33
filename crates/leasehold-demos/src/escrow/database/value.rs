//! What is bound to a statement, and what a row has.

use crate::Result;

#[derive(Clone, Debug)]
pub(in super::super) enum Value {
    Number(i64),
    Text(String),
    Nothing,
}

/// The values of a statement, in their order.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::escrow::database::Value::from($value)),*] };
}
pub(in super::super) use values;

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number.cast_signed())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Nothing, Self::from)
    }
}

pub(in super::super) struct Row(pub(super) Vec<Value>);

impl Row {
    pub(in super::super) fn number(&self, column: usize) -> Result<i64> {
        match self.0.get(column) {
            Some(Value::Number(number)) => Ok(*number),
            other => Err(format!("a number was expected, not {other:?}").into()),
        }
    }

    /// A number that is never negative.
    pub(in super::super) fn count(&self, column: usize) -> Result<u64> {
        Ok(self.number(column)?.try_into()?)
    }

    pub(in super::super) fn text(&self, column: usize) -> Result<String> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Ok(text.clone()),
            other => Err(format!("a text was expected, not {other:?}").into()),
        }
    }
}
