//! The scripts, and the operations that one call of them carries.

use std::time::Duration;

use redis::{Cmd, Value};

use super::{answer, keys::Keys};
use crate::{
    engine::{Claim, Hold, liveness},
    fence::Fence,
    owner::Owner,
};

/// How long a name's fence outlives its last use.
const FENCE_KEPT: Duration = Duration::from_secs(86_400);
/// A claim that reaches the server this late after its attempt ended is still recognised and refused.
const TOMBSTONE: Duration = Duration::from_secs(360);

/// Claim, release and renewal are one script, so that many operations of many names can share one call.
pub(super) const LEASES: &str = concat!(
    include_str!("scripts/begin.lua"),
    include_str!("scripts/ordinary.lua"),
    "local function all_cases()\n",
    include_str!("scripts/fence.lua"),
    include_str!("scripts/handover.lua"),
    include_str!("scripts/claim.lua"),
    include_str!("scripts/release.lua"),
    include_str!("scripts/renew.lua"),
    "return { c = claim, r = release, a = abandon, t = abandon_unanswered, f = force_release, n = renew }\n",
    "end\n",
    include_str!("scripts/dispatch.lua"),
);

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

/// One operation on one lock.
pub(super) struct Op {
    letter: &'static str,
    keys: Vec<String>,
    arguments: Vec<String>,
    /// A claim must not leave any more once its attempt has ended.
    claim_of: Option<Owner>,
}

impl Op {
    /// Asks for a lock, to wait as `entry` if it is held; an empty one asks once.
    pub(super) fn claim(keys: Keys, claim: &Claim, entry: String, arrival: String) -> Self {
        Self {
            letter: "c",
            keys: vec![keys.fence(), keys.waiters(), keys.seen(), keys.gone(claim.owner.id_text())]
                .after(keys.lock),
            arguments: vec![
                claim.owner.expose().to_owned(),
                px(claim.ttl + claim.lock_delay),
                entry,
                arrival,
            ],
            claim_of: Some(claim.owner.clone()),
        }
    }

    /// Ends an attempt. `entry` is how it queued, or empty.
    pub(super) fn release(keys: Keys, owner: &Owner, entry: String) -> Self {
        let mut side = vec![keys.fence(), keys.waiters(), keys.seen()];
        let mut arguments = vec![owner.expose().to_owned()];
        let letter = if owner.has_unanswered_claim() {
            side.push(keys.gone(owner.id_text()));
            arguments.extend([entry, TOMBSTONE.as_millis().to_string()]);
            "t"
        } else if entry.is_empty() {
            "r"
        } else {
            arguments.push(entry);
            "a"
        };
        Self { letter, keys: side.after(keys.lock), arguments, claim_of: None }
    }

    pub(super) fn force_release(keys: Keys, seen: Fence) -> Self {
        let side = vec![keys.fence(), keys.waiters(), keys.seen()];
        Self { letter: "f", keys: side.after(keys.lock), arguments: vec![seen.to_string()], claim_of: None }
    }

    pub(super) fn renew(keys: Keys, hold: &Hold) -> Self {
        Self {
            letter: "n",
            keys: vec![keys.fence()].after(keys.lock),
            arguments: vec![hold.owner.expose().to_owned(), px(hold.ttl + hold.lock_delay)],
            claim_of: None,
        }
    }

    /// Whether it must not be sent (any more).
    pub(super) fn is_void(&self) -> bool {
        self.claim_of.as_ref().is_some_and(Owner::has_ended)
    }
}

trait After {
    fn after(self, first: String) -> Vec<String>;
}

impl After for Vec<String> {
    fn after(mut self, first: String) -> Vec<String> {
        self.insert(0, first);
        self
    }
}

/// A waiter's entry in the queue, which `handover.lua` reads: the same text on every resend. Empty for a claim that does
/// not wait.
pub(super) fn entry(claim: &Claim, channel: &str) -> String {
    let Some(wait) = claim.queue_for else { return String::new() };
    let (px, wait) = (px(claim.ttl + claim.lock_delay), wait.as_millis());
    let live = liveness(claim.poll_every).as_millis();
    format!("1 {px} {wait} {live} {channel} {}", claim.owner.expose())
}

/// Who an entry of the queue belongs to: its owner value.
pub(super) fn entry_owner(entry: &str) -> &str {
    entry.splitn(6, ' ').nth(5).unwrap_or_default()
}

fn px(duration: Duration) -> String {
    duration.as_millis().max(1).to_string()
}

/// One call that carries these operations.
pub(super) fn call(script: &Script, by_hash: bool, operations: &[Op]) -> Cmd {
    let mut cmd = begin(script, by_hash);
    cmd.arg(operations.iter().map(|op| op.keys.len()).sum::<usize>());
    for key in operations.iter().flat_map(|op| &op.keys) {
        cmd.arg(key);
    }
    cmd.arg(FENCE_KEPT.as_millis() as u64);
    for op in operations {
        cmd.arg(op.letter);
        for argument in &op.arguments {
            cmd.arg(argument);
        }
    }
    cmd
}

/// One call that looks at these locks.
pub(super) fn inspection(script: &Script, by_hash: bool, locks: &[Keys], most_waiters: u32) -> Cmd {
    let mut cmd = begin(script, by_hash);
    cmd.arg(locks.len() * 3);
    for keys in locks {
        cmd.arg(&keys.lock).arg(keys.fence()).arg(keys.waiters());
    }
    cmd.arg(most_waiters);
    cmd
}

fn begin(script: &Script, by_hash: bool) -> Cmd {
    let mut cmd = redis::cmd(if by_hash { "EVALSHA" } else { "EVAL" });
    if by_hash {
        cmd.arg(&script.hash);
    } else {
        cmd.arg(script.code);
    }
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
        };
        let text = entry(&claim, "leasehold:wake:1");
        assert!(text.starts_with("1 1000 2000 999 leasehold:wake:1 "), "{text}");
        assert_eq!(entry_owner(&text), claim.owner.expose());
        assert_eq!(entry(&Claim { queue_for: None, ..claim }, "leasehold:wake:1"), "");
    }

    #[test]
    fn the_script_bounds_the_queue_as_the_contract_says() {
        assert!(LEASES.contains(&format!("local WAITERS_MAX = {}\n", crate::engine::WAITERS_MAX)));
    }
}
