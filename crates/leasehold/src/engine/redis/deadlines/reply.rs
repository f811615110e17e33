//! What the scripts of deadlines answered.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::engine::{
    EngineError,
    deadlines::{Batch, Dead, DeadlineId, Delivery, Pending, PoolStats, Receipt},
    redis::answer::{text, unexpected},
};

type Result<T> = std::result::Result<T, EngineError>;

/// The parts of a list.
pub(super) fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

/// A list of so many parts.
fn parts<const N: usize>(value: Value) -> Result<[Value; N]> {
    <[Value; N]>::try_from(list(value)?).map_err(|list| unexpected(&Value::Array(list)))
}

fn number<T: std::str::FromStr>(value: &Value) -> Result<T> {
    let read = match value {
        Value::Int(int) => int.to_string().parse().ok(),
        other => text(other).and_then(|text| text.parse().ok()),
    };
    read.ok_or_else(|| unexpected(value))
}

fn id(value: Value) -> Result<DeadlineId> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into()),
        other => Err(unexpected(&other)),
    }
}

fn context(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        _ => None,
    }
}

/// The server's time, and how long before it something was due.
struct Now(f64);

impl Now {
    /// Takes the time from the begin of an answer.
    fn of(answer: Vec<Value>) -> Result<(Self, impl Iterator<Item = Value>)> {
        let mut parts = answer.into_iter();
        let now = parts.next().unwrap_or(Value::Nil);
        Ok((Self(number(&now)?), parts))
    }

    fn overdue(&self, score: &Value) -> Result<Duration> {
        // Others may have written scores that are no whole numbers, or endless ones.
        let ms = (self.0 - number::<f64>(score)?).max(0.0);
        Ok(Duration::from_millis(ms as u64))
    }
}

/// Adds what one call claimed; none if nothing was due.
pub(super) fn claimed(value: Value, into: &mut Batch) -> Result<()> {
    if value == Value::Nil {
        return Ok(());
    }
    let (now, buckets) = Now::of(list(value)?)?;
    for bucket in buckets {
        let [receipt, more, found, attempts, contexts] = parts(bucket)?;
        into.more |= more == Value::Int(1);
        let (receipt, mut found) = (number(&receipt)?, list(found)?.into_iter());
        let mut contexts = match contexts {
            Value::Array(contexts) => contexts.into_iter(),
            _ => Vec::new().into_iter(),
        };
        for attempt in list(attempts)? {
            let (Some(name), Some(score)) = (found.next(), found.next()) else {
                return Err(unexpected(&Value::Array(Vec::new())));
            };
            into.due.push(Delivery {
                receipt: Receipt { id: id(name)?, number: receipt },
                attempt: number(&attempt)?,
                overdue: now.overdue(&score)?,
                context: contexts.next().and_then(context),
            });
        }
    }
    Ok(())
}

/// Adds what one call saw due, and since when: servers that are asked at once do not have quite the same time.
pub(super) fn peeked(value: Value, into: &mut Vec<(f64, Pending)>) -> Result<()> {
    let (now, buckets) = Now::of(list(value)?)?;
    for bucket in buckets {
        let mut found = list(bucket)?.into_iter();
        while let (Some(name), Some(score), Some(attempts)) = (found.next(), found.next(), found.next()) {
            let (overdue, attempts) = (now.overdue(&score)?, number(&attempts)?);
            into.push((number(&score)?, Pending { id: id(name)?, attempts, overdue }));
        }
    }
    Ok(())
}

/// Adds how the buckets of one call stand.
pub(super) fn stats(value: Value, into: &mut PoolStats) -> Result<()> {
    let (now, buckets) = Now::of(list(value)?)?;
    for bucket in buckets {
        let [pending, due, tried, oldest, dead] = parts(bucket)?;
        into.pending += number::<u64>(&pending)?;
        into.due += number::<u64>(&due)?;
        into.tried += number::<u64>(&tried)?;
        into.dead += number::<u64>(&dead)?;
        if oldest != Value::Nil {
            into.overdue = into.overdue.max(now.overdue(&oldest)?);
        }
    }
    Ok(())
}

/// One answer per receipt or id.
pub(super) fn digits(value: Value, expected: usize) -> Result<Vec<bool>> {
    match value {
        Value::BulkString(digits) if digits.len() == expected => {
            Ok(digits.into_iter().map(|digit| digit == b'1').collect())
        }
        other => Err(unexpected(&other)),
    }
}

/// The next cursor of a bucket, and some of its dead deadlines.
pub(super) fn dead(value: Value) -> Result<(String, Vec<Dead>)> {
    let [next, found] = parts(value)?;
    let mut found = list(found)?.into_iter();
    let mut some = Vec::new();
    while let (Some(name), Some(Value::BulkString(text))) = (found.next(), found.next()) {
        some.push(buried(id(name)?, &text));
    }
    Ok((text(&next).unwrap_or("0").to_owned(), some))
}

/// What `settle.lua` wrote.
fn buried(id: DeadlineId, text: &[u8]) -> Dead {
    read_buried(&id, text).unwrap_or_else(|| Dead {
        id,
        attempts: 0,
        buried_at_ms: 0,
        why: "what is stored cannot be read".into(),
        context: None,
    })
}

fn read_buried(id: &DeadlineId, text: &[u8]) -> Option<Dead> {
    let mut words = text.splitn(4, |byte| *byte == b' ');
    let mut next = || words.next();
    let attempts = std::str::from_utf8(next()?).ok()?.parse().ok()?;
    let buried_at_ms = std::str::from_utf8(next()?).ok()?.parse().ok()?;
    let why_bytes: usize = std::str::from_utf8(next()?).ok()?.parse().ok()?;
    let (why, rest) = next()?.split_at_checked(why_bytes)?;
    let context = match rest {
        [] => None,
        [b' ', context @ ..] => Some(Bytes::copy_from_slice(context)),
        _ => return None,
    };
    Some(Dead {
        id: id.clone(),
        attempts,
        buried_at_ms,
        why: String::from_utf8_lossy(why).into_owned(),
        context,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_buried_is_read_back_with_its_context() {
        let read = |text: &[u8]| buried("x".into(), text);
        let dead = read(b"3 1700000000000 5 no go ctx \xff");
        assert_eq!((dead.attempts, dead.buried_at_ms, &*dead.why), (3, 1_700_000_000_000, "no go"));
        assert_eq!(dead.context.as_deref(), Some(&b"ctx \xff"[..]));
        assert_eq!(read(b"3 1 5 no go").context, None);
        assert_eq!(read(b"3 1 5 no go ").context.as_deref(), Some(&b""[..]));
        for odd in [&b""[..], b"3", b"3 1 9 no go", b"x 1 1 a", b"3 1 1 ab"] {
            assert_eq!(read(odd).why, "what is stored cannot be read");
        }
    }
}
