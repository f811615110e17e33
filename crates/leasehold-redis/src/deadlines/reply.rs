//! What the scripts of deadlines answered.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use crate::reply::read;
use leasehold_core::engine::{
    EngineError,
    deadlines::{Batch, Dead, DeadlineId, Delivery, Pending, PoolStats, Receipt},
};

type Result<T> = std::result::Result<T, EngineError>;

fn id(bytes: Vec<u8>) -> DeadlineId {
    String::from_utf8_lossy(&bytes).into()
}

/// Others may have written scores that are no whole numbers, or endless ones.
fn overdue(now: f64, score: f64) -> Duration {
    Duration::from_millis((now - score).max(0.0) as u64)
}

/// Adds what one call claimed.
pub(super) fn claimed(value: Value, into: &mut Batch) -> Result<()> {
    type Items = Vec<(Vec<u8>, f64, u32, Option<Vec<u8>>)>;
    let Some((now, buckets)) = read::<Option<(f64, Vec<(u64, bool, Items)>)>>(value)? else { return Ok(()) };
    for (number, more, items) in buckets {
        into.more |= more;
        into.due.extend(items.into_iter().map(|(name, score, attempt, context)| Delivery {
            receipt: Receipt { id: id(name), number },
            attempt,
            overdue: overdue(now, score),
            context: context.map(Bytes::from),
        }));
    }
    Ok(())
}

/// Adds what one call saw due, and since when: servers that are asked at once do not have quite the same time.
pub(super) fn peeked(value: Value, into: &mut Vec<(f64, Pending)>) -> Result<()> {
    let (now, items) = read::<(f64, Vec<(Vec<u8>, f64, u32)>)>(value)?;
    into.extend(items.into_iter().map(|(name, score, attempts)| {
        (score, Pending { id: id(name), attempts, overdue: overdue(now, score) })
    }));
    Ok(())
}

/// Adds how the buckets of one call stand.
pub(super) fn stats(value: Value, into: &mut PoolStats) -> Result<()> {
    let (now, buckets) = read::<(f64, Vec<(u64, u64, u64, Option<f64>, u64)>)>(value)?;
    for (pending, due, tried, oldest, dead) in buckets {
        into.pending += pending;
        into.due += due;
        into.tried += tried;
        into.dead += dead;
        into.overdue = into.overdue.max(oldest.map_or(Duration::ZERO, |oldest| overdue(now, oldest)));
    }
    Ok(())
}

/// The next cursor of a bucket, and some of its dead deadlines.
pub(super) fn dead(value: Value) -> Result<(String, Vec<Dead>)> {
    let (next, found) = read::<(String, Vec<(Vec<u8>, Vec<u8>)>)>(value)?;
    Ok((next, found.into_iter().map(|(name, text)| buried(id(name), &text)).collect()))
}

/// What `settle.lua` wrote.
fn buried(id: DeadlineId, text: &[u8]) -> Dead {
    let (attempts, buried_at_ms, why, context) =
        read_buried(text).unwrap_or_else(|| (0, 0, "what is stored cannot be read".into(), None));
    Dead { id, attempts, buried_at_ms, why, context }
}

fn read_buried(text: &[u8]) -> Option<(u32, u64, String, Option<Bytes>)> {
    let mut words = text.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (attempts, buried_at_ms, why_bytes) = (number()?, number()?, number()?);
    let (why, rest) = words.next()?.split_at_checked(usize::try_from(why_bytes).ok()?)?;
    let context = match rest {
        [] => None,
        [b' ', context @ ..] => Some(Bytes::copy_from_slice(context)),
        _ => return None,
    };
    Some((u32::try_from(attempts).ok()?, buried_at_ms, String::from_utf8_lossy(why).into_owned(), context))
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
