//! The scripts, and calls of them.
//!
//! A claim or a release of the ordinary case is a small script, one for those that leave alone and one for several in a call,
//! which returns nil in any other case. All other operations on locks are one script, so that many of them can share a call.
//! Renewals, records and latches have scripts of their own: a call of locks never carries their code.

mod entry;
mod held_text;
mod latch;
mod op;
mod redisson;

use std::{
    borrow::Cow,
    sync::{
        LazyLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, Value};

use self::op::Key;
pub(super) use self::{
    entry::{entry, entry_parts},
    held_text::HeldText,
    latch::LatchStep,
    op::{Op, Step, parts},
};
use super::{keys::Keys, reply};
use leasehold_core::engine::{
    Claim, EngineError, WAITERS_SHOWN, crc16::crc16, registry, voter::READERS_LISTED,
};

/// How long the fence of a name outlives its last use, where each name has its own.
pub(super) const FENCE_KEPT: Duration = Duration::from_secs(86_400);
/// How long the tombstone of an attempt refuses claims that reach the server late.
pub(super) const TOMBSTONE: Duration = registry::LATEST;

/// Exists while nothing new is granted.
const GRACE: &str = "leasehold:grace";
/// Whom the last client met.
const ERA: &str = "leasehold:era";
/// The graces that clients asked for lately.
const GRACES: &str = "leasehold:graces";

/// About the size of an operation with a name of usual length, and of one of its arguments.
pub(super) const OP_BYTES: usize = 512;
const ARG_BYTES: usize = 40;

/// The text of files in `scripts/`, one after the other.
macro_rules! lua {
    ($($file:literal),+) => { concat!($(include_str!(concat!("scripts/", $file, ".lua"))),+) };
}

macro_rules! scripts {
    ($($name:ident: $($file:literal),+;)+) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(lua!($($file),+)));)+
    };
}

scripts! {
    ARRIVE: "grace/arrive";
    INSPECT: "inspect";
    MARKS: "records/marks";

    DEADLINES_LAYOUT: "deadlines/begin", "deadlines/layout";
    DEADLINES_SET: "deadlines/begin", "deadlines/set";
    DEADLINES_CLAIM: "deadlines/begin", "deadlines/claim";
    DEADLINES_SETTLE: "deadlines/begin", "deadlines/settle";
    DEADLINES_CANCEL: "deadlines/begin", "deadlines/cancel";
    DEADLINES_PEEK: "deadlines/begin", "deadlines/peek";
    DEADLINES_STATS: "deadlines/begin", "deadlines/stats";
    DEADLINES_DEAD: "deadlines/begin", "deadlines/dead";

    ORDINARY: "voter/ordinary";
    VOTE: "begin", "voter/begin", "voter/fence", "voter/record", "voter/readers", "voter/waiters", "voter/vote";
    CONFIRM: "begin", "voter/begin", "voter/fence", "voter/confirm";
    REPAIR: "begin", "voter/begin", "voter/fence", "voter/record", "voter/repair";
    VOTER_RENEW: "begin", "voter/begin", "voter/renew";
    RETRACT: "begin", "voter/begin", "voter/readers", "voter/ending", "voter/waiters", "voter/retract";
    WITHDRAW: "begin", "voter/begin", "voter/readers", "voter/ending", "voter/waiters", "voter/withdraw";
    READER_CONFIRM: "begin", "voter/begin", "voter/fence", "voter/readers", "voter/shared/confirm";
    READER_REPAIR: "begin", "voter/begin", "voter/fence", "voter/record", "voter/readers", "voter/shared/repair";
    READER_RENEW: "begin", "voter/begin", "voter/readers", "voter/shared/renew";
    STATUS: "voter/status";
    WRITE_RECORD: "voter/write_record";
}

/// What locks and records have in common: the time, fences, and how many milliseconds are left of a grace.
fn begin_with(with_grace: bool) -> &'static str {
    if with_grace { lua!("begin", "fence", "grace/begin") } else { lua!("begin", "fence", "grace/none") }
}

/// How waiters are woken. In a cluster a call may only touch one slot, and wake-ups stay on the node of that slot.
fn wake(by_slot: bool) -> &'static str {
    if by_slot { lua!("wake_sharded") } else { lua!("wake_whole") }
}

fn locks(by_slot: bool, with_grace: bool) -> String {
    [
        begin_with(with_grace),
        "local function all_cases()\n",
        wake(by_slot),
        lua!("members", "handover", "claim", "release", "convert", "single_key"),
        if with_grace { lua!("grace/renew") } else { "local renew\n" },
        "return { c = claim, r = release, a = abandon, t = abandon_unanswered, f = force_release, n = renew, \
         v = convert, l = set_limit, z = close_member, y = hand_to, A = claim_all, k = close, \
         o = release_alone, e = move_end, m = move_last_end }\nend\n",
        lua!("dispatch"),
    ]
    .concat()
}

fn records(by_slot: bool, with_grace: bool) -> String {
    let (first, then) = (lua!("records/look", "records/watchers"), lua!("records/begin", "records/settle"));
    [begin_with(with_grace), wake(by_slot), first, then, lua!("records/renew", "records/cases", "cases")]
        .concat()
}

fn latches(by_slot: bool, with_grace: bool) -> String {
    [begin_with(with_grace), wake(by_slot), lua!("records/watchers", "latch", "cases")].concat()
}

/// Without a grace: Redisson's clients take no part in one.
fn redisson(by_slot: bool) -> String {
    let locks = lua!("redisson/claim", "redisson/release", "redisson/dispatch");
    [lua!("begin"), wake(by_slot), locks].concat()
}

/// A script and the hash by which a server that has seen it knows it.
pub(super) struct Script {
    code: Cow<'static, str>,
    hash: String,
}

impl Script {
    fn new(code: impl Into<Cow<'static, str>>) -> Self {
        let code = code.into();
        Self { hash: redis::Script::new(&code).get_hash().to_owned(), code }
    }

    /// A call by its hash, or with its text. `write` appends how many keys there are, the keys and the arguments: about so
    /// many bytes.
    pub(super) fn call(&self, by_hash: bool, bytes: usize, write: impl FnOnce(&mut Cmd)) -> Cmd {
        let (command, which) = if by_hash { ("EVALSHA", &*self.hash) } else { ("EVAL", &*self.code) };
        let mut cmd = Cmd::with_capacity(3 + bytes / ARG_BYTES, command.len() + which.len() + bytes);
        cmd.arg(command).arg(which);
        write(&mut cmd);
        cmd
    }
}

/// Which script a call takes. Operations with the same one share calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    /// Releases of the ordinary case by a command of the server: see `native.rs`. The only one without a script.
    ReleaseNatively,
    /// One claim of the ordinary case.
    ClaimFree,
    /// One release of the ordinary case.
    ReleaseUnwanted,
    /// Several releases of the ordinary case.
    ReleasesUnwanted,
    /// Several claims of the ordinary case.
    ClaimsFree,
    /// One release of a lock that others wait for.
    ReleaseWanted,
    /// Claims of readers and of permits in the ordinary case.
    MembersClaim,
    /// Their releases in the ordinary case.
    MembersRelease,
    Renew,
    /// Renewals of readers and of permits.
    MembersRenew,
    Locks,
    Records,
    /// All operations on locks in Redisson's format.
    Redisson,
    /// All operations on latches and barriers.
    Latches,
}

impl Call {
    /// Whether it returns nil for an operation in another case than its own.
    pub(super) fn is_ordinary(self) -> bool {
        self < Self::Renew
    }
}

/// The scripts for a server of one kind.
pub(super) struct Scripts {
    /// By [`Call`], from the second on.
    scripts: [Script; 13],
    by_slot: bool,
    with_grace: bool,
}

impl Scripts {
    fn new(by_slot: bool, with_grace: bool) -> Self {
        let scripts = [
            Script::new(lua!("claim_free")),
            Script::new(lua!("release_unwanted")),
            Script::new(lua!("releases_unwanted")),
            Script::new(lua!("claims_free")),
            Script::new([wake(by_slot), lua!("release_wanted")].concat()),
            Script::new(lua!("members/claim")),
            Script::new(lua!("members/release")),
            Script::new(lua!("renew")),
            Script::new(lua!("members/renew")),
            Script::new(locks(by_slot, with_grace)),
            Script::new(records(by_slot, with_grace)),
            Script::new(redisson(by_slot)),
            Script::new(latches(by_slot, with_grace)),
        ];
        Self { scripts, by_slot, with_grace }
    }

    /// For a node of a cluster; or for one server, with or without a grace.
    pub(super) fn of(by_slot: bool, with_grace: bool) -> &'static Self {
        static KINDS: LazyLock<[Scripts; 3]> =
            LazyLock::new(|| [(true, false), (false, true), (false, false)].map(|(s, g)| Scripts::new(s, g)));
        match (by_slot, with_grace) {
            (true, _) => &KINDS[0],
            (false, true) => &KINDS[1],
            (false, false) => &KINDS[2],
        }
    }

    /// The calls that try the ordinary case of an operation over this link: alone, and among others.
    pub(super) fn ordinary(&self, op: &Op, link: u64) -> Option<[Call; 2]> {
        if self.with_grace { None } else { op.ordinary(link) }
    }

    /// The call that an operation takes in any case.
    pub(super) fn call_of(&self, op: &Op) -> Call {
        op.call(self.with_grace)
    }

    /// Operations of different slots do not share a call.
    pub(super) fn slot_of(&self, op: &Op) -> u16 {
        if self.by_slot { op.keys.slot() } else { 0 }
    }

    /// One call that carries these operations over this link. `era` is the identity of the server and the grace that this
    /// client needs, if there is one.
    pub(super) fn build(
        &self,
        call: Call,
        by_hash: bool,
        ops: &[&Op],
        link: u64,
        era: Option<(&str, Duration)>,
    ) -> Cmd {
        // Asked once: what an end has to do away with may change at any time.
        let forms: Vec<_> = ops.iter().map(|op| (op, op.form(call, by_hash, link))).collect();
        let own_keys: usize = forms.iter().map(|(_, (_, keys))| keys.len()).sum();
        let has_one_f = matches!(call, Call::ClaimsFree | Call::MembersClaim);
        let own_keys = own_keys + usize::from(has_one_f);
        self.scripts[call as usize - 1].call(by_hash, forms.len() * OP_BYTES, |cmd| {
            match era {
                Some(_) => cmd.arg(3 + own_keys).arg(GRACE).arg(ERA).arg(GRACES),
                None => cmd.arg(own_keys),
            };
            let (first, (_, kinds)) = &forms[0];
            if has_one_f {
                first.write_key(&Key::F, self.by_slot, cmd);
            }
            match call {
                // Keys of one kind follow each other.
                Call::ClaimsFree | Call::ReleasesUnwanted => {
                    for key in *kinds {
                        forms.iter().for_each(|(op, _)| op.write_key(key, self.by_slot, cmd));
                    }
                }
                _ => {
                    for (op, (_, keys)) in &forms {
                        keys.iter().for_each(|key| op.write_key(key, self.by_slot, cmd));
                    }
                }
            }
            if let Some((identity, grace)) = era {
                cmd.arg(identity).arg(px(grace));
            }
            let mut last_px = 0;
            forms.iter().for_each(|(op, form)| op.write_args(form, &mut last_px, cmd));
        })
    }
}

impl Scripts {
    /// One call for all of these claims, which are granted together or not at all.
    pub(super) fn build_all(
        &self,
        by_hash: bool,
        claims: &[(Keys, &Claim)],
        era: Option<(&str, Duration)>,
    ) -> Cmd {
        let own_keys = claims.len() * op::ALL_AND_G.len();
        self.scripts[Call::Locks as usize - 1].call(by_hash, claims.len() * OP_BYTES, |cmd| {
            match era {
                Some(_) => cmd.arg(3 + own_keys).arg(GRACE).arg(ERA).arg(GRACES),
                None => cmd.arg(own_keys),
            };
            for (keys, claim) in claims {
                let write = |key| op::write_key(key, keys, Some(&claim.owner), self.by_slot, cmd);
                op::ALL_AND_G.iter().for_each(write);
            }
            if let Some((identity, grace)) = era {
                cmd.arg(identity).arg(px(grace));
            }
            cmd.arg("A").arg(claims.len());
            for (_, claim) in claims {
                let (id, rest) = parts(&claim.owner);
                cmd.arg(id).arg(rest).arg(px(claim.ttl + claim.lock_delay)).arg("").arg("0");
                op::write_mode(claim.mode, cmd);
            }
        })
    }
}

/// Who was found waiting for a name lately: which script is tried first depends on it. A few names share a place.
pub(super) struct Contended([AtomicU8; 256]);

/// Who waits for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Crowd {
    Nobody,
    /// One who wants it alone is next.
    One,
    /// Readers or permits are next.
    Members,
}

impl Default for Contended {
    fn default() -> Self {
        Self([const { AtomicU8::new(Crowd::Nobody as u8) }; 256])
    }
}

impl Contended {
    fn place(&self, lock: &str) -> &AtomicU8 {
        &self.0[usize::from(crc16(lock.as_bytes())) % self.0.len()]
    }

    pub(super) fn by(&self, lock: &str) -> Crowd {
        match self.place(lock).load(Ordering::Relaxed) {
            0 => Crowd::Nobody,
            1 => Crowd::One,
            _ => Crowd::Members,
        }
    }

    pub(super) fn note(&self, lock: &str, crowd: Crowd) {
        self.place(lock).store(crowd as u8, Ordering::Relaxed);
    }
}

pub(super) fn px(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The first call over a connection with a grace.
pub(super) fn arrival(identity: &str, grace: Duration) -> Cmd {
    ARRIVE.call(false, OP_BYTES, |cmd| {
        cmd.arg(3).arg(ERA).arg(GRACE).arg(GRACES).arg(identity).arg(px(grace));
    })
}

/// Keys and arguments of `inspect.lua`; `own_fences` where each name has its own.
pub(super) fn write_inspection(cmd: &mut Cmd, locks: &[Keys], own_fences: bool) {
    let each = if own_fences { 5 } else { 6 };
    cmd.arg(locks.len() * each);
    for keys in locks {
        cmd.arg(keys.lock()).arg(keys.waiters()).arg(keys.ends()).arg(keys.members());
        if own_fences {
            cmd.arg(keys.fence());
        } else {
            cmd.arg(keys.limit()).arg(keys.holder());
        }
    }
    // Of a quorum's readers those count that a majority of nodes lists.
    cmd.arg(WAITERS_SHOWN).arg(if own_fences { READERS_LISTED } else { WAITERS_SHOWN }).arg(each);
}

/// The replies of one call, one per operation; 1 alone is the reply to all, and so is the first of their fences.
pub(super) fn replies(value: Value, expected: usize) -> Result<Vec<Value>, EngineError> {
    match value {
        Value::Array(replies) if replies.len() == expected => Ok(replies),
        Value::Int(1) => Ok(vec![Value::Int(1); expected]),
        // The only one was not in the ordinary case.
        Value::Nil if expected == 1 => Ok(vec![Value::Nil]),
        Value::BulkString(_) => {
            let first = reply::fence(&value)?.get();
            let fence = |nth: u64| Value::BulkString((first + nth).to_string().into_bytes());
            Ok((0..expected as u64).map(fence).collect())
        }
        other => Err(reply::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_bound_those_who_wait_as_the_contract_says() {
        use leasehold_core::{decide::latch::BROKEN_MAX, engine::latches};
        let (waiters, broken) = (leasehold_core::engine::WAITERS_MAX, BROKEN_MAX as u32);
        for (script, bound, most) in [
            (locks(false, false), "WAITERS_MAX", waiters),
            (records(false, false), "WATCHERS_MAX", waiters),
            (super::latches(false, false), "WATCHERS_MAX", waiters),
            (super::latches(false, false), "PARTIES_MAX", latches::PARTIES_MAX),
            (super::latches(false, false), "PARTIES_SHOWN", latches::PARTIES_SHOWN),
            (super::latches(false, false), "BROKEN_MAX", broken),
        ] {
            assert!(script.contains(&format!("local {bound} = {most}\n")), "{bound}");
        }
        let kept = format!("local KEPT = '{}'\n", latches::KEPT.as_millis());
        assert!(super::latches(false, false).contains(&kept));
    }

    #[test]
    fn only_the_words_for_wake_ups_differ_in_a_cluster() {
        for script in [locks, records, super::latches] {
            let (whole, sharded) = (script(false, false), script(true, false));
            let apart: Vec<_> =
                whole.lines().zip(sharded.lines()).filter(|(one, other)| one != other).collect();
            assert!(matches!(apart[..], [_, ("local PUBLISH = 'PUBLISH'", _)]), "{apart:?}");
        }
    }
}
