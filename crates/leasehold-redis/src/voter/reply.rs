//! What the replies and messages of a voter mean.

use redis::Value;

use crate::{
    inspect,
    reply::{failed_or_unexpected, fence, items, left, owner_text, tenant, text, unexpected},
    script,
};
use leasehold_core::{
    engine::{
        EngineError, Fault,
        voter::{self, Abstention, Kept, NodeStatus, Reader, Record, Sighting, State, Vote, Withdrawn},
    },
    error::Refusal,
    fence::Fence,
    owner::{Holder, OwnerId},
};

/// What a message wakes: it is the random part of the owner value, and the word "hint".
pub(super) fn hint(payload: &[u8]) -> Option<OwnerId> {
    OwnerId::parse(std::str::from_utf8(payload).ok()?.strip_suffix(" hint")?)
}

pub(super) fn voted(value: Value, expected: &Record) -> Result<Vote, EngineError> {
    match items(&value) {
        [yes @ Value::BulkString(_)] => Ok(Vote::Yes(fence(yes)?)),
        [Value::Int(3), Value::Int(pttl), last, holder, Value::Int(ahead), Value::Int(readers)] => {
            Ok(Vote::No {
                fence: fence(last)?,
                holder: text(holder).map(|text| tenant(text).0),
                readers: number(*readers),
                expires_in: left(*pttl),
                ahead: number(*ahead),
            })
        }
        [Value::Int(8), found] => Ok(Vote::Abstains(abstention(expected, text(found)))),
        _ => Err(failed_or_unexpected(value)),
    }
}

fn number(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whether the node has the expected record, over another data set than the one it was written for.
pub(super) fn is_other_data_set(value: &Value, expected: &str) -> bool {
    matches!(items(value), [Value::Int(8), found] if text(found) == Some(expected))
}

/// Why a node with this record does not vote under the expected one.
fn abstention(expected: &Record, found: Option<&str>) -> Abstention {
    let Some(text) = found else { return Abstention::NotAdmitted };
    let Some(found) = Record::parse(text) else { return Abstention::UnknownLayout };
    if !found.is_same_quorum(expected) || found.index != expected.index {
        Abstention::OtherSet
    } else if found.identity == expected.identity && found.state == State::Votes && found != *expected {
        // Another limit: it votes, under a record that was not read yet.
        Abstention::NotAdmitted
    } else {
        Abstention::Forgot
    }
}

pub(super) fn renewed(value: Value, expected: usize) -> Result<Vec<Kept>, EngineError> {
    let replies = script::replies(value, expected)?;
    if let [Value::Int(3)] = replies.as_slice() {
        return Err(EngineError::new(
            Fault::Refused(Refusal::Other),
            "TTL a lease this long, lock-delay included, is more than this quorum allows",
        ));
    }
    let kept = |reply: &Value| match reply {
        Value::Int(1) => Ok(Kept::Yes),
        // Too long among others: not extended, and the others must not suffer for it.
        Value::Int(0 | 3) => Ok(Kept::Missing),
        Value::Int(2) => Ok(Kept::Taken),
        other => Err(unexpected(other)),
    };
    replies.iter().map(kept).collect()
}

pub(super) fn withdrawn(value: &Value) -> Result<Withdrawn, EngineError> {
    let [Value::Int(ours), Value::Int(woke), holder, last] = items(value) else {
        return Err(unexpected(value));
    };
    let by_readers = text(holder) == Some("leasehold:shared");
    let by = match text(holder).map(|text| tenant(text).0) {
        None => None,
        // Another library's lock has no fence.
        Some(Holder::Foreign) if !by_readers => Some(Fence::new(0)),
        Some(_) => Some(fence(last)?),
    };
    Ok(Withdrawn { was_ours: *ours == 1, woke: number(*woke), by, by_readers })
}

/// What `inspect.lua` found about one name.
pub(super) fn sighted(value: &Value) -> Result<Sighting, EngineError> {
    let [seen @ .., members, _] = items(value) else { return Err(unexpected(value)) };
    let [Value::Int(_), Value::Int(_), Value::Array(members)] = items(members) else {
        return Err(unexpected(members));
    };
    let reader = |member: &[Value]| {
        let [held, _, Value::Int(left_ms)] = member else { return Err(unexpected(&Value::Nil)) };
        let held = text(held).unwrap_or_default();
        let (owner, fence) = (voter::Value(owner_text(held)), tenant(held).1);
        Ok(Reader { owner, fence, expires_in: left(*left_ms) })
    };
    let readers = members.chunks(3).map(reader).collect::<Result<_, _>>()?;
    Ok(Sighting { readers, ..inspect::sighting(seen)?.1 })
}

/// What a node reported about itself, if its data set still is that of `identity`.
pub(super) fn node_status(value: &Value, identity: &str) -> Result<Option<NodeStatus>, EngineError> {
    let [record, highest, data, seconds, micros] = items(value) else { return Err(unexpected(value)) };
    if identity.split_once('-').map(|(_, data)| data) != text(data) {
        return Ok(None);
    }
    let (is_there, record) = (text(record).is_some(), text(record).and_then(Record::parse));
    Ok(Some(NodeStatus {
        identity: identity.to_owned(),
        unknown_layout: is_there && record.is_none(),
        record,
        highest: fence(highest)?,
        time_us: fence(seconds)?.get() * 1_000_000 + fence(micros)?.get(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::engine::{WAITERS_MAX, voter::FLOOR_LEAD_MAX};

    #[test]
    fn noise_on_the_channel_is_ignored() {
        assert!(hint(b"00000000000000000000000000000007 hint").is_some());
        for noise in [&b""[..], b" hint", b"\xff hint", b"07 hint", b"00000000000000000000000000000007 9"] {
            assert!(hint(noise).is_none());
        }
    }

    #[test]
    fn the_scripts_bound_the_waiters_as_the_contract_says() {
        for script in
            [include_str!("../scripts/voter/vote.lua"), include_str!("../scripts/voter/retract.lua")]
        {
            assert!(script.contains(&format!("local WAITERS_MAX = {WAITERS_MAX}\n")));
        }
    }

    #[test]
    fn the_script_bounds_the_floor_as_the_contract_says() {
        let most = FLOOR_LEAD_MAX.as_micros();
        let script = include_str!("../scripts/voter/write_record.lua");
        assert!(script.contains(&format!("local FLOOR_LEAD_MAX_US = {most}\n")));
    }

    #[test]
    fn a_record_that_differs_says_why_the_node_does_not_vote() {
        let record = Record {
            state: State::Votes,
            set: "ab".into(),
            epoch: 1,
            n: 3,
            index: 2,
            identity: "1-2".into(),
            max_ms: 300_000,
        };
        let expected = record.clone();
        let why = |record: Record| abstention(&expected, Some(&record.to_string()));
        let waits = State::Waits { nonce: "n".into(), watched_ms: 0 };
        assert_eq!(why(Record { state: waits, ..record.clone() }), Abstention::Forgot);
        assert_eq!(why(Record { identity: "1-3".into(), ..record.clone() }), Abstention::Forgot);
        assert_eq!(why(Record { set: "cd".into(), ..record.clone() }), Abstention::OtherSet);
        assert_eq!(why(Record { epoch: 2, ..record.clone() }), Abstention::OtherSet);
        assert_eq!(why(Record { max_ms: 1, ..record.clone() }), Abstention::NotAdmitted);
        // The same record, over another data set than the one it was written for.
        assert_eq!(why(record), Abstention::Forgot);
        assert_eq!(abstention(&expected, Some("2 what")), Abstention::UnknownLayout);
        assert_eq!(abstention(&expected, None), Abstention::NotAdmitted);
    }
}
