//! The scripts, and calls of them.
//!
//! A lone claim or release of the ordinary case is a small script of its own, which answers nothing in any other case.
//! Everything else that is done with locks is one script, so that many operations of many names can share a call.
//! Renewals and records have scripts of their own: a call of locks never carries their code.

mod op;

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Value};

pub(super) use self::op::{EndPart, Op, entry_owner, write_entry};
use super::{answer, keys::Keys};
use crate::engine::{EngineError, WAITERS_SHOWN, crc16::crc16};

/// How long the fence of a name outlives its last use, where each name has its own.
pub(super) const FENCE_KEPT: Duration = Duration::from_secs(86_400);
/// A claim that reaches the server this late after its attempt ended is still recognised and refused. A kernel gives up
/// sending to a peer that does not answer after about a quarter of an hour.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(1200);

/// About the size of an operation with a name of usual length, and of one of its arguments.
const OP_BYTES: usize = 512;
const ARG_BYTES: usize = 40;

/// `$grace` is how many milliseconds are left of a grace; `$first` is where the first operation has its keys and letter.
macro_rules! locks {
    ($wake:literal, $grace:expr, $renew:expr, $cases:literal, $first:literal) => {
        concat!(
            include_str!("scripts/begin.lua"),
            include_str!("scripts/fence.lua"),
            $grace,
            "local function all_cases()\n",
            include_str!($wake),
            include_str!("scripts/handover.lua"),
            include_str!("scripts/claim.lua"),
            include_str!("scripts/release.lua"),
            include_str!("scripts/single_key.lua"),
            $renew,
            "return { c = claim, r = release, a = abandon, t = abandon_unanswered, f = force_release, k = close, \
             o = release_alone, w = leave_queue, h = forget_seen, g = set_tombstone",
            $cases,
            " }\nend\n",
            $first,
            include_str!("scripts/dispatch.lua"),
        )
    };
}

macro_rules! records {
    ($wake:literal, $grace:expr, $first:literal) => {
        concat!(
            include_str!("scripts/begin.lua"),
            include_str!("scripts/fence.lua"),
            $grace,
            include_str!($wake),
            include_str!("scripts/records/look.lua"),
            include_str!("scripts/records/watchers.lua"),
            include_str!("scripts/records/begin.lua"),
            include_str!("scripts/records/settle.lua"),
            include_str!("scripts/records/renew.lua"),
            $first,
            include_str!("scripts/records/dispatch.lua"),
        )
    };
}

const LOCKS: &str = locks!("scripts/wake_whole.lua", "local grace_ms = -2\n", "", "", "local k, a = 1, 1\n");
const RECORDS: &str = records!("scripts/wake_whole.lua", "local grace_ms = -2\n", "local k, a = 1, 1\n");

/// The same where one call may only touch one slot, and wake-ups stay on the node of that slot.
const LOCKS_SHARDED: &str =
    locks!("scripts/wake_sharded.lua", "local grace_ms = -2\n", "", "", "local k, a = 1, 1\n");
const RECORDS_SHARDED: &str =
    records!("scripts/wake_sharded.lua", "local grace_ms = -2\n", "local k, a = 1, 1\n");

/// The same for a client that grants nothing new for a while after a promotion.
const LOCKS_WITH_GRACE: &str = locks!(
    "scripts/wake_whole.lua",
    include_str!("scripts/grace/begin.lua"),
    include_str!("scripts/grace/renew.lua"),
    ", n = renew",
    "local k, a = 4, 3\n"
);
const RECORDS_WITH_GRACE: &str =
    records!("scripts/wake_whole.lua", include_str!("scripts/grace/begin.lua"), "local k, a = 4, 3\n");

const CLAIM_FREE: &str = include_str!("scripts/claim_free.lua");
const RELEASE_UNWANTED: &str = include_str!("scripts/release_unwanted.lua");
const RENEW: &str = include_str!("scripts/renew.lua");

/// Begins a grace if the server is another than the last client met.
const ARRIVE: &str = include_str!("scripts/grace/arrive.lua");

/// Exists while nothing new is granted.
const GRACE: &str = "leasehold:grace";
/// Whom the last client met.
const ERA: &str = "leasehold:era";
/// The graces that clients asked for lately.
const GRACES: &str = "leasehold:graces";

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

/// The scripts for a server of one kind.
pub(super) struct Scripts {
    claim_free: Script,
    release_unwanted: Script,
    renew: Script,
    locks: Script,
    records: Script,
    by_slot: bool,
    with_grace: bool,
}

/// Which script a call takes. Operations with the same one share calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// One claim of the ordinary case.
    ClaimFree,
    /// One release of the ordinary case.
    ReleaseUnwanted,
    Renew,
    Locks,
    Records,
}

impl Scripts {
    fn new(locks: &'static str, records: &'static str, by_slot: bool, with_grace: bool) -> Self {
        Self {
            claim_free: Script::new(CLAIM_FREE),
            release_unwanted: Script::new(RELEASE_UNWANTED),
            renew: Script::new(RENEW),
            locks: Script::new(locks),
            records: Script::new(records),
            by_slot,
            with_grace,
        }
    }

    pub(super) fn of(by_slot: bool, with_grace: bool) -> &'static Self {
        static WHOLE: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(LOCKS, RECORDS, false, false));
        static SHARDED: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::new(LOCKS_SHARDED, RECORDS_SHARDED, true, false));
        static WITH_GRACE: LazyLock<Scripts> =
            LazyLock::new(|| Scripts::new(LOCKS_WITH_GRACE, RECORDS_WITH_GRACE, false, true));
        match (by_slot, with_grace) {
            (true, _) => &SHARDED,
            (false, true) => &WITH_GRACE,
            (false, false) => &WHOLE,
        }
    }

    pub(super) fn script(&self, call: Call) -> &Script {
        match call {
            Call::ClaimFree => &self.claim_free,
            Call::ReleaseUnwanted => &self.release_unwanted,
            Call::Renew => &self.renew,
            Call::Locks => &self.locks,
            Call::Records => &self.records,
        }
    }

    /// The call that tries the ordinary case of an operation.
    pub(super) fn ordinary(&self, op: &Op) -> Option<Call> {
        op.ordinary().filter(|_| !self.with_grace)
    }

    /// The call for an operation among others; those with the same answer share one.
    pub(super) fn group(&self, op: &Op) -> (Call, u16) {
        (op.call(self.with_grace), if self.by_slot { op.slot() } else { 0 })
    }

    /// One call that carries these operations. `channel` is where their waiters are woken; `era` is the identity of the
    /// server and the grace that this client needs, if there is one.
    pub(super) fn build<'a, I>(
        &self,
        call: Call,
        by_hash: bool,
        operations: I,
        channel: &str,
        era: Option<(&str, Duration)>,
    ) -> Cmd
    where
        I: ExactSizeIterator<Item = &'a Op> + Clone,
    {
        let mut cmd = begin(self.script(call), by_hash, operations.len() * OP_BYTES);
        let keys = operations.clone().map(|op| op.key_count(call)).sum::<usize>();
        match era {
            Some(_) => cmd.arg(3 + keys).arg(GRACE).arg(ERA).arg(GRACES),
            None => cmd.arg(keys),
        };
        for op in operations.clone() {
            op.write_keys(&mut cmd, call, self.by_slot);
        }
        if let Some((identity, grace)) = era {
            cmd.arg(identity).arg(px(grace));
        }
        for op in operations {
            op.write_arguments(&mut cmd, call, channel);
        }
        cmd
    }
}

/// Whose last lone call did not find the ordinary case: the next one does not try it first. A few names share a place.
pub(super) struct Contended([AtomicBool; 256]);

impl Default for Contended {
    fn default() -> Self {
        Self([const { AtomicBool::new(false) }; 256])
    }
}

impl Contended {
    fn place(&self, op: &Op) -> &AtomicBool {
        &self.0[usize::from(crc16(op.key().as_bytes())) % self.0.len()]
    }

    pub(super) fn is(&self, op: &Op) -> bool {
        self.place(op).load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, op: &Op, contended: bool) {
        self.place(op).store(contended, Ordering::Relaxed);
    }
}

pub(super) fn px(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The first call over a connection with a grace.
pub(super) fn arrival(identity: &str, grace: Duration) -> Cmd {
    let mut cmd = begin(&Script::new(ARRIVE), false, OP_BYTES);
    cmd.arg(3).arg(ERA).arg(GRACE).arg(GRACES).arg(identity).arg(px(grace));
    cmd
}

/// One call of `inspect.lua`; `own_fences` where each name has its own.
pub(super) fn inspection(script: &Script, by_hash: bool, locks: &[Keys], own_fences: bool) -> Cmd {
    let mut cmd = begin(script, by_hash, locks.len() * OP_BYTES);
    let each = if own_fences { 3 } else { 2 };
    cmd.arg(locks.len() * each);
    for keys in locks {
        cmd.arg(keys.lock()).arg(keys.waiters());
        if own_fences {
            cmd.arg(keys.fence());
        }
    }
    cmd.arg(WAITERS_SHOWN).arg(each);
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
pub(super) fn replies(value: Value, expected: usize) -> Result<Vec<Value>, EngineError> {
    match value {
        Value::Array(replies) if replies.len() == expected => Ok(replies),
        other => Err(answer::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_bound_those_who_wait_as_the_contract_says() {
        for (script, bound) in [(LOCKS, "WAITERS_MAX"), (RECORDS, "WATCHERS_MAX")] {
            assert!(script.contains(&format!("local {bound} = {}\n", crate::engine::WAITERS_MAX)));
        }
    }

    #[test]
    fn only_the_words_for_wake_ups_differ_in_a_cluster() {
        for (whole, sharded) in [(LOCKS, LOCKS_SHARDED), (RECORDS, RECORDS_SHARDED)] {
            let apart: Vec<_> =
                whole.lines().zip(sharded.lines()).filter(|(one, other)| one != other).collect();
            assert!(matches!(apart[..], [_, ("local COUNT, PUBLISH = 'NUMSUB', 'PUBLISH'", _)]), "{apart:?}");
        }
    }
}
