//! The scripts of a voter: what they are given, and what their answers mean.

use redis::{Cmd, Value};

use super::super::{
    answer, inspect,
    keys::Keys,
    script::{self, FENCE_KEPT, INSPECT, Script, TOMBSTONE},
};
use crate::{
    engine::{
        EngineError, Fault, Hold, WAITERS_MAX,
        registry::ended_error,
        voter::{self, Abstention, Ballot, Kept, NodeStatus, Record, Sighting, Vote, Withdrawn},
    },
    error::Refusal,
    fence::Fence,
    owner::{Holder, Owner},
};

/// Q: the node's record.
const RECORD: &str = "leasehold:quorum";
/// H: the highest fence that the node gave to any name.
const HIGHEST: &str = "leasehold:quorum:highest";
/// L: what every fence of the node is above, since it was admitted.
const FLOOR: &str = "leasehold:quorum:floor";

/// About the size of a call with a name of usual length.
const CALL_BYTES: usize = 512;

macro_rules! with_fences {
    ($($part:literal),+) => {
        concat!(
            include_str!("../scripts/begin.lua"),
            include_str!("../scripts/voter/begin.lua"),
            include_str!("../scripts/voter/fence.lua"),
            $(include_str!($part)),+
        )
    };
}

const VOTE: &str =
    with_fences!("../scripts/voter/record.lua", "../scripts/voter/waiters.lua", "../scripts/voter/vote.lua");
const REPAIR: &str = with_fences!("../scripts/voter/record.lua", "../scripts/voter/repair.lua");
const CONFIRM: &str = with_fences!("../scripts/voter/confirm.lua");
const RENEW: &str = concat!(
    include_str!("../scripts/begin.lua"),
    include_str!("../scripts/voter/begin.lua"),
    include_str!("../scripts/voter/renew.lua")
);
const WITHDRAW: &str = concat!(
    include_str!("../scripts/begin.lua"),
    include_str!("../scripts/voter/begin.lua"),
    include_str!("../scripts/voter/waiters.lua"),
    include_str!("../scripts/voter/withdraw.lua")
);
const RETRACT: &str = concat!(
    include_str!("../scripts/begin.lua"),
    include_str!("../scripts/voter/begin.lua"),
    include_str!("../scripts/voter/waiters.lua"),
    include_str!("../scripts/voter/retract.lua")
);
const STATUS: &str = include_str!("../scripts/voter/status.lua");
const WRITE_RECORD: &str = include_str!("../scripts/voter/write_record.lua");

pub(super) struct Scripts {
    pub(super) vote: Script,
    pub(super) confirm: Script,
    pub(super) renew: Script,
    pub(super) repair: Script,
    pub(super) retract: Script,
    pub(super) withdraw: Script,
    pub(super) status: Script,
    pub(super) write_record: Script,
    pub(super) inspect: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            vote: Script::new(VOTE),
            confirm: Script::new(CONFIRM),
            renew: Script::new(RENEW),
            repair: Script::new(REPAIR),
            retract: Script::new(RETRACT),
            withdraw: Script::new(WITHDRAW),
            status: Script::new(STATUS),
            write_record: Script::new(WRITE_RECORD),
            inspect: Script::new(INSPECT),
        }
    }
}

/// The record under which a node votes, and its text.
pub(super) struct VotingRecord {
    pub(super) record: Record,
    pub(super) text: String,
}

fn begin(script: &Script, by_hash: bool, keys: usize) -> Cmd {
    let mut cmd = script::begin(script, by_hash, CALL_BYTES);
    cmd.arg(keys);
    cmd
}

fn kept_ms() -> u64 {
    FENCE_KEPT.as_millis() as u64
}

pub(super) fn vote(
    script: &Script,
    by_hash: bool,
    keys: &Keys,
    ballot: &Ballot,
    expected: &VotingRecord,
    channel: &str,
) -> Cmd {
    let claim = &ballot.claim;
    let mut cmd = begin(script, by_hash, 8);
    cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
    cmd.arg(keys.gone(claim.owner.id_text())).arg(RECORD).arg(HIGHEST).arg(FLOOR);
    cmd.arg(kept_ms()).arg(claim.owner.expose()).arg(script::px(claim.ttl + claim.lock_delay));
    cmd.arg(ballot.hint.get()).arg(&expected.text);
    script::write_entry(&mut cmd, Some(claim), channel);
    cmd.arg(ballot.arrival);
    cmd
}

pub(super) fn voted(value: &Value, expected: &VotingRecord) -> Result<Vote, EngineError> {
    let Value::Array(list) = value else { return Ok(Vote::Yes(answer::fence(value)?)) };
    match list.as_slice() {
        [Value::Int(3), Value::Int(pttl), fence, holder, Value::Int(ahead)] => Ok(Vote::No {
            fence: answer::fence(fence)?,
            holder: answer::text(holder).map(|text| answer::tenant(text).0),
            expires_in: answer::left(*pttl),
            ahead: u32::try_from(*ahead).unwrap_or(u32::MAX),
        }),
        [Value::Int(4)] => Err(EngineError::new(
            Fault::Overloaded,
            format!("{WAITERS_MAX} attempts wait for this name already"),
        )),
        [Value::Int(5)] => Err(ended_error()),
        [Value::Int(8)] => Ok(Vote::Abstains(abstention(expected, None))),
        [Value::Int(8), record] => Ok(Vote::Abstains(abstention(expected, answer::text(record)))),
        _ => Err(answer::unexpected(value)),
    }
}

/// Whether the node has the expected's record, over another data set than the one it was written for.
pub(super) fn is_other_data_set(value: &Value, expected: &VotingRecord) -> bool {
    let Value::Array(list) = value else { return false };
    matches!(list.as_slice(), [Value::Int(8), record] if answer::text(record) == Some(&expected.text))
}

/// Why a node with this record does not vote under the expected.
fn abstention(expected: &VotingRecord, record: Option<&str>) -> Abstention {
    let Some(text) = record else { return Abstention::NotAdmitted };
    let Some(record) = Record::parse(text) else { return Abstention::UnknownLayout };
    let place = |record: &Record| (record.set.clone(), record.epoch, record.n, record.index);
    if place(&record) != place(&expected.record) {
        Abstention::OtherSet
    } else if record.identity == expected.record.identity
        && record.state == voter::State::Votes
        && text != expected.text
    {
        // Another limit: it votes, under a record that was not read yet.
        Abstention::NotAdmitted
    } else {
        Abstention::Forgot
    }
}

pub(super) fn confirm(script: &Script, by_hash: bool, keys: &Keys, hold: &Hold) -> Cmd {
    let mut cmd = begin(script, by_hash, 3);
    cmd.arg(keys.lock()).arg(keys.fence()).arg(HIGHEST);
    cmd.arg(kept_ms()).arg(hold.owner.expose()).arg(hold.fence.get());
    cmd
}

pub(super) fn repair(
    script: &Script,
    by_hash: bool,
    keys: &Keys,
    hold: &Hold,
    expected: &VotingRecord,
) -> Cmd {
    let mut cmd = begin(script, by_hash, 5);
    cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.gone(hold.owner.id_text())).arg(RECORD).arg(HIGHEST);
    cmd.arg(kept_ms()).arg(hold.owner.expose()).arg(script::px(hold.ttl + hold.lock_delay));
    cmd.arg(&expected.text).arg(hold.fence.get());
    cmd
}

pub(super) fn retract(script: &Script, by_hash: bool, keys: &Keys, ballot: &Ballot, channel: &str) -> Cmd {
    let claim = &ballot.claim;
    let mut cmd = begin(script, by_hash, 5);
    cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
    cmd.arg(keys.gone(claim.owner.id_text())).arg(kept_ms()).arg(claim.owner.expose());
    script::write_entry(&mut cmd, Some(claim), channel);
    cmd.arg(ballot.arrival);
    cmd
}

pub(super) fn yes_or_no(value: &Value) -> Result<bool, EngineError> {
    match value {
        Value::Int(1) => Ok(true),
        Value::Int(0) => Ok(false),
        other => Err(answer::unexpected(other)),
    }
}

/// Renews these holds, whose keys are `keys`.
pub(super) fn renew(script: &Script, by_hash: bool, keys: &[Keys], holds: &[Hold]) -> Cmd {
    let mut cmd = script::begin(script, by_hash, holds.len() * CALL_BYTES);
    cmd.arg(1 + keys.len() * 2).arg(RECORD);
    for keys in keys {
        cmd.arg(keys.lock()).arg(keys.fence());
    }
    cmd.arg(kept_ms());
    for hold in holds {
        cmd.arg(hold.owner.expose()).arg(script::px(hold.ttl + hold.lock_delay));
    }
    cmd
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
        other => Err(answer::unexpected(other)),
    };
    replies.iter().map(kept).collect()
}

/// `waits` is the ballot by which the attempt may wait; `tombstone` whether a copy of a vote may come late.
pub(super) fn withdraw(
    script: &Script,
    by_hash: bool,
    keys: &Keys,
    owner: &Owner,
    waits: Option<&Ballot>,
    tombstone: bool,
    channel: &str,
) -> Cmd {
    let mut cmd = begin(script, by_hash, if tombstone { 5 } else { 4 });
    cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.waiters()).arg(keys.seen());
    if tombstone {
        cmd.arg(keys.gone(owner.id_text()));
    }
    cmd.arg(kept_ms()).arg(owner.expose());
    script::write_entry(&mut cmd, waits.map(|ballot| &ballot.claim), channel);
    cmd.arg(TOMBSTONE.as_millis() as u64);
    cmd
}

pub(super) fn withdrawn(value: &Value) -> Result<Withdrawn, EngineError> {
    let Value::Array(list) = value else { return Err(answer::unexpected(value)) };
    let [Value::Int(ours), Value::Int(woke), holder, fence] = list.as_slice() else {
        return Err(answer::unexpected(value));
    };
    let by = match answer::text(holder).map(|text| answer::tenant(text).0) {
        None => None,
        // Another library's lock has no fence.
        Some(Holder::Foreign) => Some(Fence::new(0)),
        Some(_) => Some(answer::fence(fence)?),
    };
    Ok(Withdrawn { was_ours: *ours == 1, woke: *woke == 1, by })
}

/// What `inspect.lua` found about one name.
pub(super) fn sighting(value: &Value) -> Result<Sighting, EngineError> {
    let Value::Array(parts) = value else { return Err(answer::unexpected(value)) };
    let [owner, Value::Int(pttl), fence, Value::Int(waiting), Value::Array(waiters)] = parts.as_slice()
    else {
        return Err(answer::unexpected(value));
    };
    let owner = match owner {
        // Another kind of key: somebody else's, whose value is not read.
        Value::Int(_) => Some(String::new()),
        owner => answer::text(owner).map(answer::owner_text),
    };
    Ok(Sighting {
        expires_in: owner.as_ref().and_then(|_| answer::left(*pttl)),
        owner: owner.map(voter::Value),
        fence: answer::fence(fence)?,
        waiters: waiters
            .chunks(2)
            .map(inspect::waiter)
            .map(|waiter| (waiter.holder, waiter.waiting_for))
            .collect(),
        waiting: u32::try_from(*waiting).unwrap_or(u32::MAX),
    })
}

pub(super) fn status(script: &Script, by_hash: bool) -> Cmd {
    let mut cmd = begin(script, by_hash, 2);
    cmd.arg(RECORD).arg(HIGHEST);
    cmd
}

/// What a node said about itself, if its data set still is that of `identity`.
pub(super) fn node_status(value: &Value, identity: &str) -> Result<Option<NodeStatus>, EngineError> {
    let Value::Array(list) = value else { return Err(answer::unexpected(value)) };
    let [record, highest, data, seconds, micros] = list.as_slice() else {
        return Err(answer::unexpected(value));
    };
    if identity.split_once('-').map(|(_, data)| data) != answer::text(data) {
        return Ok(None);
    }
    let text = answer::text(record);
    let record = text.and_then(Record::parse);
    Ok(Some(NodeStatus {
        identity: identity.to_owned(),
        unknown_layout: text.is_some() && record.is_none(),
        record,
        highest: answer::fence(highest)?,
        time_us: answer::fence(seconds)?.get() * 1_000_000 + answer::fence(micros)?.get(),
    }))
}

pub(super) fn write_record(script: &Script, by_hash: bool, seen: &str, record: &str, floor: Fence) -> Cmd {
    let mut cmd = begin(script, by_hash, 3);
    cmd.arg(RECORD).arg(HIGHEST).arg(FLOOR);
    cmd.arg(seen).arg(record).arg(floor.get());
    cmd
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::voter::State;

    #[test]
    fn the_scripts_bound_the_waiters_as_the_contract_says() {
        for script in [VOTE, RETRACT] {
            assert!(script.contains(&format!("local WAITERS_MAX = {WAITERS_MAX}\n")));
        }
    }

    #[test]
    fn the_script_bounds_the_floor_as_the_contract_says() {
        let most = voter::FLOOR_LEAD_MAX.as_micros();
        assert!(WRITE_RECORD.contains(&format!("local FLOOR_LEAD_MAX_US = {most}\n")));
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
        let expected = VotingRecord { text: record.to_string(), record: record.clone() };
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
