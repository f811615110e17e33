//! The scripts of a voter, calls of them, and what their replies mean.

use std::sync::{Arc, LazyLock};

use redis::{Cmd, Value};

use super::super::{
    connection::Link,
    inspect, reply,
    script::{self, Script},
    topology::outcome,
};
use leasehold_core::{
    clock::Until,
    engine::{
        EngineError, Fault, WAITERS_MAX,
        registry::{Call, ended_error, send_noted},
        voter::{self, Abstention, Ballot, Kept, NodeStatus, Record, Sighting, State, Vote, Withdrawn},
    },
    error::Refusal,
    fence::Fence,
    owner::Holder,
};

/// Q: the node's record.
pub(super) const RECORD: &str = "leasehold:quorum";
/// H: the highest fence that the node gave to any name.
pub(super) const HIGHEST: &str = "leasehold:quorum:highest";
/// L: what every fence of the node is above, since it was admitted.
pub(super) const FLOOR: &str = "leasehold:quorum:floor";

/// About the size of a call with a name of usual length.
const CALL_BYTES: usize = 512;

macro_rules! script {
    ($name:ident: $($part:literal),+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!($(include_str!(concat!("../scripts/", $part))),+)));
    };
}

script!(VOTE: "begin.lua", "voter/begin.lua", "voter/fence.lua", "voter/record.lua", "voter/waiters.lua", "voter/vote.lua");
script!(CONFIRM: "begin.lua", "voter/begin.lua", "voter/fence.lua", "voter/confirm.lua");
script!(REPAIR: "begin.lua", "voter/begin.lua", "voter/fence.lua", "voter/record.lua", "voter/repair.lua");
script!(RENEW: "begin.lua", "voter/begin.lua", "voter/renew.lua");
script!(RETRACT: "begin.lua", "voter/begin.lua", "voter/waiters.lua", "voter/retract.lua");
script!(WITHDRAW: "begin.lua", "voter/begin.lua", "voter/waiters.lua", "voter/withdraw.lua");
script!(STATUS: "voter/status.lua");
script!(WRITE_RECORD: "voter/write_record.lua");
script!(INSPECT: "inspect.lua");

/// A call of a script; `write` appends the number of keys, the keys and the arguments.
fn command(script: &Script, by_hash: bool, write: &impl Fn(&mut Cmd)) -> Cmd {
    let mut cmd = script::begin(script, by_hash, CALL_BYTES);
    write(&mut cmd);
    cmd
}

/// Sends what may arrive in any order.
pub(super) async fn send(
    link: &Link,
    script: &Script,
    write: impl Fn(&mut Cmd),
    until: Until,
) -> Result<Value, EngineError> {
    link.run_script(false, script, |script, by_hash| command(script, by_hash, &write), until).await
}

/// Sends a vote, its retraction or a repair. Each copy of it is counted, and none leaves after the attempt's end.
pub(super) async fn send_counted(
    link: &Link,
    call: &Call<Arc<Ballot>>,
    waits: Option<&Arc<Ballot>>,
    script: &Script,
    write: impl Fn(&mut Cmd),
    until: Until,
) -> Result<Value, EngineError> {
    let mut by_hash = true;
    loop {
        let cmd = command(script, by_hash, &write);
        call.leaves(waits)?;
        let answer = send_noted(link.send(&cmd, until), || call.left(link.number)).await;
        if !matches!(&answer, Err(error) if error.fault == Fault::NoAnswer) {
            call.answered();
        }
        match answer {
            Err(error) if by_hash && outcome::is_unknown_script(&error) => by_hash = false,
            answer => return answer,
        }
    }
}

pub(super) fn voted(value: &Value, expected: &Record) -> Result<Vote, EngineError> {
    let Value::Array(list) = value else { return Ok(Vote::Yes(reply::fence(value)?)) };
    match list.as_slice() {
        [Value::Int(3), Value::Int(pttl), fence, holder, Value::Int(ahead)] => Ok(Vote::No {
            fence: reply::fence(fence)?,
            holder: reply::text(holder).map(|text| reply::tenant(text).0),
            expires_in: reply::left(*pttl),
            ahead: u32::try_from(*ahead).unwrap_or(u32::MAX),
        }),
        [Value::Int(4)] => Err(EngineError::new(
            Fault::Overloaded,
            format!("{WAITERS_MAX} attempts wait for this name already"),
        )),
        [Value::Int(5)] => Err(ended_error()),
        [Value::Int(8), found @ ..] => {
            Ok(Vote::Abstains(abstention(expected, found.first().and_then(reply::text))))
        }
        _ => Err(reply::unexpected(value)),
    }
}

/// Whether the node has the expected record, over another data set than the one it was written for.
pub(super) fn is_other_data_set(value: &Value, expected: &Record) -> bool {
    let Value::Array(list) = value else { return false };
    matches!(list.as_slice(), [Value::Int(8), found] if reply::text(found) == Some(&expected.to_string()))
}

/// Why a node with this record does not vote under the expected one.
fn abstention(expected: &Record, found: Option<&str>) -> Abstention {
    let Some(text) = found else { return Abstention::NotAdmitted };
    let Some(found) = Record::parse(text) else { return Abstention::UnknownLayout };
    let place = |record: &Record| (record.set.clone(), record.epoch, record.n, record.index);
    if place(&found) != place(expected) {
        Abstention::OtherSet
    } else if found.identity == expected.identity && found.state == State::Votes && found != *expected {
        // Another limit: it votes, under a record that was not read yet.
        Abstention::NotAdmitted
    } else {
        Abstention::Forgot
    }
}

pub(super) fn yes_or_no(value: &Value) -> Result<bool, EngineError> {
    match value {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        other => Err(reply::unexpected(other)),
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
        other => Err(reply::unexpected(other)),
    };
    replies.iter().map(kept).collect()
}

pub(super) fn withdrawn(value: &Value) -> Result<Withdrawn, EngineError> {
    let Value::Array(list) = value else { return Err(reply::unexpected(value)) };
    let [Value::Int(ours), Value::Int(woke), holder, fence] = list.as_slice() else {
        return Err(reply::unexpected(value));
    };
    let by = match reply::text(holder).map(|text| reply::tenant(text).0) {
        None => None,
        // Another library's lock has no fence.
        Some(Holder::Foreign) => Some(Fence::new(0)),
        Some(_) => Some(reply::fence(fence)?),
    };
    Ok(Withdrawn { was_ours: *ours == 1, woke: *woke == 1, by })
}

/// What `inspect.lua` found about one name.
pub(super) fn sighting(value: &Value) -> Result<Sighting, EngineError> {
    let Value::Array(parts) = value else { return Err(reply::unexpected(value)) };
    let [owner, Value::Int(pttl), fence, Value::Int(waiting), Value::Array(waiters)] = parts.as_slice()
    else {
        return Err(reply::unexpected(value));
    };
    let owner = match owner {
        // Another kind of key: another library's, whose value is not read.
        Value::Int(_) => Some(String::new()),
        owner => reply::text(owner).map(reply::owner_text),
    };
    Ok(Sighting {
        expires_in: owner.as_ref().and_then(|_| reply::left(*pttl)),
        owner: owner.map(voter::Value),
        fence: reply::fence(fence)?,
        waiters: waiters.chunks(2).map(inspect::waiter).collect(),
        waiting: u32::try_from(*waiting).unwrap_or(u32::MAX),
    })
}

/// What a node reported about itself, if its data set still is that of `identity`.
pub(super) fn node_status(value: &Value, identity: &str) -> Result<Option<NodeStatus>, EngineError> {
    let Value::Array(list) = value else { return Err(reply::unexpected(value)) };
    let [record, highest, data, seconds, micros] = list.as_slice() else {
        return Err(reply::unexpected(value));
    };
    if identity.split_once('-').map(|(_, data)| data) != reply::text(data) {
        return Ok(None);
    }
    let text = reply::text(record);
    let record = text.and_then(Record::parse);
    Ok(Some(NodeStatus {
        identity: identity.to_owned(),
        unknown_layout: text.is_some() && record.is_none(),
        record,
        highest: reply::fence(highest)?,
        time_us: reply::fence(seconds)?.get() * 1_000_000 + reply::fence(micros)?.get(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let most = voter::FLOOR_LEAD_MAX.as_micros();
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
