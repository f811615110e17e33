//! The operations that one call carries.

use std::{fmt, io::Write, sync::Arc};

use redis::{Cmd, RedisWrite};

use super::{
    super::{keys::Keys, records, topology::outcome::Resend, wake},
    Call, TOMBSTONE, px,
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
    /// It takes one key and must not share a call: others of its slot may be on another node.
    alone: bool,
}

enum Step {
    Claim {
        claim: Claim,
        /// What the server told when the attempt queued.
        arrival: Option<String>,
        /// The copy that this is.
        copy: Arc<wake::Call>,
    },
    Renew(Hold),
    /// A release of a lock that stays closed for the hold's ttl.
    Close(Hold),
    End {
        owner: Owner,
        /// The claim that may have queued.
        claim: Option<Claim>,
        /// Some copy of the claim may still reach the server.
        unanswered: bool,
    },
    /// A part of an end that takes one key.
    EndPart(EndPart, Owner),
    ForceRelease(Fence),
    Record(records::Step),
}

/// The parts of an attempt's end, each by its own key.
#[derive(Clone)]
pub(in super::super) enum EndPart {
    Tombstone,
    /// How it queued.
    LeaveQueue(Claim),
    ForgetSeen,
    Release,
}

impl Op {
    fn new(keys: Keys, step: Step) -> Self {
        let alone = matches!(step, Step::EndPart(..) | Step::Close(_));
        Self { keys, step, channel: None, alone }
    }

    /// The same with another channel to be woken on.
    pub(in super::super) fn woken_on(self, channel: String) -> Self {
        Self { channel: Some(channel), ..self }
    }

    /// The same, in a call of its own.
    pub(in super::super) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The slot of a cluster that its keys are in.
    pub(in super::super) fn slot(&self) -> u16 {
        self.keys.slot()
    }

    /// The key that it is about.
    pub(in super::super) fn key(&self) -> &str {
        self.keys.lock()
    }

    /// Asks for a lock, and to wait for it if the claim says so.
    pub(in super::super) fn claim(
        keys: Keys,
        claim: &Claim,
        arrival: Option<String>,
        copy: Arc<wake::Call>,
    ) -> Self {
        Self::new(keys, Step::Claim { claim: claim.clone(), arrival, copy })
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

    /// One part of an attempt's end.
    pub(in super::super) fn end_part(keys: Keys, owner: &Owner, part: EndPart) -> Self {
        Self::new(keys, Step::EndPart(part, owner.clone()))
    }

    pub(in super::super) fn force_release(keys: Keys, seen: Fence) -> Self {
        Self::new(keys, Step::ForceRelease(seen))
    }

    pub(in super::super) fn renew(keys: Keys, hold: &Hold) -> Self {
        Self::new(
            keys,
            match hold.of {
                Held::Lock => Step::Renew(hold.clone()),
                Held::Closed => Step::Close(hold.clone()),
                Held::Record => Step::Record(records::Step::Renew(hold.clone())),
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
        matches!(&self.step, Step::Claim { copy, .. } if copy.has_ended())
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
        self.may_queue()
            || matches!(
                &self.step,
                Step::End { claim: Some(_), .. } | Step::EndPart(EndPart::LeaveQueue(_), _)
            )
    }

    /// Whether it can wait until all keys of its name are on one node. Who releases the lock cannot.
    pub(in super::super) fn resend(&self) -> Resend {
        if self.is_release() { Resend::NotWhileMigrating } else { Resend::AwaitMigration }
    }

    /// Whether it must not share a call.
    pub(in super::super) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether it gives a lock back.
    pub(in super::super) fn is_release(&self) -> bool {
        matches!(self.step, Step::End { .. })
    }

    /// The call that it takes if it is the only one of its call and the case is an ordinary one.
    pub(in super::super) fn ordinary(&self) -> Option<Call> {
        match &self.step {
            Step::Claim { arrival: None, .. } => Some(Call::ClaimFree),
            Step::End { claim: None, unanswered: false, .. } => Some(Call::ReleaseUnwanted),
            _ => None,
        }
    }

    /// The call that it takes in any case.
    pub(in super::super) fn call(&self, with_grace: bool) -> Call {
        match self.step {
            Step::Record(_) => Call::Records,
            Step::Renew(_) if !with_grace => Call::Renew,
            _ => Call::Locks,
        }
    }

    pub(super) fn key_count(&self, call: Call) -> usize {
        match &self.step {
            Step::Claim { .. } if call == Call::ClaimFree => 4,
            Step::End { .. } if call == Call::ReleaseUnwanted => 2,
            Step::Claim { .. } | Step::End { unanswered: true, .. } => 5,
            Step::End { .. } | Step::ForceRelease(_) => 4,
            Step::Renew(_) if call == Call::Locks => 2,
            Step::Renew(_) | Step::Close(_) | Step::EndPart(..) => 1,
            Step::Record(step) => step.key_count(),
        }
    }

    pub(super) fn write_keys(&self, cmd: &mut Cmd, call: Call, by_slot: bool) {
        let keys = &self.keys;
        match (&self.step, call) {
            (Step::Record(step), _) => step.write_keys(keys, cmd),
            (Step::Claim { claim, .. }, Call::ClaimFree) => {
                cmd.arg(keys.lock()).arg(keys.counter(by_slot)).arg(keys.waiters());
                cmd.arg(keys.gone(claim.owner.id_text()));
            }
            (Step::End { .. }, Call::ReleaseUnwanted) => {
                cmd.arg(keys.lock()).arg(keys.waiters());
            }
            (Step::Renew(_), Call::Locks) => {
                cmd.arg(keys.lock()).arg(keys.counter(by_slot));
            }
            (Step::Renew(_) | Step::Close(_) | Step::EndPart(EndPart::Release, _), _) => {
                cmd.arg(keys.lock());
            }
            (Step::EndPart(EndPart::Tombstone, owner), _) => {
                cmd.arg(keys.gone(owner.id_text()));
            }
            (Step::EndPart(EndPart::LeaveQueue(_), _), _) => {
                cmd.arg(keys.waiters());
            }
            (Step::EndPart(EndPart::ForgetSeen, _), _) => {
                cmd.arg(keys.seen());
            }
            (Step::Claim { .. } | Step::End { .. } | Step::ForceRelease(_), _) => {
                cmd.arg(keys.lock()).arg(keys.counter(by_slot)).arg(keys.waiters()).arg(keys.seen());
                if let Step::Claim { claim: Claim { owner, .. }, .. }
                | Step::End { owner, unanswered: true, .. } = &self.step
                {
                    cmd.arg(keys.gone(owner.id_text()));
                }
            }
        }
    }

    pub(super) fn write_arguments(&self, cmd: &mut Cmd, call: Call, channel: &str) {
        let channel = self.channel.as_deref().unwrap_or(channel);
        match &self.step {
            Step::Claim { claim, arrival, .. } => {
                let (id, rest) = parts(&claim.owner);
                if call == Call::Locks {
                    cmd.arg("c");
                }
                cmd.arg(id).arg(rest).arg(px(claim.ttl + claim.lock_delay));
                if call == Call::Locks {
                    write_head(cmd, claim, channel);
                    cmd.arg(arrival.as_deref().unwrap_or("0"));
                }
            }
            Step::Renew(hold) => {
                let ((id, rest), px) = (parts(&hold.owner), px(hold.ttl + hold.lock_delay));
                match call {
                    Call::Locks => cmd.arg("n").arg(id).arg(rest).arg(px).arg(hold.fence.get()),
                    _ => cmd.arg(id).arg(px),
                };
            }
            Step::Close(hold) => {
                let (id, rest) = parts(&hold.owner);
                cmd.arg("k").arg(id).arg(rest).arg(hold.fence.get()).arg(px(hold.ttl));
            }
            Step::End { owner, .. } if call == Call::ReleaseUnwanted => {
                cmd.arg(parts(owner).0);
            }
            Step::End { owner, claim: None, unanswered: false } => {
                cmd.arg("r").arg(parts(owner).0);
            }
            Step::End { owner, claim, unanswered } => {
                cmd.arg(if *unanswered { "t" } else { "a" }).arg(parts(owner).0);
                write_entry(cmd, claim.as_ref(), channel);
                if *unanswered {
                    cmd.arg(TOMBSTONE.as_millis() as u64);
                }
            }
            Step::EndPart(part, owner) => match part {
                EndPart::Tombstone => {
                    cmd.arg("g").arg(TOMBSTONE.as_millis() as u64);
                }
                EndPart::LeaveQueue(claim) => {
                    cmd.arg("w");
                    write_entry(cmd, Some(claim), channel);
                }
                EndPart::ForgetSeen => {
                    cmd.arg("h").arg(parts(owner).0);
                }
                EndPart::Release => {
                    cmd.arg("o").arg(parts(owner).0);
                }
            },
            Step::ForceRelease(seen) => {
                cmd.arg("f").arg(seen.get());
            }
            Step::Record(step) => step.write_arguments(cmd, channel),
        }
    }
}

/// An owner value as scripts take it: its id with the space behind it, and the rest. The fence comes between them.
fn parts(owner: &Owner) -> (&str, &str) {
    owner.expose().split_at(33)
}

/// What a waiter's entry begins with, which `handover.lua` reads; its owner value follows. The same text on every resend.
struct Head<'a> {
    claim: &'a Claim,
    queue: Queue,
    channel: &'a str,
}

impl<'a> Head<'a> {
    /// That of a claim that may queue.
    fn of(claim: &'a Claim, channel: &'a str) -> Option<Self> {
        claim.queue.map(|queue| Self { claim, queue, channel })
    }
}

impl fmt::Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, queue, channel } = self;
        let (px, wait) = (px(claim.ttl + claim.lock_delay), queue.wait.as_millis());
        let live = liveness(queue.poll_every).as_millis();
        write!(f, "2 {px} {wait} {live} {channel} ")
    }
}

/// The next argument: what the claim's entry begins with, or empty if it does not wait.
fn write_head(cmd: &mut Cmd, claim: &Claim, channel: &str) {
    let mut argument = cmd.writer_for_next_arg();
    if let Some(head) = Head::of(claim, channel) {
        write!(argument, "{head}").expect("a command takes what is written");
    }
}

/// The next argument: the claim's entry, or empty if it does not wait.
pub(in super::super) fn write_entry(cmd: &mut Cmd, claim: Option<&Claim>, channel: &str) {
    let mut argument = cmd.writer_for_next_arg();
    if let Some(head) = claim.and_then(|claim| Head::of(claim, channel)) {
        write!(argument, "{head}{}", head.claim.owner.expose()).expect("a command takes what is written");
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
        let head = Head::of(&claim, "leasehold:wake:1").unwrap().to_string();
        assert_eq!(head, "2 1000 2000 999 leasehold:wake:1 ");
        let owner = claim.owner.expose();
        assert_eq!(entry_owner(&format!("{head}{owner}")), owner);
        assert!(Head::of(&Claim { queue: None, ..claim.clone() }, "leasehold:wake:1").is_none());
    }
}
