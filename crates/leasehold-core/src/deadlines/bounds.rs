//! What deadlines may be. Every bound is named in the error that it leads to.

use std::time::Duration;

use crate::{
    config::between,
    engine::deadlines::{Deadline, DueTime, Settle},
    error::{Error, Result},
    name::Name,
    text::{cut, placed, quoted},
};

/// Longest name of a pool. Short enough for the lock `recovery:POOL` in every store.
pub const POOL_NAME_MAX_BYTES: usize = 200;
/// Buckets of a new pool.
pub const BUCKETS_DEFAULT: u16 = 16;
/// Longest id of a deadline.
pub const ID_MAX_BYTES: usize = 512;
/// Largest context unless the pool says otherwise.
pub const CONTEXT_BYTES_DEFAULT: usize = 64 * 1024;
/// Largest context that a pool can allow.
pub const CONTEXT_BYTES_MAX: usize = 1024 * 1024;
/// Most deadlines in one call to the store, and on one page.
pub const ITEMS_MAX: usize = 10_000;
/// Deadlines that one claim takes from a bucket unless it says otherwise.
pub(super) const LIMIT_DEFAULT: u32 = 100;
/// Visibility of a claim that does not say otherwise.
pub(super) const VISIBILITY_DEFAULT: Duration = Duration::from_secs(60);
/// Most deadlines that one claim takes from a bucket.
pub const LIMIT_MAX: u32 = 1_000;
/// Shortest visibility. Below it a claim would be over before its answer arrives.
pub const VISIBILITY_MIN: Duration = Duration::from_millis(100);
/// Longest visibility: a claimer that died keeps others waiting that long.
pub const VISIBILITY_MAX: Duration = Duration::from_secs(86_400);
/// Farthest deadline: ten years from now.
pub const DUE_MAX: Duration = Duration::from_secs(3_650 * 86_400);

/// The end of the year 9999: a number that every store and language can hold.
const AT_MAX_MS: u64 = 253_402_300_799_999;
/// Longest reason for burying, in bytes; a longer one is cut.
pub(super) const WHY_MAX_BYTES: usize = 1_024;

pub(super) fn pool_name(name: &str) -> Result<Name> {
    let what = "name of a deadline pool";
    let expected = format!("at most {POOL_NAME_MAX_BYTES} bytes");
    check(what, quoted(name), name.len() <= POOL_NAME_MAX_BYTES, &expected)?;
    // A store that places keys by hash tag puts its own braces around the name.
    check(what, quoted(name), !name.contains(['{', '}']), "printable text without { and }")?;
    Name::new(name).map_err(|error| placed(error, what))
}

pub(super) fn check_page(limit: u32) -> Result<()> {
    between("page size", limit as usize, 1, ITEMS_MAX)
}

pub(super) fn check_claim(limit: u32, visibility: Duration) -> Result<()> {
    between("limit of a claim per bucket", limit, 1, LIMIT_MAX)?;
    between("visibility", visibility, VISIBILITY_MIN, VISIBILITY_MAX)
}

/// What becomes of a deadline, as it is stored: a long reason is cut.
pub(super) fn checked(settle: &Settle) -> Result<Settle> {
    match settle {
        Settle::Postpone(by) => between("postponement", *by, Duration::ZERO, DUE_MAX)?,
        Settle::Bury(why) => return Ok(Settle::Bury(cut(why, WHY_MAX_BYTES).to_owned())),
        Settle::Done | Settle::GiveBack => {}
    }
    Ok(settle.clone())
}

pub(super) fn check_id(id: &str) -> Result<()> {
    let good = (1..=ID_MAX_BYTES).contains(&id.len()) && !id.chars().any(char::is_control);
    check("id of a deadline", quoted(id), good, &format!("1 to {ID_MAX_BYTES} bytes of printable text"))
}

pub(super) fn check_deadline(deadline: &Deadline, context_max: usize) -> Result<()> {
    check_id(&deadline.id)?;
    match deadline.due {
        DueTime::In(after) => between("time until a deadline", after, Duration::ZERO, DUE_MAX)?,
        DueTime::AtMs(at) => {
            check("time of a deadline", at, at <= AT_MAX_MS, "milliseconds since 1970 until the year 9999")?;
        }
    }
    let size = deadline.context.as_ref().map_or(0, |context| context.len());
    let got = format!("{size} bytes for {}", quoted(&deadline.id));
    check("size of a context", got, size <= context_max, &format!("at most {context_max} bytes"))
}

fn check(what: &str, got: impl ToString, good: bool, expected: &str) -> Result<()> {
    if good { Ok(()) } else { Err(Error::invalid(what, got.to_string(), expected)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: Result<()>, words: &str) {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(words) && text.len() < 250, "{text}");
    }

    #[test]
    fn what_is_out_of_range_is_named_with_its_range() {
        refused(check_id(""), "id of a deadline");
        refused(check_id(&"x".repeat(513)), "1 to 512 bytes");
        refused(check_id("a\nb"), "printable");
        refused(check_claim(1_001, VISIBILITY_MIN), "per bucket \"1001\": expected 1 to 1000");
        refused(check_claim(1_000, Duration::from_millis(99)), "100ms");
        refused(check_page(10_001), "1 to 10000");
        refused(checked(&Settle::Postpone(DUE_MAX * 2)).map(drop), "postponement");
        refused(pool_name("a{b}c").map(drop), "without { and }");
        refused(pool_name("").map(drop), "deadline pool");
        refused(pool_name(&"p".repeat(201)).map(drop), "200 bytes");
        let far = Deadline { id: "a".into(), due: DueTime::AtMs(u64::MAX), context: None };
        refused(check_deadline(&far, 10), "year 9999");
        let large = Deadline { due: DueTime::AtMs(0), context: Some(vec![0; 11].into()), ..far };
        refused(check_deadline(&large, 10), "11 bytes for a");
        check_deadline(&large, 11).unwrap();
    }

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        for (why, stored) in [(format!("x{}", "ä".repeat(600)), 1_023), ("short".to_owned(), 5)] {
            let Ok(Settle::Bury(cut)) = checked(&Settle::Bury(why)) else { panic!("a reason is no error") };
            assert_eq!(cut.len(), stored);
        }
    }
}
