//! What Redis answered, in the contract's words.

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};

use crate::{
    clock::BootInstant,
    engine::{EngineError, Fault, Released, Renewed, WAITERS_MAX},
    error::Refusal,
    fence::Fence,
    owner::Holder,
};

/// The answer to a claim.
pub(super) enum Claimed {
    Granted(Fence),
    Queued { ahead: u32, expires_in: Option<Duration>, last: u64, arrival: String, holder: Option<Holder> },
    Busy { expires_in: Option<Duration>, holder: Option<Holder> },
}

pub(super) fn claimed(value: Value) -> Result<Claimed, EngineError> {
    let list = match value {
        Value::Array(list) => list,
        fence => return Ok(Claimed::Granted(self::fence(&fence)?)),
    };
    match list.as_slice() {
        [Value::Int(2), Value::Int(ahead), Value::Int(pttl), last, arrival, holder] => Ok(Claimed::Queued {
            ahead: u32::try_from(*ahead).unwrap_or(u32::MAX),
            expires_in: left(*pttl),
            last: self::fence(last)?.get(),
            arrival: text(arrival).unwrap_or("0").to_owned(),
            holder: text(holder).map(Holder::parse),
        }),
        [Value::Int(3), Value::Int(pttl), rest @ ..] => Ok(Claimed::Busy {
            expires_in: left(*pttl),
            holder: rest.first().and_then(text).map(Holder::parse),
        }),
        [Value::Int(4)] => Err(EngineError::new(
            Fault::Overloaded,
            format!("{WAITERS_MAX} attempts wait for this name already"),
        )),
        [Value::Int(5)] => Err(EngineError::new(Fault::Ended, "this attempt has ended")),
        [Value::Int(6)] => Err(EngineError::new(
            Fault::Unsupported,
            "a client of another version waits in a form that this version does not know; use one version",
        )),
        other => Err(failed(other)),
    }
}

/// The answer to a release; `None` means that dead waiters were removed and it must be sent again.
pub(super) fn released(value: Value) -> Result<Option<Released>, EngineError> {
    let list = match value {
        Value::Int(1) => return Ok(Some(Released::Free)),
        Value::Int(3) => return Ok(None),
        Value::Array(list) => list,
        other => return Err(unexpected(&other)),
    };
    match list.as_slice() {
        [Value::Int(2), next] => Ok(Some(Released::HandedOver { next: Some(fence(next)?) })),
        [Value::Int(0), Value::Int(-2), ..] => Ok(Some(Released::Expired)),
        [Value::Int(0), _, by, rest @ ..] => {
            let ours = rest
                .first()
                .and_then(text)
                .map(Holder::parse)
                .is_some_and(|holder| holder != Holder::Foreign);
            let by = if ours { Some(fence(by)?) } else { None };
            Ok(Some(Released::Taken { by }))
        }
        other => Err(failed(other)),
    }
}

pub(super) fn renewed(value: Value, since: BootInstant) -> Result<Renewed, EngineError> {
    match value {
        Value::Int(1) => Ok(Renewed::Kept { since }),
        Value::Int(0) => Ok(Renewed::Gone),
        Value::Array(list) => match failed(&list) {
            // Another kind of key took the lock's place: it is certainly not ours.
            EngineError { fault: Fault::WrongKind, .. } => Ok(Renewed::Gone),
            error => Err(error),
        },
        other => Err(unexpected(&other)),
    }
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

/// A lease's rest; Redis says -1 for a key that never expires.
pub(super) fn left(pttl: i64) -> Option<Duration> {
    u64::try_from(pttl).ok().map(Duration::from_millis)
}

fn failed(list: &[Value]) -> EngineError {
    match list {
        [Value::Int(9), why] => from_words(text(why).unwrap_or_default()),
        other => unexpected(&Value::Array(other.to_vec())),
    }
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

/// An error in the server's own words, which begin with a code.
fn from_words(words: &str) -> EngineError {
    let words = words.strip_prefix("ERR ").unwrap_or(words);
    let code = words.split([' ', ':']).next().unwrap_or_default().trim_start_matches('-');
    EngineError::new(fault(code, words), shorten(words))
}

/// Scripts append their hash and line; people do not need them.
fn shorten(words: &str) -> String {
    words.split(" script: ").next().unwrap_or_default().chars().take(200).collect()
}

fn fault(code: &str, words: &str) -> Fault {
    match code {
        "WRONGTYPE" => Fault::WrongKind,
        "NOAUTH" | "WRONGPASS" => Fault::Refused(Refusal::Auth),
        "NOPERM" => Fault::Refused(Refusal::Acl),
        "READONLY" => Fault::Refused(Refusal::ReadOnly),
        "OOM" | "MISCONF" | "NOREPLICAS" => Fault::Refused(Refusal::OutOfMemory),
        // Not now: nothing happened, and it may work in a moment.
        "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" => Fault::Unreachable,
        _ if words.contains("ACL") || words.contains("permission") => Fault::Refused(Refusal::Acl),
        _ => Fault::Refused(Refusal::Other),
    }
}

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

/// A failure to connect: nothing was sent.
pub(super) fn of_dial(error: &RedisError) -> EngineError {
    let words = error.to_string();
    let certificate = ["certificate", "Certificate", "UnknownIssuer", "NotValidForName"];
    let fault = if error.kind() == ErrorKind::AuthenticationFailed {
        Fault::Refused(Refusal::Auth)
    } else if certificate.iter().any(|word| words.contains(word)) {
        Fault::Refused(Refusal::Certificate)
    } else {
        match error.code() {
            Some(code) => fault(code, &words),
            None => Fault::Unreachable,
        }
    };
    EngineError::new(fault, shorten(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_words_become_kinds() {
        for (words, expected) in [
            ("WRONGTYPE Operation against a key", Fault::WrongKind),
            ("OOM command not allowed script: abc, on @user_script:3.", Fault::Refused(Refusal::OutOfMemory)),
            ("READONLY You can't write against a read only replica.", Fault::Refused(Refusal::ReadOnly)),
            (
                "ERR The user executing the script can't run this command: ACL failure",
                Fault::Refused(Refusal::Acl),
            ),
            ("LOADING Redis is loading the dataset in memory", Fault::Unreachable),
            ("something odd", Fault::Refused(Refusal::Other)),
        ] {
            let error = from_words(words);
            assert_eq!(error.fault, expected, "{words}");
            assert!(!error.why.contains("user_script"), "{}", error.why);
        }
    }

    #[test]
    fn an_odd_answer_does_not_show_its_content() {
        let secret = Value::BulkString(b"0123456789abcdef0123456789abcdef 1 2 h ".to_vec());
        let error = renewed(secret, BootInstant::from_nanos(0)).unwrap_err();
        assert!(!error.why.contains("0123"), "{}", error.why);
    }
}
