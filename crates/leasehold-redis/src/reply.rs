//! Replies and errors of Redis, in the terms of the contract.

use std::{num::NonZeroU32, time::Duration};

use redis::{ErrorKind, FromRedisValue, RedisError, Value};

use leasehold_core::{
    clock::BootInstant,
    engine::{
        AnswerAll, Claim, Converted, EngineError, Fault, Grant, HandedTo, Holders, Mode, Released, Renewed,
        Tenure, WAITERS_MAX, registry::ended_error,
    },
    error::Refusal,
    fence::Fence,
    owner::Holder,
};

/// Who holds a lock: from its text, or of members as `members.lua` tells them. `mode` is that of the claim, whose limit is the
/// one in force.
pub(super) fn holders(told: &Value, pttl: i64, mode: Mode) -> Result<Holders, EngineError> {
    let Value::Array(told) = told else { return Ok(holder(text(told), left(pttl))) };
    let [Value::Int(total), told @ ..] = &told[..] else { return Err(unexpected(&Value::Array(Vec::new()))) };
    let limit = if let Mode::Permits { of, .. } = mode { Some(of) } else { None };
    let shown = members(told, limit)?;
    Ok(Holders { shown, total: u32::try_from(*total).unwrap_or(u32::MAX), free_in: left(pttl) })
}

/// Who holds a lock alone, from its text.
pub(super) fn holder(text: Option<&str>, expires_in: Option<Duration>) -> Holders {
    let Some((holder, fence)) = text.map(tenant) else { return Holders::none(expires_in) };
    Holders::one(Tenure { holder, fence, mode: Mode::Exclusive, expires_in })
}

/// Those who hold a lock together, first come first: the text of each, what it takes, and how many milliseconds are left.
pub(super) fn members(told: &[Value], limit: Option<NonZeroU32>) -> Result<Vec<Tenure>, EngineError> {
    let member = |member: &[Value]| {
        let [text, take, Value::Int(left_ms)] = member else { return Err(unexpected(&Value::Nil)) };
        let (holder, fence) = tenant(self::text(text).unwrap_or_default());
        let take: Option<NonZeroU32> = self::text(take).and_then(|take| take.parse().ok());
        let mode = take.map_or(Mode::Shared, |take| Mode::Permits { take, of: limit.unwrap_or(take) });
        Ok(Tenure { holder, fence, mode, expires_in: left(*left_ms) })
    };
    let mut members = told.chunks(3).map(member).collect::<Result<Vec<_>, _>>()?;
    members.sort_unstable_by_key(|member| member.fence);
    Ok(members)
}

/// The reply to a release of what was held in this mode; `None` if dead waiters were removed and it must be sent again.
pub(super) fn released(value: Value, mode: Mode) -> Result<Option<Released>, EngineError> {
    match items(&value) {
        [Value::Int(1)] => Ok(Some(Released::Free)),
        [Value::Int(3)] => Ok(None),
        [Value::Int(2), next] => Ok(Some(Released::handed_over(Some(fence(next)?)))),
        [Value::Int(2), next, Value::Int(to)] => {
            let to = u32::try_from(*to).unwrap_or(u32::MAX);
            Ok(Some(Released::HandedOver { to, next: Some(fence(next)?) }))
        }
        [Value::Int(0)] | [Value::Int(0), Value::Int(-2), ..] => Ok(Some(Released::Expired)),
        // Others beside whom it held the lock, or could have.
        [Value::Int(0), _, Value::Array(_)] if mode != Mode::Exclusive => Ok(Some(Released::Expired)),
        [Value::Int(0), Value::Int(pttl), told] => {
            let by = holders(told, *pttl, mode)?.shown.into_iter().next();
            let by = by.filter(|by| by.holder != Holder::Foreign).map(|by| by.fence);
            Ok(Some(Released::Taken { by }))
        }
        _ => Err(failed_or_unexpected(value)),
    }
}

/// The reply to several claims at once, which left at this time.
pub(super) fn claimed_all(
    value: &Value,
    claims: &[Claim],
    since: BootInstant,
) -> Result<AnswerAll, EngineError> {
    match items(value) {
        [Value::Int(9), Value::BulkString(_)] => Err(failed_or_unexpected(value.clone())),
        [Value::Int(place), refusal] => {
            let place = usize::try_from(*place).unwrap_or(usize::MAX);
            let claim = claims.get(place).ok_or_else(|| unexpected(value))?;
            let holders = match items(refusal) {
                [Value::Int(3), Value::Int(pttl), told @ ..] => {
                    holders(told.first().unwrap_or(&Value::Nil), *pttl, claim.mode)?
                }
                // Dead waiters were removed, and those behind them come next.
                [Value::Int(7)] => Holders::default(),
                _ => {
                    let error = not_claimed(refusal.clone(), claim.mode);
                    return match error.fault {
                        Fault::NoAnswer | Fault::Ended => Err(error),
                        _ => Ok(AnswerAll::Refused { claim: place, error }),
                    };
                }
            };
            Ok(AnswerAll::Busy { claim: place, holders })
        }
        fences if fences.len() == claims.len() => {
            let grant = |(fence, claim): (&Value, &Claim)| {
                Ok(Grant { fence: self::fence(fence)?, since, ttl: claim.ttl, acks: 0 })
            };
            Ok(AnswerAll::Granted(fences.iter().zip(claims).map(grant).collect::<Result<_, EngineError>>()?))
        }
        _ => Err(unexpected(value)),
    }
}

/// The reply to a hand-over to a certain waiter.
pub(super) fn handed_to(value: Value) -> Result<HandedTo, EngineError> {
    match items(&value) {
        [Value::Int(0)] => Ok(HandedTo::Gone),
        [Value::Int(1), fence] => Ok(HandedTo::Done { fence: self::fence(fence)? }),
        [Value::Int(2)] => Ok(HandedTo::NotWaiting),
        _ => Err(failed_or_unexpected(value)),
    }
}

/// The reply to a change of the mode.
pub(super) fn converted(value: Value, to: Mode, since: BootInstant) -> Result<Converted, EngineError> {
    match items(&value) {
        [Value::Int(0)] => Ok(Converted::Gone),
        [Value::Int(1), fence] => Ok(Converted::Done { fence: self::fence(fence)?, since }),
        [Value::Int(2)] => Ok(Converted::Busy),
        _ => Err(not_claimed(value, to)),
    }
}

/// Why a claim in this mode, or a change to it, was refused.
pub(super) fn not_claimed(value: Value, mode: Mode) -> EngineError {
    let limit = |limit: &i64| u32::try_from(*limit).ok().and_then(NonZeroU32::new);
    match (items(&value), mode) {
        ([Value::Int(8), how], _) => {
            let one = NonZeroU32::MIN;
            let is_semaphore = text(how) == Some("p");
            let held = if is_semaphore { Mode::Permits { take: one, of: one } } else { Mode::Exclusive };
            EngineError::other_mode(held, mode)
        }
        ([Value::Int(10), Value::Int(stored)], Mode::Permits { of, .. }) => {
            limit(stored).map_or_else(|| unexpected(&value), |stored| EngineError::other_limit(stored, of))
        }
        ([Value::Int(11), Value::Int(stored)], Mode::Permits { take, .. }) => {
            limit(stored).map_or_else(|| unexpected(&value), |stored| EngineError::above_limit(stored, take))
        }
        _ => failed_or_unexpected(value),
    }
}

/// The reply to a renewal after which the server reports over the same link when the lease may be lost.
pub(super) const WATCHED: Value = Value::Int(2);

pub(super) fn renewed(value: Value, since: BootInstant, link: u64) -> Result<Renewed, EngineError> {
    match value {
        Value::Int(1) => Ok(Renewed::Kept { since, link: None }),
        WATCHED => Ok(Renewed::Kept { since, link: Some(link) }),
        Value::Int(0) => Ok(Renewed::Gone),
        other => match failed_or_unexpected(other) {
            // Another kind of key took the lock's place: it is certainly not ours.
            EngineError { fault: Fault::WrongType, .. } => Ok(Renewed::Gone),
            error => Err(error),
        },
    }
}

/// The holder and the fence in a lock's text, `ID FENCE HOLDER`; another library's has no fence.
pub(super) fn tenant(text: &str) -> (Holder, Fence) {
    let (owner, fence) = split(text).unwrap_or_default();
    (Holder::parse(&owner), fence)
}

/// The owner value in a lock's text; another library's text as it is.
pub(super) fn owner_text(text: &str) -> String {
    split(text).map_or_else(|| text.to_owned(), |(owner, _)| owner)
}

/// The owner value and the fence in the text of a lock of this library.
fn split(text: &str) -> Option<(String, Fence)> {
    let (id, rest) = text.split_at_checked(33)?;
    let (fence, holder) = rest.split_once(' ')?;
    let owner = format!("{id}{holder}");
    (Holder::parse(&owner) != Holder::Foreign).then_some((owner, fence.parse().ok()?))
}

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().or(Some("")),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn fence(value: &Value) -> Result<Fence, EngineError> {
    text(value).and_then(|text| text.parse().ok()).ok_or_else(|| unexpected(value))
}

/// What is left of a lease; Redis returns -1 for a key that never expires.
pub(super) fn left(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

/// What a script returned: the items of its list, or the one value.
pub(super) fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        value => std::slice::from_ref(value),
    }
}

/// What an operation failed with, if it is that.
pub(super) fn failed_or_unexpected(value: Value) -> EngineError {
    match items(&value) {
        [Value::Int(4)] => {
            let why = format!("{WAITERS_MAX} attempts wait for this name already");
            EngineError::new(Fault::Overloaded, why)
        }
        [Value::Int(5)] => ended_error(),
        [Value::Int(6)] => EngineError::new(
            Fault::Unsupported,
            "a client of another version waits in a form that this version does not know; use one version",
        ),
        [Value::Int(9), why] => from_words(text(why).unwrap_or_default()),
        _ => unexpected(&value),
    }
}

/// The refusal of an operation by a server that takes no writes.
pub(super) fn read_only(reply: &Value) -> Option<EngineError> {
    // Of several claims it is the refusal of one.
    let reply = match items(reply) {
        [Value::Int(_), refusal @ Value::Array(_)] => refusal,
        _ => reply,
    };
    let [Value::Int(9), why] = items(reply) else { return None };
    text(why).map(from_words).filter(|error| error.why.starts_with("READONLY"))
}

pub(super) fn unexpected(value: &Value) -> EngineError {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::Array(_) => "a list",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        _ => "something else",
    };
    // The value itself may hold an owner value, so it is not shown.
    EngineError::new(Fault::Refused(Refusal::Other), format!("unexpected answer: {kind}"))
}

/// An answer as this type; what was wrong with another one is not told, because it may show secrets.
pub(super) fn read<T: FromRedisValue>(value: Value) -> Result<T, EngineError> {
    T::from_redis_value(value).map_err(|_| unexpected(&Value::Okay))
}

/// An error in the server's own words, which begin with a code.
fn from_words(words: &str) -> EngineError {
    let words = words.strip_prefix("ERR ").unwrap_or(words);
    let code = words.split([' ', ':']).next().unwrap_or_default().trim_start_matches('-');
    EngineError::new(fault(code, words), shorten(words))
}

/// Scripts append their hash and line, which people do not need; servers that do not know a command append its
/// arguments, among which may be a password.
fn shorten(words: &str) -> String {
    let end =
        [" script: ", " with args beginning with", "\n"].iter().filter_map(|rest| words.find(rest)).min();
    words[..end.unwrap_or(words.len())].trim_end_matches([',', ' ']).chars().take(200).collect()
}

fn fault(code: &str, words: &str) -> Fault {
    match code {
        "WRONGTYPE" => Fault::WrongType,
        "NOAUTH" | "WRONGPASS" => Fault::Refused(Refusal::Auth),
        "NOPERM" => Fault::Refused(Refusal::Acl),
        "OOM" => Fault::Refused(Refusal::OutOfMemory),
        // A replica; or a primary that does not write for want of a disk or a replica, or begins nothing for a while.
        "READONLY" | "MISCONF" | "NOREPLICAS" | "GRACE" => Fault::Refused(Refusal::ReadOnly),
        // Not now: nothing happened, and it may work in a moment.
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" => Fault::Unreachable,
        _ if words.contains("max number of clients reached") => Fault::Unreachable,
        _ if NO_PERMISSION.iter().any(|text| words.contains(text)) => Fault::Refused(Refusal::Acl),
        // A script broke off: what it did until then stands.
        _ if words.starts_with("user_script:") || words.starts_with("ERR user_script:") => Fault::NoAnswer,
        _ => Fault::Refused(Refusal::Other),
    }
}

/// A denied permission that comes without its code: to a script (of Redis 7.0, of later ones), or to the driver while it
/// connects.
const NO_PERMISSION: [&str; 3] = ["The user executing the script can't", "ACL failure", "has no permissions"];

/// A failure of a command that was sent.
pub(super) fn of_command(error: &RedisError) -> EngineError {
    match error.code() {
        Some(code) => {
            let words = format!("{code} {}", error.detail().unwrap_or_default());
            EngineError::new(fault(code, &words), shorten(words.trim_end()))
        }
        // Sent, and the connection broke before the answer.
        None => EngineError::new(Fault::NoAnswer, shorten(&error.to_string())),
    }
}

/// A failure to connect: nothing was sent that could have an effect.
pub(super) fn of_dial(error: &RedisError, tls: bool) -> EngineError {
    if error.code().is_some() {
        return of_command(error);
    }
    let words = error.to_string();
    let refused = |refusal, words: String| EngineError::new(Fault::Refused(refusal), words);
    if let Some(alert) = words.split("fatal alert: ").nth(1) {
        let alert: String = alert.chars().take_while(char::is_ascii_alphanumeric).collect();
        return match alert.as_str() {
            "CertificateRequired" => {
                refused(Refusal::Certificate, "the server asks for a client certificate".into())
            }
            "UnknownCA" | "BadCertificate" | "CertificateUnknown" | "CertificateExpired" | "AccessDenied" => {
                refused(Refusal::Certificate, format!("the server refused the client certificate ({alert})"))
            }
            _ => EngineError::new(Fault::Unreachable, format!("TLS failed ({alert})")),
        };
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => refused(Refusal::Auth, shorten(&words)),
        ErrorKind::RESP3NotSupported => EngineError::new(
            Fault::Unsupported,
            "the server does not know RESP3; it takes Redis 7.0 or later, or Valkey",
        ),
        ErrorKind::Parse => refused(Refusal::Other, "the server does not speak the Redis protocol".into()),
        _ if words.contains("certificate") => refused(Refusal::Certificate, shorten(&words)),
        _ if !tls && error.is_connection_dropped() && !error.is_connection_refusal() => {
            let words = format!("{}; a port that expects TLS takes rediss://", shorten(&words));
            EngineError::new(Fault::Unreachable, words)
        }
        _ => EngineError::new(Fault::Unreachable, shorten(&words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_to_write_is_found_also_in_that_of_one_of_several_claims() {
        let failed = |why: &str| Value::Array(vec![Value::Int(9), Value::BulkString(why.into())]);
        let read_only_words = "READONLY You can't write against a read only replica.";
        for reply in [failed(read_only_words), Value::Array(vec![Value::Int(1), failed(read_only_words)])] {
            assert_eq!(read_only(&reply).map(|error| error.fault), Some(Fault::Refused(Refusal::ReadOnly)));
        }
        for reply in [failed("OOM"), Value::Array(vec![Value::Int(1), failed("OOM")]), Value::Int(9)] {
            assert!(read_only(&reply).is_none());
        }
    }

    #[test]
    fn the_servers_words_become_kinds() {
        for (words, expected) in [
            ("WRONGTYPE Operation against a key", Fault::WrongType),
            ("OOM command not allowed script: abc, on @user_script:3.", Fault::Refused(Refusal::OutOfMemory)),
            ("READONLY You can't write against a read only replica.", Fault::Refused(Refusal::ReadOnly)),
            (
                "ERR The user executing the script can't run this command or subcommand",
                Fault::Refused(Refusal::Acl),
            ),
            (
                "ERR ACL failure in script: User x has no permissions to run the 'set' command",
                Fault::Refused(Refusal::Acl),
            ),
            ("MISCONF Errors writing to the AOF file", Fault::Refused(Refusal::ReadOnly)),
            ("LOADING Redis is loading the dataset in memory", Fault::Unreachable),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: 'user_script' 'and' 'secrets'",
                Fault::Refused(Refusal::Other),
            ),
            ("something odd", Fault::Refused(Refusal::Other)),
        ] {
            let error = from_words(words);
            assert_eq!(error.fault, expected, "{words}");
            assert!(!error.why.contains("user_script"), "{}", error.why);
        }
    }

    #[test]
    fn the_effect_of_a_script_that_broke_off_is_unknown() {
        for words in ["ERR user_script:21: attempt to compare nil", "user_script:21: attempt to compare nil"]
        {
            assert_eq!(from_words(words).fault, Fault::NoAnswer, "{words}");
        }
        for code in ["TTL a lease", "FENCE the last", "ERA the data"] {
            assert_eq!(from_words(code).fault, Fault::Refused(Refusal::Other), "{code}");
        }
    }

    #[test]
    fn a_locks_text_has_its_fence_behind_the_id() {
        let id = "0123456789abcdef0123456789abcdef";
        let (holder, fence) = tenant(&format!("{id} 17 1700000000000 7 host a label"));
        assert_eq!(holder, Holder::parse(&format!("{id} 1700000000000 7 host a label")));
        assert_eq!(fence.get(), 17);
        let before = format!("{id} 1700000000000 7 host a label");
        for text in [&*before, &format!("{id} x 1 7 host "), id, "", "ü", &"ü".repeat(40)] {
            assert_eq!(tenant(text), (Holder::Foreign, Fence::new(0)), "{text}");
            assert_eq!(owner_text(text), text);
        }
    }

    #[test]
    fn an_odd_answer_does_not_show_its_content() {
        let secret = Value::BulkString(b"0123456789abcdef0123456789abcdef 1 2 h ".to_vec());
        let error = renewed(secret, BootInstant::from_nanos(0), 1).unwrap_err();
        assert!(!error.why.contains("0123"), "{}", error.why);
    }
}
