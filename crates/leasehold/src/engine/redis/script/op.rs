//! The operations that one call carries.

use std::{fmt, io::Write, sync::Arc};

use redis::{Cmd, RedisWrite};

use super::{
    super::{keys::Keys, records, wake::Call},
    TOMBSTONE, px,
};
use crate::{
    engine::{Claim, Held, Hold, Queue, liveness},
    fence::Fence,
    owner::Owner,
};

/// One operation on one lock or record. It holds what it was made from: its texts are written straight into the call.
pub(in super::super) struct Op {
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
        call: Arc<Call>,
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
    pub(in super::super) fn woken_on(self, channel: String) -> Self {
        Self { channel: Some(channel), ..self }
    }

    /// The slot of a cluster that its keys are in.
    pub(in super::super) fn slot(&self) -> u16 {
        self.keys.slot()
    }

    /// Asks for a lock, and to wait for it if the claim says so.
    pub(in super::super) fn claim(
        keys: Keys,
        claim: &Claim,
        arrival: Option<String>,
        call: Arc<Call>,
    ) -> Self {
        Self::new(keys, Step::Claim { claim: claim.clone(), arrival, call })
    }

    /// Ends an attempt. `claim` is how it queued, if it may have; `unanswered` whether a copy of it may still come.
    pub(in super::super) fn release(
        keys: Keys,
        owner: &Owner,
        claim: Option<&Claim>,
        unanswered: bool,
    ) -> Self {
        let claim = claim.filter(|claim| claim.queue.is_some()).cloned();
        Self::new(keys, Step::End { owner: owner.clone(), claim, unanswered })
    }

    pub(in super::super) fn force_release(keys: Keys, seen: Fence) -> Self {
        Self::new(keys, Step::ForceRelease(seen))
    }

    pub(in super::super) fn renew(keys: Keys, hold: &Hold) -> Self {
        Self::new(
            keys,
            match hold.of {
                Held::Lock => Step::Renew(hold.clone()),
                Held::Record => Step::Record(records::Step::Renew { hold: hold.clone(), alone: false }),
            },
        )
    }

    /// One step of a record.
    pub(in super::super) fn record(keys: Keys, step: records::Step) -> Self {
        Self::new(keys, Step::Record(step))
    }

    /// Whether it must not be sent (any more).
    pub(in super::super) fn is_void(&self) -> bool {
        // A claim must not leave once its attempt has ended.
        matches!(&self.step, Step::Claim { call, .. } if call.has_ended())
    }

    /// Whether somebody is to be woken for it.
    pub(in super::super) fn may_queue(&self) -> bool {
        match &self.step {
            Step::Claim { claim, .. } => claim.queue.is_some(),
            Step::Record(step) => step.watches(),
            _ => false,
        }
    }

    /// Whether it names a place in the queue, and with it a channel.
    pub(in super::super) fn has_entry(&self) -> bool {
        self.may_queue() || matches!(&self.step, Step::End { claim: Some(_), .. })
    }

    /// Whether it can wait until all keys of its name are on one node. Who holds or has held the lock cannot.
    pub(in super::super) fn can_wait_for_its_keys(&self) -> bool {
        match &self.step {
            Step::Claim { .. } | Step::ForceRelease(_) => true,
            Step::Record(step) => step.is_patient(),
            Step::Renew(_) | Step::End { .. } => false,
        }
    }

    pub(super) fn key_count(&self) -> usize {
        match &self.step {
            Step::Claim { .. } | Step::End { unanswered: true, .. } => 5,
            Step::End { .. } | Step::ForceRelease(_) => 4,
            Step::Renew(_) => 2,
            Step::Record(step) => step.key_count(),
        }
    }

    pub(super) fn write_keys(&self, cmd: &mut Cmd) {
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

    pub(super) fn write_arguments(&self, cmd: &mut Cmd, channel: &str, with_grace: bool) {
        let channel = self.channel.as_deref().unwrap_or(channel);
        match &self.step {
            Step::Claim { claim, arrival, .. } => {
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
    queue: Queue,
    channel: &'a str,
}

impl<'a> Entry<'a> {
    /// The entry of a claim that may queue.
    fn of(claim: &'a Claim, channel: &'a str) -> Option<Self> {
        claim.queue.map(|queue| Self { claim, queue, channel })
    }
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, queue, channel } = self;
        let (px, wait) = (px(claim.ttl + claim.lock_delay), queue.wait.as_millis());
        let live = liveness(queue.poll_every).as_millis();
        write!(f, "1 {px} {wait} {live} {channel} {}", claim.owner.expose())
    }
}

/// The next argument: the claim's entry, or empty if it does not wait.
pub(in super::super) fn write_entry(cmd: &mut Cmd, claim: Option<&Claim>, channel: &str) {
    let mut argument = cmd.writer_for_next_arg();
    if let Some(entry) = claim.and_then(|claim| Entry::of(claim, channel)) {
        write!(argument, "{entry}").expect("a command takes what is written");
    }
}

/// Who an entry of the queue belongs to: its owner value.
pub(in super::super) fn entry_owner(entry: &str) -> &str {
    entry.splitn(6, ' ').nth(5).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{name::Name, owner::Holder};

    #[test]
    fn an_entry_leads_back_to_its_owner() {
        let claim = Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(5, &Holder::this_process("a label with spaces", 1)),
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            mode: crate::engine::Mode::Exclusive,
            queue: Some(Queue { wait: Duration::from_secs(2), poll_every: Duration::from_millis(333) }),
            acks: crate::engine::Acks::None,
        };
        let text = Entry::of(&claim, "leasehold:wake:1").unwrap().to_string();
        assert!(text.starts_with("1 1000 2000 999 leasehold:wake:1 "), "{text}");
        assert_eq!(entry_owner(&text), claim.owner.expose());
        assert!(Entry::of(&Claim { queue: None, ..claim }, "leasehold:wake:1").is_none());
    }
}
