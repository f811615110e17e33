//! What answers and errors of the server mean.

use std::{num::NonZeroU32, time::Duration};

use tokio_postgres::{Error, Row, error::SqlState};

use super::Result;
use leasehold_core::{
    engine::{EngineError, Fault, Holders, Mode, Tenure},
    error::Refusal,
    fence::Fence,
    owner::Holder,
};

/// The server ended the transaction because of another one: it did nothing.
pub(super) fn may_be_repeated(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Whether the server has no statement by that name any more, or one that answered in another form before a migration. It did
/// nothing.
pub(super) fn is_unnamed(error: &Error) -> bool {
    let is_of_old = |error: &Error| {
        let answer = error.as_db_error();
        answer.is_some_and(|answer| answer.message().contains("cached plan must not change result type"))
    };
    match error.code() {
        Some(&SqlState::INVALID_SQL_STATEMENT_NAME) => true,
        Some(&SqlState::FEATURE_NOT_SUPPORTED) => is_of_old(error),
        _ => false,
    }
}

/// An error in one line, without anything that was sent.
pub(super) fn words(error: &Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(answer), _) => format!("{} ({})", answer.message(), answer.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Why no connection was established. Nothing was sent over it.
pub(super) fn dial_error(error: &Error) -> EngineError {
    let fault = match error.code() {
        Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            Fault::Refused(Refusal::Auth)
        }
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Fault::Refused(Refusal::Acl),
        Some(&SqlState::INVALID_CATALOG_NAME) => Fault::Refused(Refusal::Other),
        Some(_) => Fault::Unreachable,
        None if words(error).contains("certificate") => Fault::Refused(Refusal::Certificate),
        None if error.to_string().contains("configuration") => Fault::Refused(Refusal::Auth),
        None => Fault::Unreachable,
    };
    EngineError::new(fault, words(error))
}

/// What the failure of a statement means.
pub(super) fn error(error: &Error) -> EngineError {
    let Some(answer) = error.as_db_error() else {
        return EngineError::new(Fault::NoAnswer, words(error));
    };
    let code = answer.code().code();
    if is_own(code) {
        return own_error(code, answer.message(), answer.detail());
    }
    let (fault, hint) = fault(code);
    let words = words(error);
    EngineError::new(fault, if hint.is_empty() { words } else { format!("{hint}: {words}") })
}

/// Why one of several claims is refused: SQLSTATE, message and detail.
pub(super) fn refusal(parts: &[String]) -> EngineError {
    match parts {
        [code, message, detail @ ..] => own_error(code, message, detail.first().map(String::as_str)),
        _ => EngineError::new(Fault::Corrupt, "a refusal without a reason was answered"),
    }
}

/// An error that the functions raise themselves.
fn own_error(code: &str, message: &str, detail: Option<&str>) -> EngineError {
    match (code, detail.and_then(limits)) {
        ("LH003", Some((stored, asked))) => EngineError::other_limit(stored, asked),
        ("LH008", Some((stored, asked))) => EngineError::other_count(stored, asked),
        (_, Some((limit, asked))) => EngineError::above_limit(limit, asked),
        _ => EngineError::new(fault(code).0, message),
    }
}

/// The number of permits or parties that there are, and the one that was asked for.
fn limits(detail: &str) -> Option<(NonZeroU32, NonZeroU32)> {
    let (stored, asked) = detail.split_once(' ')?;
    Some((stored.parse().ok()?, asked.parse().ok()?))
}

/// Nothing happened, and the next try may get through.
const ROW_LOCKED: &str = "other transactions keep its row locked";

/// What it means that a lease could not be taken from its holder in time.
pub(super) fn still_checked(error: EngineError) -> EngineError {
    if !error.why.starts_with(ROW_LOCKED) {
        return error;
    }
    EngineError::new(Fault::Refused(Refusal::Other), "a transaction that checked this lock is still open")
}

fn is_own(code: &str) -> bool {
    code.starts_with("LH")
}

fn fault(code: &str) -> (Fault, &'static str) {
    let refused = |refusal, hint| (Fault::Refused(refusal), hint);
    match code {
        "LH002" => (Fault::OtherMode, ""),
        "LH005" => (Fault::Overloaded, ""),
        "LH006" => (Fault::Ended, ""),
        "LH009" => (Fault::Unsupported, ""),
        // lock_not_available
        "55P03" => (Fault::Unreachable, ROW_LOCKED),
        // insufficient_privilege
        "42501" => refused(Refusal::Acl, "the user lacks a right on the schema leasehold"),
        // undefined_function, invalid_schema_name, undefined_table, undefined_column
        "42883" | "3F000" | "42P01" | "42703" => refused(
            Refusal::Other,
            "the schema leasehold is missing or of another version; run: leasehold migrate",
        ),
        // read_only_sql_transaction
        "25006" => refused(Refusal::ReadOnly, ""),
        // disk_full, out_of_memory
        "53100" | "53200" => refused(Refusal::OutOfMemory, ""),
        // query_canceled, admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout, connection failures
        "57014" | "57P01" | "57P02" | "57P03" | "57P05" => (Fault::NoAnswer, ""),
        code if code.starts_with("08") || code.starts_with("58") || code.starts_with("XX") => {
            (Fault::NoAnswer, "")
        }
        _ => refused(Refusal::Other, ""),
    }
}

/// An answer that has not the form of ours.
pub(super) fn unexpected(error: &Error) -> EngineError {
    let why = format!("an answer of another form; the schema leasehold is of another version ({error})");
    EngineError::new(Fault::Corrupt, why)
}

/// A column by name.
pub(super) fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, column: &str) -> Result<T> {
    row.try_get(column).map_err(|error| unexpected(&error))
}

/// The only row.
pub(super) fn one(rows: Vec<Row>) -> Result<Row> {
    rows.into_iter().next().ok_or_else(|| EngineError::new(Fault::Corrupt, "no row was answered"))
}

pub(super) fn fence(number: i64) -> Fence {
    Fence::new(number.max(0).unsigned_abs())
}

pub(super) fn micros(number: i64) -> Duration {
    Duration::from_micros(number.max(0).unsigned_abs())
}

/// How something is held, from `take` and the number of permits.
pub(super) fn mode(take: i32, of: i32) -> Mode {
    let number = |number: i32| u32::try_from(number).ok().and_then(NonZeroU32::new);
    match (number(take), number(of)) {
        (Some(take), Some(of)) => Mode::Permits { take, of },
        _ if take == 0 => Mode::Shared,
        _ => Mode::Exclusive,
    }
}

/// `take` of a mode, and the number of permits.
pub(super) fn take(mode: Mode) -> (i32, i32) {
    let number = |number: NonZeroU32| i32::try_from(number.get()).unwrap_or(i32::MAX);
    match mode {
        Mode::Shared => (0, 0),
        Mode::Permits { take, of } => (number(take), number(of)),
        _ => (-1, 0),
    }
}

/// What people see of a holder; the owner value never leaves the database.
pub(super) fn holder(text: &str) -> Holder {
    Holder::parse(&format!("{:032} {text}", 0))
}

/// The words of a line in front of a holder's text, and that.
fn numbers<const N: usize>(line: &str) -> Option<([i64; N], &str)> {
    let (mut numbers, mut rest) = ([0; N], line);
    for number in &mut numbers {
        let (word, others) = rest.split_once(' ')?;
        (*number, rest) = (word.parse().ok()?, others);
    }
    Some((numbers, rest))
}

/// The holders of a name: "FENCE LEFT_US TAKE OUT_OF HOLDER" of each that is listed.
pub(super) fn holders(total: Option<i32>, free_in_us: Option<i64>, held_by: Option<&[String]>) -> Holders {
    let tenure = |line: &String| {
        let ([its_fence, left_us, take, of], text) = numbers::<4>(line)?;
        Some(Tenure {
            holder: holder(text),
            fence: fence(its_fence),
            mode: mode(take as i32, of as i32),
            expires_in: Some(micros(left_us)),
        })
    };
    Holders {
        shown: held_by.unwrap_or_default().iter().filter_map(tenure).collect(),
        total: total.map_or(0, |total| total.max(0).unsigned_abs()),
        free_in: free_in_us.map(micros),
    }
}

/// A waiter: "TAKE OUT_OF WAITING_US HOLDER".
pub(super) fn waiter(line: &str) -> Option<leasehold_core::engine::Waiter> {
    let ([take, of, waiting_us], text) = numbers::<3>(line)?;
    Some(leasehold_core::engine::Waiter {
        holder: holder(text),
        mode: mode(take as i32, of as i32),
        waiting_for: micros(waiting_us),
    })
}

/// A participant of a latch: "COUNTED LEFT_US HOLDER".
pub(super) fn participant(line: &str) -> Option<leasehold_core::engine::latches::ParticipantInfo> {
    let ([counted, left_us], text) = numbers::<2>(line)?;
    let expires_in = (left_us >= 0).then(|| micros(left_us));
    Some(leasehold_core::engine::latches::ParticipantInfo::new(holder(text), counted > 0, expires_in))
}
