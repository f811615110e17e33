//! The scripts, and the operations that one call of them carries.

use std::{fmt, io::Write, time::Duration};

use redis::{Cmd, RedisWrite, Value};

use super::{answer, keys::Keys, records};
use crate::{
    engine::{Claim, Hold, Kind, liveness},
    fence::Fence,
    owner::Owner,
};

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

/// One operation on one lock or record. It holds what it was made from: its texts are written straight into the call.
pub(super) struct Op {
    keys: Keys,
    step: Step,
    /// Where its waiter is woken, if not where all waiters of the connection are.
    channel: Option<String>,
}

enum Step {
    Claim {
        claim: Claim,
        /// What the server told when the attempt queued.
        arrival: Option<String>,
    },
    Renew(Hold),
    End {
        owner: Owner,
        /// The claim that may have queued.
        claim: Option<Claim>,
        /// Some copy of the claim may still reach the server.
        unanswered: bool,
    },
    ForceRelease(Fence),
    Record(records::Step),
}

impl Op {
    fn new(keys: Keys, step: Step) -> Self {
        Self { keys, step, channel: None }
    }

    /// The same with another channel to be woken on.
    pub(super) fn woken_on(self, channel: String) -> Self {
        Self { channel: Some(channel), ..self }
    }

    /// The slot of a cluster that its keys are in.
    pub(super) fn slot(&self) -> u16 {
        self.keys.slot()
    }

    /// Asks for a lock, and to wait for it if the claim says so.
    pub(super) fn claim(keys: Keys, claim: &Claim, arrival: Option<String>) -> Self {
        Self::new(keys, Step::Claim { claim: claim.clone(), arrival })
    }

    /// Ends an attempt. `claim` is how it queued, if it may have.
    pub(super) fn release(keys: Keys, owner: &Owner, claim: Option<&Claim>) -> Self {
        let claim = claim.filter(|claim| claim.queue_for.is_some()).cloned();
        let unanswered = owner.has_unanswered_claim();
        Self::new(keys, Step::End { owner: owner.clone(), claim, unanswered })
    }

    pub(super) fn force_release(keys: Keys, seen: Fence) -> Self {
        Self::new(keys, Step::ForceRelease(seen))
    }

    pub(super) fn renew(keys: Keys, hold: &Hold) -> Self {
        Self::new(
            keys,
            match hold.kind {
                Kind::Lock => Step::Renew(hold.clone()),
                Kind::Record => Step::Record(records::Step::Renew { hold: hold.clone(), alone: false }),
            },
        )
    }

    /// One step of a record.
    pub(super) fn record(keys: Keys, step: records::Step) -> Self {
        Self::new(keys, Step::Record(step))
    }

    /// Whether it must not be sent (any more).
    pub(super) fn is_void(&self) -> bool {
        // A claim must not leave once its attempt has ended.
        matches!(&self.step, Step::Claim { claim, .. } if claim.owner.has_ended())
    }

    /// Whether somebody is to be woken for it.
    pub(super) fn may_queue(&self) -> bool {
        match &self.step {
            Step::Claim { claim, .. } => claim.queue_for.is_some(),
            Step::Record(step) => step.watches(),
            _ => false,
        }
    }

    /// Whether it names a place in the queue, and with it a channel.
    pub(super) fn has_entry(&self) -> bool {
        self.may_queue() || matches!(&self.step, Step::End { claim: Some(_), .. })
    }

    /// Whether it can wait until all keys of its name are on one node. Who holds or has held the lock cannot.
    pub(super) fn can_wait_for_its_keys(&self) -> bool {
        match &self.step {
            Step::Claim { .. } | Step::ForceRelease(_) => true,
            Step::Record(step) => step.is_patient(),
            Step::Renew(_) | Step::End { .. } => false,
        }
    }

    fn key_count(&self) -> usize {
        match &self.step {
            Step::Claim { .. } | Step::End { unanswered: true, .. } => 5,
            Step::End { .. } | Step::ForceRelease(_) => 4,
            Step::Renew(_) => 2,
            Step::Record(step) => step.key_count(),
        }
    }

    fn write_keys(&self, cmd: &mut Cmd) {
        let keys = &self.keys;
        if let Step::Record(step) = &self.step {
            return step.write_keys(keys, cmd);
        }
        cmd.arg(keys.lock()).arg(keys.fence());
        if matches!(self.step, Step::Renew(_)) {
            return;
        }
        cmd.arg(keys.waiters()).arg(keys.seen());
        match &self.step {
            Step::Claim { claim: Claim { owner, .. }, .. } | Step::End { owner, unanswered: true, .. } => {
                cmd.arg(keys.gone(owner.id_text()));
            }
            _ => {}
        }
    }

    fn write_arguments(&self, cmd: &mut Cmd, channel: &str, with_grace: bool) {
        let channel = self.channel.as_deref().unwrap_or(channel);
        match &self.step {
            Step::Claim { claim, arrival } => {
                cmd.arg("c").arg(claim.owner.expose()).arg(px(claim.ttl + claim.lock_delay));
                write_entry(cmd, Some(claim), channel);
                cmd.arg(arrival.as_deref().unwrap_or("0"));
            }
            Step::Renew(hold) => {
                let letter = if with_grace { "g" } else { "n" };
                cmd.arg(letter).arg(hold.owner.expose()).arg(px(hold.ttl + hold.lock_delay));
                if with_grace {
                    cmd.arg(hold.fence.get());
                }
            }
            Step::End { owner, claim: None, unanswered: false } => {
                cmd.arg("r").arg(owner.expose());
            }
            Step::End { owner, claim, unanswered } => {
                cmd.arg(if *unanswered { "t" } else { "a" }).arg(owner.expose());
                write_entry(cmd, claim.as_ref(), channel);
                if *unanswered {
                    cmd.arg(TOMBSTONE.as_millis() as u64);
                }
            }
            Step::ForceRelease(seen) => {
                cmd.arg("f").arg(seen.get());
            }
            Step::Record(step) => step.write_arguments(cmd, channel),
        }
    }
}

/// A waiter's entry in the queue, which `handover.lua` reads: the same text on every resend.
struct Entry<'a> {
    claim: &'a Claim,
    wait: Duration,
    channel: &'a str,
}

impl<'a> Entry<'a> {
    /// The entry of a claim that may queue.
    fn of(claim: &'a Claim, channel: &'a str) -> Option<Self> {
        claim.queue_for.map(|wait| Self { claim, wait, channel })
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, wait, channel } = self;
        let (px, wait) = (px(claim.ttl + claim.lock_delay), wait.as_millis());
        let live = liveness(claim.poll_every).as_millis();
        write!(f, "1 {px} {wait} {live} {channel} {}", claim.owner.expose())
    }
}

/// The next argument: the claim's entry, or empty if it does not wait.
pub(super) fn write_entry(cmd: &mut Cmd, claim: Option<&Claim>, channel: &str) {
    let mut argument = cmd.writer_for_next_arg();
    if let Some(entry) = claim.and_then(|claim| Entry::of(claim, channel)) {
        write!(argument, "{entry}").expect("a command takes what is written");
    }
}

/// Who an entry of the queue belongs to: its owner value.
pub(super) fn entry_owner(entry: &str) -> &str {
    entry.splitn(6, ' ').nth(5).unwrap_or_default()
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
pub(super) fn torn_end(keys: &Keys, owner: &Owner, claim: Option<&Claim>, channel: &str) -> Vec<Cmd> {
    let mut steps = Vec::new();
    if owner.has_unanswered_claim() {
        let mut tombstone = redis::cmd("SET");
        tombstone.arg(keys.gone(owner.id_text())).arg(1).arg("PX").arg(TOMBSTONE.as_millis() as u64);
        steps.push(tombstone);
    }
    if let Some(claim) = claim.filter(|claim| claim.queue_for.is_some()) {
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
    use crate::{name::Name, owner::Holder};

    #[test]
    fn an_entry_leads_back_to_its_owner() {
        let claim = Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(5, &Holder::this_process("a label with spaces", 1)),
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            queue_for: Some(Duration::from_secs(2)),
            poll_every: Duration::from_millis(333),
            acks: crate::engine::Acks::None,
        };
        let text = Entry::of(&claim, "leasehold:wake:1").unwrap().to_string();
        assert!(text.starts_with("1 1000 2000 999 leasehold:wake:1 "), "{text}");
        assert_eq!(entry_owner(&text), claim.owner.expose());
        assert!(Entry::of(&Claim { queue_for: None, ..claim }, "leasehold:wake:1").is_none());
    }

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
