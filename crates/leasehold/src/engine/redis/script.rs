//! The scripts, and calls of them.

mod op;

use std::time::Duration;

use redis::{Cmd, Value};

pub(super) use self::op::{Op, entry_owner, write_entry};
use super::{answer, keys::Keys};
use crate::{engine::Claim, owner::Owner};

/// How long a name's fence outlives its last use.
pub(super) const FENCE_KEPT: Duration = Duration::from_secs(86_400);
/// A claim that reaches the server this late after its attempt ended is still recognised and refused. A kernel gives up
/// sending to a peer that does not answer after about a quarter of an hour.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(1200);

/// About the size of an operation with a name of usual length, and of one of its arguments.
const OP_BYTES: usize = 512;
const ARG_BYTES: usize = 40;

/// What can be done with locks and records is one script, so that many operations of many names can share one call. Those
/// of a client with a grace have a few fragments more, each right behind what it changes.
macro_rules! leases {
    (
        $wake:literal,
        $begin:expr,
        $handover:expr,
        $claim:expr,
        $renew:expr,
        $record:expr,
        $cases:literal,
        $first:literal
    ) => {
        concat!(
            include_str!("scripts/begin.lua"),
            include_str!("scripts/fence.lua"),
            include_str!("scripts/ordinary.lua"),
            $begin,
            include_str!($wake),
            "local function all_cases()\n",
            include_str!("scripts/handover.lua"),
            $handover,
            include_str!("scripts/claim.lua"),
            $claim,
            include_str!("scripts/release.lua"),
            include_str!("scripts/renew.lua"),
            $renew,
            "return { c = claim, r = release, a = abandon, t = abandon_unanswered, f = force_release, n = renew",
            $cases,
            " }\n",
            "end\n",
            "local function all_records()\n",
            include_str!("scripts/records/look.lua"),
            include_str!("scripts/records/watchers.lua"),
            include_str!("scripts/records/begin.lua"),
            $record,
            include_str!("scripts/records/settle.lua"),
            include_str!("scripts/records/renew.lua"),
            include_str!("scripts/records/cases.lua"),
            "end\n",
            $first,
            include_str!("scripts/dispatch.lua"),
        )
    };
}

const LEASES: &str = leases!("scripts/wake_whole.lua", "", "", "", "", "", "", "local k, a = 1, 2\n");

/// The same where one call may only touch one slot, and wake-ups stay on the node of that slot.
const LEASES_SHARDED: &str =
    leases!("scripts/wake_sharded.lua", "", "", "", "", "", "", "local k, a = 1, 2\n");

/// The same for a client that grants nothing new for a while after a promotion.
const LEASES_WITH_GRACE: &str = leases!(
    "scripts/wake_whole.lua",
    include_str!("scripts/grace/begin.lua"),
    include_str!("scripts/grace/handover.lua"),
    include_str!("scripts/grace/claim.lua"),
    include_str!("scripts/grace/renew.lua"),
    include_str!("scripts/grace/record.lua"),
    ", g = renew_or_assert",
    "local k, a = 3, 3\n"
);

/// The script for a server of this kind.
pub(super) fn leases(by_slot: bool, with_grace: bool) -> &'static str {
    match (by_slot, with_grace) {
        (true, _) => LEASES_SHARDED,
        (false, true) => LEASES_WITH_GRACE,
        (false, false) => LEASES,
    }
}

/// Renews or releases by the lock's own key alone.
pub(super) const TORN: &str = include_str!("scripts/torn.lua");

/// Begins a grace if the server is another than the last client met.
const ARRIVE: &str = include_str!("scripts/grace/arrive.lua");

/// Exists while nothing new is granted.
const GRACE: &str = "leasehold:grace";
/// Whom the last client met.
const ERA: &str = "leasehold:era";
/// The longest grace that any client asked for.
const GRACE_MS: &str = "leasehold:grace:ms";

/// Reads what is known about names.
pub(super) const INSPECT: &str = include_str!("scripts/inspect.lua");

/// A script and the hash by which a server that has seen it knows it.
pub(super) struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(code: &'static str) -> Self {
        Self { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }
}

pub(super) fn px(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// One call that carries these operations; `channel` is where their waiters are woken, and `era` the identity of the
/// server if the script is the one with a grace.
pub(super) fn call<'a, I>(
    script: &Script,
    by_hash: bool,
    operations: I,
    channel: &str,
    era: Option<&str>,
) -> Cmd
where
    I: ExactSizeIterator<Item = &'a Op> + Clone,
{
    let mut cmd = begin(script, by_hash, operations.len() * OP_BYTES);
    let keys = operations.clone().map(Op::key_count).sum::<usize>();
    if era.is_some() {
        cmd.arg(2 + keys).arg(GRACE).arg(ERA);
    } else {
        cmd.arg(keys);
    }
    for op in operations.clone() {
        op.write_keys(&mut cmd);
    }
    cmd.arg(FENCE_KEPT.as_millis() as u64);
    if let Some(era) = era {
        cmd.arg(era);
    }
    for op in operations {
        op.write_arguments(&mut cmd, channel, era.is_some());
    }
    cmd
}

/// The first call over a connection with a grace.
pub(super) fn arrival(identity: &str, grace: Duration) -> Cmd {
    let mut cmd = begin(&Script::new(ARRIVE), false, OP_BYTES);
    cmd.arg(3).arg(ERA).arg(GRACE).arg(GRACE_MS).arg(identity).arg(px(grace));
    cmd
}

/// One call that renews (with a ttl) or releases by the lock's own key alone.
pub(super) fn torn(
    script: &Script,
    by_hash: bool,
    keys: &Keys,
    owner: &Owner,
    renew_for: Option<Duration>,
) -> Cmd {
    let mut cmd = begin(script, by_hash, OP_BYTES);
    cmd.arg(1).arg(keys.lock()).arg(owner.expose());
    match renew_for {
        Some(ttl) => cmd.arg(px(ttl)),
        None => cmd.arg(""),
    };
    cmd
}

/// Ends an attempt key by key, all but the lock itself: the tombstone if a copy of its claim may still come, then its
/// place in the queue.
pub(super) fn torn_end(
    keys: &Keys,
    owner: &Owner,
    claim: Option<&Claim>,
    may_come_late: bool,
    channel: &str,
) -> Vec<Cmd> {
    let mut steps = Vec::new();
    if may_come_late {
        let mut tombstone = redis::cmd("SET");
        tombstone.arg(keys.gone(owner.id_text())).arg(1).arg("PX").arg(TOMBSTONE.as_millis() as u64);
        steps.push(tombstone);
    }
    if let Some(claim) = claim.filter(|claim| claim.queue.is_some()) {
        let mut entry = redis::cmd("ZREM");
        entry.arg(keys.waiters());
        write_entry(&mut entry, Some(claim), channel);
        let mut seen = redis::cmd("HDEL");
        seen.arg(keys.seen()).arg(owner.id_text());
        steps.extend([entry, seen]);
    }
    steps
}

/// One call that looks at these locks.
pub(super) fn inspection(script: &Script, by_hash: bool, locks: &[Keys], most_waiters: u32) -> Cmd {
    let mut cmd = begin(script, by_hash, locks.len() * OP_BYTES);
    cmd.arg(locks.len() * 3);
    for keys in locks {
        cmd.arg(keys.lock()).arg(keys.fence()).arg(keys.waiters());
    }
    cmd.arg(most_waiters);
    cmd
}

/// `bytes` is about how much follows.
pub(super) fn begin(script: &Script, by_hash: bool, bytes: usize) -> Cmd {
    let (command, which) = if by_hash { ("EVALSHA", &*script.hash) } else { ("EVAL", script.code) };
    let mut cmd = Cmd::with_capacity(3 + bytes / ARG_BYTES, command.len() + which.len() + bytes);
    cmd.arg(command).arg(which);
    cmd
}

/// The replies of one call, one per operation.
pub(super) fn replies(value: Value, expected: usize) -> Result<Vec<Value>, crate::engine::EngineError> {
    match value {
        Value::Array(replies) if replies.len() == expected => Ok(replies),
        other => Err(answer::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_bounds_the_queue_as_the_contract_says() {
        for bound in ["WAITERS_MAX", "WATCHERS_MAX"] {
            assert!(LEASES.contains(&format!("local {bound} = {}\n", crate::engine::WAITERS_MAX)));
        }
    }

    #[test]
    fn only_the_words_for_wake_ups_differ_in_a_cluster() {
        let (whole, sharded) = (LEASES.lines(), LEASES_SHARDED.lines());
        let apart: Vec<_> = whole.zip(sharded).filter(|(one, other)| one != other).collect();
        assert!(matches!(apart[..], [_, ("local COUNT, PUBLISH = 'NUMSUB', 'PUBLISH'", _)]), "{apart:?}");
    }
}
