//! The operations on locks and records: what each of them sends. `reply` reads what comes back.

use std::sync::Arc;

use redis::Cmd;

use super::{
    super::{
        keys::Keys,
        records,
        topology::outcome::Resend,
        wake::{self, Attempts},
    },
    Call, TOMBSTONE, px,
};
use leasehold_core::{
    engine::{Claim, Held, Hold, liveness},
    fence::Fence,
    owner::Owner,
};

/// One operation on one lock or record.
pub(crate) struct Op {
    keys: Keys,
    step: Step,
    /// It takes one key and must not share a call: others of its slot may be on another node.
    alone: bool,
}

pub(crate) enum Step {
    /// Asks for a lock, and to wait for it if the claim says so.
    Claim {
        claim: Claim,
        /// Where its waiter is woken.
        channel: String,
        /// What the server answered when the attempt queued.
        arrival: Option<String>,
        copy: Arc<wake::Call>,
    },
    Renew(Hold),
    /// A release of a lock that stays closed for the hold's ttl.
    Close(Hold),
    /// Ends an attempt.
    End {
        owner: Owner,
        /// Its entry in the queue, if it may have one.
        entry: Option<String>,
        attempts: Arc<Attempts>,
    },
    /// A release that takes one key.
    ReleaseAlone(Owner),
    ForceRelease(Fence),
    /// A step of a record, and where it is woken.
    Record(records::Step, String),
}

impl Step {
    pub(crate) fn renew(hold: &Hold) -> Self {
        match hold.of {
            Held::Lock => Self::Renew(hold.clone()),
            Held::Closed => Self::Close(hold.clone()),
            Held::Record => Self::Record(records::Step::Renew(hold.clone()), String::new()),
        }
    }
}

impl Op {
    pub(crate) fn new(keys: Keys, step: Step) -> Self {
        let alone = matches!(step, Step::ReleaseAlone(_) | Step::Close(_));
        Self { keys, step, alone }
    }

    /// One step of a record; `channel` is where its attempt is woken.
    pub(crate) fn record(keys: Keys, step: records::Step, channel: String) -> Self {
        Self::new(keys, Step::Record(step, channel))
    }

    /// The same, in a call of its own.
    pub(crate) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Whether it must not share a call.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The slot of a cluster that its keys are in.
    pub(crate) fn slot(&self) -> u16 {
        self.keys.slot()
    }

    /// The key that it is about.
    pub(crate) fn key(&self) -> &str {
        self.keys.lock()
    }

    /// Whether it must not leave (any more): a claim whose attempt has ended.
    pub(crate) fn is_void(&self) -> bool {
        matches!(&self.step, Step::Claim { copy, .. } if copy.has_ended())
    }

    /// It is in the queue of this link.
    pub(crate) fn left(&self, link: u64) {
        if let Step::Claim { copy, .. } = &self.step {
            copy.left(link);
        }
    }

    /// Whether its attempt is to be woken.
    pub(crate) fn may_queue(&self) -> bool {
        match &self.step {
            Step::Claim { claim, .. } => claim.queue.is_some(),
            Step::Record(step, _) => step.watches(),
            _ => false,
        }
    }

    /// Whether it gives a lock back.
    pub(crate) fn is_release(&self) -> bool {
        matches!(self.step, Step::End { .. })
    }

    /// Whether it can wait until all keys of its name are on one node. A release cannot.
    pub(crate) fn resend(&self) -> Resend {
        if self.is_release() { Resend::NotWhileMigrating } else { Resend::AwaitMigration }
    }

    /// The flat script for its ordinary case, if it leaves alone over this link.
    pub(super) fn ordinary(&self, link: u64) -> Option<Call> {
        match &self.step {
            Step::Claim { arrival: None, .. } => Some(Call::ClaimFree),
            Step::End { owner, entry: None, attempts } if !attempts.may_come_late(owner.id(), link) => {
                Some(Call::ReleaseUnwanted)
            }
            _ => None,
        }
    }

    /// The call that it takes in any case.
    pub(super) fn call(&self, with_grace: bool) -> Call {
        match self.step {
            Step::Record(..) => Call::Records,
            Step::Renew(_) if !with_grace => Call::Renew,
            _ => Call::Locks,
        }
    }

    /// Writes its keys and its arguments for a call that leaves over this link, as the script of the call takes them.
    pub(super) fn write(&self, call: Call, by_slot: bool, link: u64, keys: &mut Cmd, args: &mut Cmd) {
        let of = &self.keys;
        match &self.step {
            Step::Claim { claim, channel, arrival, .. } => {
                let (id, rest) = parts(&claim.owner);
                let (gone, px) = (of.gone(claim.owner.id_text()), px(claim.ttl + claim.lock_delay));
                keys.arg(of.lock()).arg(of.counter(by_slot)).arg(of.waiters());
                if call == Call::ClaimFree {
                    keys.arg(gone);
                    args.arg(id).arg(rest).arg(px);
                } else {
                    keys.arg(of.seen()).arg(gone);
                    args.arg("c").arg(id).arg(rest).arg(px).arg(entry_head(claim, channel));
                    args.arg(arrival.as_deref().unwrap_or("0"));
                }
            }
            Step::Renew(hold) => {
                let ((id, rest), px) = (parts(&hold.owner), px(hold.ttl + hold.lock_delay));
                keys.arg(of.lock());
                if call == Call::Renew {
                    args.arg(id).arg(px);
                } else {
                    keys.arg(of.counter(by_slot));
                    args.arg("n").arg(id).arg(rest).arg(px).arg(hold.fence.get());
                }
            }
            Step::Close(hold) => {
                let (id, rest) = parts(&hold.owner);
                keys.arg(of.lock());
                args.arg("k").arg(id).arg(rest).arg(hold.fence.get()).arg(px(hold.ttl));
            }
            Step::End { owner, .. } if call == Call::ReleaseUnwanted => {
                keys.arg(of.lock()).arg(of.waiters());
                args.arg(parts(owner).0);
            }
            Step::End { owner, entry, attempts } => {
                let (id, _) = parts(owner);
                keys.arg(of.lock()).arg(of.counter(by_slot)).arg(of.waiters()).arg(of.seen());
                if attempts.may_come_late(owner.id(), link) {
                    keys.arg(of.gone(owner.id_text()));
                    args.arg("t").arg(id).arg(entry.as_deref().unwrap_or_default()).arg(px(TOMBSTONE));
                } else if let Some(entry) = entry {
                    args.arg("a").arg(id).arg(entry);
                } else {
                    args.arg("r").arg(id);
                }
            }
            Step::ReleaseAlone(owner) => {
                keys.arg(of.lock());
                args.arg("o").arg(parts(owner).0);
            }
            Step::ForceRelease(seen) => {
                keys.arg(of.lock()).arg(of.counter(by_slot)).arg(of.waiters()).arg(of.seen());
                args.arg("f").arg(seen.get());
            }
            Step::Record(step, channel) => {
                step.write_keys(of, keys);
                step.write_arguments(args, channel);
            }
        }
    }
}

/// An owner value as scripts take it: its id with the space behind it, and the rest. The fence comes between them.
pub(crate) fn parts(owner: &Owner) -> (&str, &str) {
    owner.expose().split_at(33)
}

/// What a waiter's entry begins with, which `handover.lua` reads; its owner value follows. The same text on every resend.
/// Empty for a claim that does not wait.
fn entry_head(claim: &Claim, channel: &str) -> String {
    let Some(queue) = claim.queue else { return String::new() };
    let (px, wait) = (px(claim.ttl + claim.lock_delay), queue.wait.as_millis());
    let live = liveness(queue.poll_every).as_millis();
    format!("2 {px} {wait} {live} {channel} ")
}

/// A waiter's entry, if the claim waits.
pub(crate) fn entry(claim: &Claim, channel: &str) -> Option<String> {
    claim.queue.map(|_| entry_head(claim, channel) + claim.owner.expose())
}

/// The next argument: the claim's entry, or empty if it does not wait.
pub(crate) fn write_entry(cmd: &mut Cmd, claim: Option<&Claim>, channel: &str) {
    cmd.arg(claim.and_then(|claim| entry(claim, channel)).unwrap_or_default());
}

/// The owner value in an entry of the queue.
pub(crate) fn entry_owner(entry: &str) -> &str {
    entry.splitn(6, ' ').nth(5).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use leasehold_core::{engine::Queue, name::Name, owner::Holder};

    #[test]
    fn an_entry_leads_back_to_its_owner() {
        let claim = Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(5, &Holder::this_process("a label with spaces", 1)),
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            mode: leasehold_core::engine::Mode::Exclusive,
            queue: Some(Queue { wait: Duration::from_secs(2), poll_every: Duration::from_millis(333) }),
            acks: leasehold_core::engine::Acks::None,
        };
        let entry = |claim: &Claim| entry(claim, "leasehold:wake:1");
        let owner = claim.owner.expose();
        assert_eq!(entry(&claim).unwrap(), format!("2 1000 2000 999 leasehold:wake:1 {owner}"));
        assert_eq!(entry_owner(&entry(&claim).unwrap()), owner);
        assert_eq!(entry(&Claim { queue: None, ..claim.clone() }), None);
    }
}
