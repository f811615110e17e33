//! The operations on locks and records: what each of them sends. `reply` reads what comes back.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use redis::Cmd;

use super::{
    super::{
        keys::Keys,
        topology::outcome::Resend,
        wake::{self, Attempts},
    },
    Call, TOMBSTONE,
    entry::entry_head,
    held_text::HeldText,
    latch::LatchStep,
    px,
};
use leasehold_core::{
    engine::{
        Claim, Format, Held, Hold, Mode,
        records::{Begin, Settle},
    },
    fence::Fence,
    owner::Owner,
};

/// One operation on one lock or record.
pub(crate) struct Op {
    pub(crate) keys: Keys,
    pub(super) step: Step,
    /// It takes one key and must not share a call: others of its slot may be on another node.
    pub(crate) alone: bool,
}

pub(crate) enum Step {
    /// Asks for a lock, and to wait for it if the claim says so.
    Claim {
        claim: Claim,
        /// Where its waiter is woken.
        channel: Arc<str>,
        /// What the server answered when the attempt queued.
        arrival: Option<String>,
        copy: Arc<wake::Call>,
    },
    /// Renews a lock or a record, or releases a lock that stays closed for the hold's ttl.
    Renew(Hold),
    End {
        owner: Owner,
        mode: Mode,
        format: Format,
        /// Known of a lock that was granted.
        fence: Option<Fence>,
        /// Its entry in the queue; empty if it cannot have one.
        entry: String,
        attempts: Arc<Attempts>,
    },
    ForceRelease(Fence, Format),
    /// Makes a writer a reader, or the only reader a writer.
    Convert(Hold, Mode),
    SetLimit(NonZeroU32),
    /// Gives a lock to a certain waiter: one whose owner value has the same holder data as this one.
    HandTo(Hold, Owner),
    /// Renews a reader or permits in Z alone, or ends their lease there if it lasts for no time.
    MoveEnd {
        owner: Owner,
        mode: Mode,
        lasts: Duration,
    },
    /// Lets a lock that has members last at least so long.
    MoveLastEnd(Duration),
    /// Begins a record; the channel is where its attempt is woken.
    Begin(Begin, Arc<str>),
    Settle {
        settle: Settle,
        /// Some copy of the request to begin may still reach the server.
        unanswered: bool,
    },
    Remove,
    Look,
    Latch(LatchStep),
}

/// How an operation is written: its letter, which a script for one case does without, and its keys.
pub(super) type Form = (&'static str, &'static [Key]);

/// A key of an operation, by its letter in the scripts.
pub(super) enum Key {
    K,
    F,
    W,
    S,
    Z,
    H,
    L,
    G,
    B,
    V,
    N,
    T,
    D,
    E,
    P,
    Q,
}

impl Op {
    pub(crate) fn new(keys: Keys, step: Step) -> Self {
        let alone = match &step {
            Step::Renew(hold) => hold.of == Held::Closed && hold.mode == Mode::Exclusive,
            Step::MoveEnd { .. } | Step::MoveLastEnd(_) | Step::Latch(LatchStep::MoveEnd(_)) => true,
            _ => false,
        };
        Self { keys, step, alone }
    }

    /// The same by one key, in a call of its own: a renewal, or a release that hands nothing over.
    pub(crate) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Whether it must not leave (any more): a claim whose attempt has ended.
    pub(crate) fn is_void(&self) -> bool {
        matches!(&self.step, Step::Claim { copy, .. } if copy.has_ended())
    }

    /// It is about to leave, or to leave again after it had no effect; not after its attempt's end. Later ends know of it.
    pub(crate) fn leaves(&self) -> bool {
        let Step::Claim { copy, .. } = &self.step else { return true };
        copy.answered();
        copy.leaves(None).is_ok()
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
            Step::Begin(begin, _) => begin.wake,
            Step::Latch(step) => step.may_queue(),
            _ => false,
        }
    }

    /// The lease whose loss shall be reported after this renewal, if it is one. What several hold is not watched, nor
    /// what lies in Redisson's format: see [`reports_loss`](leasehold_core::engine::Leases::reports_loss).
    pub(crate) fn watches(&self) -> Option<&Hold> {
        let is_apart = self.is_redisson() || self.is_of_latch();
        match &self.step {
            Step::Renew(hold) if hold.watch && hold.mode == Mode::Exclusive && !is_apart => Some(hold),
            _ => None,
        }
    }

    /// What K has while this is about to release it and nobody waits.
    pub(crate) fn held_text(&self) -> Option<HeldText<'_>> {
        match &self.step {
            Step::End { owner, mode: Mode::Exclusive, fence: Some(fence), .. } => {
                Some(HeldText { owner, fence: *fence })
            }
            _ => None,
        }
    }

    pub(crate) fn is_release(&self) -> bool {
        matches!(self.step, Step::End { .. })
    }

    /// Whether it can wait until all keys of its name are on one node. A release or a renewal cannot.
    pub(crate) fn resend(&self) -> Resend {
        let is_renewal =
            matches!(&self.step, Step::Renew(hold) if matches!(hold.of, Held::Lock | Held::Latch));
        if self.is_release() || is_renewal { Resend::NotWhileMigrating } else { Resend::AwaitMigration }
    }

    /// Whether several may hold what it is about at a time.
    pub(crate) fn is_of_member(&self) -> bool {
        match &self.step {
            Step::Claim { claim, .. } => claim.mode != Mode::Exclusive,
            Step::End { mode, .. } => *mode != Mode::Exclusive,
            _ => false,
        }
    }

    /// The flat script for its ordinary case, if it leaves over this link: one for those that leave alone, and one for
    /// several in a call.
    pub(super) fn ordinary(&self, link: u64) -> Option<[Call; 2]> {
        if self.is_redisson() {
            return None;
        }
        match &self.step {
            Step::Claim { arrival: None, .. } if self.is_of_member() => Some([Call::MembersClaim; 2]),
            Step::Claim { arrival: None, .. } => Some([Call::ClaimFree, Call::ClaimsFree]),
            Step::End { owner, entry, attempts, .. }
                if !self.alone && entry.is_empty() && !attempts.may_come_late(owner.id(), link) =>
            {
                let of_members = [Call::MembersRelease; 2];
                let of_one = [Call::ReleaseUnwanted, Call::ReleasesUnwanted];
                Some(if self.is_of_member() { of_members } else { of_one })
            }
            _ => None,
        }
    }

    /// The call that it takes in any case.
    pub(super) fn call(&self, with_grace: bool) -> Call {
        match &self.step {
            _ if self.is_redisson() => Call::Redisson,
            _ if self.is_of_latch() => Call::Latches,
            Step::Renew(Hold { of: Held::Record, .. })
            | Step::Begin(..)
            | Step::Settle { .. }
            | Step::Remove
            | Step::Look => Call::Records,
            Step::Renew(Hold { of: Held::Lock, mode, .. }) if !with_grace => match mode {
                Mode::Exclusive => Call::Renew,
                _ => Call::MembersRenew,
            },
            _ => Call::Locks,
        }
    }

    /// How it is written for a call that leaves over this link, the second time with the script's text.
    pub(super) fn form(&self, call: Call, by_hash: bool, link: u64) -> Form {
        use Key::{B, F, G, H, K, L, S, V, W, Z};
        // An end that comes later may overtake it on any link.
        if !by_hash && self.leaves() {
            self.left(u64::MAX);
        }
        match (&self.step, call) {
            (_, Call::Redisson) => self.redisson_form(link),
            (Step::Latch(_) | Step::Renew(Hold { of: Held::Latch, .. }), _) => self.latch_form(),
            (Step::Claim { .. }, Call::ClaimFree) => ("", &[K, F, W, G]),
            (Step::Claim { .. }, Call::ClaimsFree) => ("", &[K, W, G]),
            (Step::Claim { .. }, Call::MembersClaim) => ("", &[K, Z, H, L, W, G]),
            (Step::Claim { .. }, _) => ("c", ALL_AND_G),
            (Step::Renew(_), Call::Renew) => ("", &[K]),
            (Step::Renew(_), Call::MembersRenew) => ("", &[K, Z, H]),
            (Step::Renew(Hold { of: Held::Lock, .. }), _) => ("n", ALL),
            (Step::Renew(Hold { of: Held::Closed, mode: Mode::Exclusive, .. }), _) => ("k", &[K]),
            (Step::Renew(Hold { of: Held::Closed, .. }), _) => ("z", ALL),
            (Step::Renew(Hold { of: Held::Record, .. }), _) => ("r", &[K]),
            (Step::MoveEnd { .. }, _) => ("e", &[Z]),
            (Step::MoveLastEnd(_), _) => ("m", &[K]),
            (Step::End { .. }, Call::ReleaseWanted) => ("", &[K, F, W, S]),
            (Step::End { .. }, Call::ReleaseUnwanted | Call::ReleasesUnwanted) => ("", &[K]),
            (Step::End { .. }, Call::MembersRelease) => ("", &[K, Z, H, W]),
            (Step::End { .. }, _) if self.alone => ("o", &[K]),
            (Step::End { owner, attempts, .. }, _) if attempts.may_come_late(owner.id(), link) => {
                ("t", ALL_AND_G)
            }
            (Step::End { entry, .. }, _) => (if entry.is_empty() { "r" } else { "a" }, ALL),
            (Step::ForceRelease(..), _) => ("f", ALL),
            (Step::Convert(..), _) => ("v", ALL),
            (Step::SetLimit(_), _) => ("l", ALL),
            (Step::HandTo(..), _) => ("y", ALL),
            (Step::Begin(..), _) => ("b", &[K, B, V, G]),
            (Step::Settle { unanswered: true, .. }, _) => ("t", &[K, B, V, G]),
            (Step::Settle { .. }, _) => ("s", &[K, B, V]),
            (Step::Remove, _) => ("x", &[K, V]),
            (Step::Look, _) => ("l", &[K]),
        }
    }

    pub(super) fn write_key(&self, key: &Key, by_slot: bool, cmd: &mut Cmd) {
        write_key(key, &self.keys, self.owner(), by_slot, cmd);
    }

    pub(super) fn owner(&self) -> Option<&Owner> {
        match &self.step {
            Step::Claim { claim, .. } => Some(&claim.owner),
            Step::Renew(hold) | Step::Convert(hold, _) | Step::HandTo(hold, _) => Some(&hold.owner),
            Step::End { owner, .. } | Step::MoveEnd { owner, .. } => Some(owner),
            Step::Begin(begin, _) => Some(&begin.owner),
            Step::Settle { settle, .. } => Some(&settle.hold.owner),
            Step::Latch(step) => step.owner(),
            Step::ForceRelease(..) | Step::SetLimit(_) | Step::MoveLastEnd(_) | Step::Remove | Step::Look => {
                None
            }
        }
    }

    /// Its arguments, as `scripts/` has them; `last_px` is that of the renewal or claim before, which is not written again.
    pub(super) fn write_args(&self, (letter, _): &Form, last_px: &mut u64, cmd: &mut Cmd) {
        if !letter.is_empty() {
            cmd.arg(letter);
        }
        if self.is_redisson() {
            return self.write_redisson_args(letter, cmd);
        }
        if self.is_of_latch() {
            return self.write_latch_args(cmd);
        }
        match &self.step {
            Step::Claim { claim, channel, arrival, .. } => {
                let (id, rest) = parts(&claim.owner);
                // Scripts refuse so long a lease: what comes too late changes nothing, and keeps its place in the call.
                let px = if self.is_void() { u64::MAX } else { px(claim.ttl + claim.lock_delay) };
                cmd.arg(id).arg(rest);
                if *letter == "c" {
                    cmd.arg(px).arg(entry_head(claim, channel)).arg(arrival.as_deref().unwrap_or("0"));
                    write_mode(claim.mode, cmd);
                } else if self.is_of_member() {
                    cmd.arg(px);
                    write_mode(claim.mode, cmd);
                } else if std::mem::replace(last_px, px) != px {
                    cmd.arg(px);
                }
            }
            Step::Renew(Hold { owner, fence, mode, ttl, lock_delay, .. }) => {
                let ((id, rest), px) = (parts(owner), px(*ttl + *lock_delay));
                match *letter {
                    "n" => {
                        cmd.arg(id).arg(rest).arg(px).arg(fence.get());
                        write_take(*mode, cmd);
                        cmd
                    }
                    "z" => cmd.arg(id).arg(px),
                    "" if *mode != Mode::Exclusive => cmd.arg(id).arg(px),
                    "k" => cmd.arg(id).arg(rest).arg(fence.get()).arg(px),
                    "r" => cmd.arg(owner.expose()).arg(px),
                    _ if std::mem::replace(last_px, px) == px => cmd.arg(id),
                    _ => cmd.arg(px).arg(id),
                };
            }
            Step::End { owner, mode, entry, .. } => {
                cmd.arg(parts(owner).0);
                match *letter {
                    "" if *mode != Mode::Exclusive => write_take(*mode, cmd),
                    "t" => drop(cmd.arg(entry).arg(px(TOMBSTONE))),
                    "a" => drop(cmd.arg(entry)),
                    _ => {}
                }
            }
            Step::ForceRelease(seen, _) => {
                cmd.arg(seen.get());
            }
            Step::Convert(hold, to) => {
                let (id, rest) = parts(&hold.owner);
                let to = if *to == Mode::Exclusive { "x" } else { "s" };
                cmd.arg(id).arg(rest).arg(px(hold.ttl + hold.lock_delay)).arg(to);
            }
            Step::SetLimit(limit) => {
                cmd.arg(limit.get());
            }
            Step::HandTo(hold, next) => {
                cmd.arg(parts(&hold.owner).0).arg(parts(next).1);
            }
            Step::MoveEnd { owner, mode, lasts } => {
                cmd.arg(parts(owner).0);
                write_take(*mode, cmd);
                cmd.arg(if lasts.is_zero() { 0 } else { px(*lasts) });
            }
            Step::MoveLastEnd(lasts) => {
                cmd.arg(px(*lasts));
            }
            Step::Begin(begin, channel) => {
                let Begin { owner, fingerprint, lease, wake, .. } = begin;
                let fingerprint = fingerprint.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
                cmd.arg(owner.expose()).arg(px(*lease)).arg(fingerprint);
                cmd.arg(if *wake { format!("{channel} {}", owner.id_text()) } else { String::new() });
            }
            Step::Settle { settle, unanswered } => {
                let Settle { hold, keep, .. } = settle;
                cmd.arg(hold.owner.expose()).arg(hold.fence.get());
                cmd.arg(settle.text().unwrap_or_default()).arg(px(*keep));
                if *unanswered {
                    cmd.arg(px(TOMBSTONE));
                }
            }
            Step::Latch(_) | Step::Remove | Step::Look => {}
        }
    }
}

/// What an operation on a lock may need, and the same with the tombstone of its attempt.
const ALL: &[Key] = &[Key::K, Key::F, Key::W, Key::S, Key::Z, Key::H, Key::L];
pub(super) const ALL_AND_G: &[Key] = &[Key::K, Key::F, Key::W, Key::S, Key::Z, Key::H, Key::L, Key::G];

pub(super) fn write_key(key: &Key, keys: &Keys, owner: Option<&Owner>, by_slot: bool, cmd: &mut Cmd) {
    match key {
        Key::K => cmd.arg(keys.lock()),
        Key::F => cmd.arg(keys.counter(by_slot)),
        Key::W => cmd.arg(keys.waiters()),
        Key::S => cmd.arg(keys.seen()),
        Key::Z => cmd.arg(keys.ends()),
        Key::H => cmd.arg(keys.members()),
        Key::L => cmd.arg(keys.limit()),
        Key::G => cmd.arg(keys.gone(owner.map_or("", Owner::id_text))),
        Key::B => cmd.arg(keys.begun()),
        Key::V => cmd.arg(keys.watchers()),
        Key::N => cmd.arg(keys.holder()),
        Key::T => cmd.arg(keys.redisson_token()),
        Key::D => cmd.arg(keys.latch()),
        Key::E => cmd.arg(keys.latch_ends()),
        Key::P => cmd.arg(keys.latch_parties()),
        Key::Q => cmd.arg(keys.latch_waiters()),
    };
}

/// What a claim takes, and of how many permits.
pub(super) fn write_mode(mode: Mode, cmd: &mut Cmd) {
    write_take(mode, cmd);
    match mode {
        Mode::Permits { of, .. } => cmd.arg(of.get()),
        _ => cmd.arg(""),
    };
}

/// How many permits a holder takes: nothing for one who holds the lock alone, 0 for a reader.
fn write_take(mode: Mode, cmd: &mut Cmd) {
    match mode {
        Mode::Shared => cmd.arg(0),
        Mode::Permits { take, .. } => cmd.arg(take.get()),
        _ => cmd.arg(""),
    };
}

/// An owner value as scripts take it: its id with the space behind it, and the rest. The fence comes between them.
pub(crate) fn parts(owner: &Owner) -> (&str, &str) {
    owner.expose().split_at(33)
}

#[cfg(test)]
mod tests;
