//! One name of a store: who holds its lock, who waits, and who is next.
//!
//! # Whose turn it is
//! Nobody overtakes: a free lock is kept for its live waiters, in order of arrival. The first one may claim it at once,
//! the second one when the first has let its *turn* pass, and so on. A newcomer comes after all of them.
//!
//! - [`Handover::Push`]: turns never pass. The store hands a free lock to the first live waiter whenever it finds one.
//! - [`Handover::Pull`]: a release wakes the first live waiter, which claims for itself. A turn lasts two near polls, so a
//!   waiter gets its lock even if every hint is lost. A stopped waiter delays the others once: when somebody behind it
//!   gets the lock, its turn shrinks to nothing until it claims again. It keeps its place while it is live.

use std::{collections::VecDeque, time::Duration};

use crate::{
    clock::{BootInstant, Now},
    engine::{
        self, Answer, Claim, EngineError, Fault, Grant, Handover, Hold, Holders, Inspection, Mode, Released,
        Tenure, WAITERS_MAX, WAITERS_SHOWN, liveness,
    },
    error::Refusal,
    fence::{FENCE_LIMIT, Fence},
    name::Name,
    owner::{Owner, OwnerId},
};

/// Longest turn: two polls of a waiter that knows it is near the front.
pub const TURN_MAX: Duration = Duration::from_secs(2);
const TURN_MIN: Duration = Duration::from_millis(100);

/// The state of one name. `W` is how the store reaches a waiter.
#[derive(Clone, Debug)]
pub struct Lock<W> {
    /// How the next waiter gets the lock.
    pub handover: Handover,
    /// The fence of the last grant; zero if there was none.
    pub last: Fence,
    /// The last lease, unless it was given back. It may have expired.
    pub held: Option<Lease>,
    /// When the lock was given back.
    pub free_since: BootInstant,
    /// The waiters in order of arrival. Some may have stopped polling.
    pub queue: VecDeque<Waiter<W>>,
}

/// A lease as the store has it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The attempt that holds it.
    pub owner: Owner,
    /// Its fence.
    pub fence: Fence,
    /// When the lock opens unless the lease is renewed: the end of the lease and its lock-delay.
    pub closed_until: BootInstant,
}

/// An attempt in the queue.
#[derive(Clone, Debug)]
pub struct Waiter<W> {
    /// The attempt.
    pub owner: Owner,
    /// When it entered the queue.
    pub arrived: BootInstant,
    /// Its time limit.
    pub gives_up: BootInstant,
    /// It is passed over from then on, unless it claims again.
    pub live_until: BootInstant,
    /// How long a free lock waits for it; zero once it let its turn pass.
    pub turn: Duration,
    /// How long its lease and lock-delay last. Only a store that hands over needs it.
    pub lasts: Duration,
    /// How the store reaches it.
    pub wake: W,
}

impl<W> Lock<W> {
    /// A name that nobody holds or waits for.
    pub fn new(handover: Handover, last: Fence) -> Self {
        Self { handover, last, held: None, free_since: BootInstant::from_nanos(0), queue: VecDeque::new() }
    }

    /// The lease that has not expired.
    pub fn holder(&self, at: BootInstant) -> Option<&Lease> {
        self.held.as_ref().filter(|lease| lease.closed_until > at)
    }

    /// Whether somebody holds the lock or waits for it.
    pub fn is_in_use(&self, at: BootInstant) -> bool {
        self.holder(at).is_some() || self.live(at).next().is_some()
    }

    /// The waiters that may claim the lock at that time, first come first; none while it is held.
    pub fn in_turn(&self, at: BootInstant) -> impl Iterator<Item = &Waiter<W>> {
        let mut turn_begins = self.opens_at();
        self.live(at).take_while(move |waiter| {
            let is_in_turn = turn_begins <= at;
            turn_begins = turn_begins + waiter.turn;
            is_in_turn
        })
    }

    fn live(&self, at: BootInstant) -> impl Iterator<Item = &Waiter<W>> {
        self.queue.iter().filter(move |waiter| waiter.live_until > at)
    }

    /// Since when the lock is free, or when it will be unless it is renewed.
    pub fn opens_at(&self) -> BootInstant {
        self.held.as_ref().map_or(self.free_since, |lease| lease.closed_until)
    }

    fn position(&self, owner: OwnerId) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.owner.id() == owner)
    }

    /// Decides a claim, the first of an attempt or a later one. `since` is the lower bound of a grant's start.
    ///
    /// # Errors
    /// `Overloaded` when too many wait already; `Refused` when fences are exhausted.
    pub fn claim(
        &mut self,
        claim: &Claim,
        since: BootInstant,
        wake: W,
        now: Now,
    ) -> Result<Answer, EngineError> {
        let at = now.boot;
        let position = self.position(claim.owner.id());
        let place = position.unwrap_or(self.queue.len());
        let live_before = || self.queue.iter().take(place).filter(|waiter| waiter.live_until > at);
        let ahead = live_before().count() as u32;
        let turn_begins = live_before().fold(self.opens_at(), |begins, waiter| begins + waiter.turn);
        let lasts = claim.ttl + claim.lock_delay;
        if self.extend(claim.owner.id(), lasts, at) {
            // A claim of its holder refreshes it.
        } else if turn_begins <= at {
            self.grant(&claim.owner, lasts, now)?;
        } else {
            // If nobody holds it, it opens for the one who asks when its turn begins.
            let free = || Holders::none(Some(turn_begins.since(at)));
            let holders = self.tenure(at).map_or_else(free, Holders::one);
            let Some(queue) = claim.queue else { return Ok(Answer::Busy { holders }) };
            if position.is_none() {
                if ahead >= WAITERS_MAX {
                    let why = format!("{WAITERS_MAX} attempts wait for this name already");
                    return Err(EngineError::new(Fault::Overloaded, why));
                }
                let (owner, gives_up, turn) = (claim.owner.clone(), at + queue.wait, Duration::ZERO);
                let waiter = Waiter { owner, arrived: at, gives_up, live_until: at, turn, lasts, wake };
                self.queue.push_back(waiter);
            }
            self.queue[place].poll(queue, self.handover, at);
            return Ok(Answer::Queued { ahead, holders, last: self.last, link: 0 });
        }
        Ok(Answer::Granted(Grant { fence: self.last, since, ttl: claim.ttl, acks: 0 }))
    }

    /// Hands a free lock to the first live waiter, which leaves the queue.
    ///
    /// # Errors
    /// `Refused` when fences are exhausted.
    pub fn hand_over(&mut self, now: Now) -> Result<Option<Waiter<W>>, EngineError> {
        let next = self.in_turn(now.boot).next().map(|next| (next.owner.clone(), next.lasts));
        next.map_or(Ok(None), |(owner, lasts)| self.grant(&owner, lasts, now))
    }

    /// Renews a lease that is still there, never one that has expired. Returns whether it did.
    pub fn renew(&mut self, hold: &Hold, at: BootInstant) -> bool {
        self.extend(hold.owner.id(), hold.ttl + hold.lock_delay, at)
    }

    /// Ends an attempt, which leaves the queue and gives back what it holds. Returns whether it held the lock.
    pub fn end(&mut self, owner: OwnerId, at: BootInstant) -> bool {
        self.queue.retain(|waiter| waiter.owner.id() != owner);
        self.free_if(at, |lease| lease.owner.id() == owner)
    }

    /// Frees the lock if it is still held under the fence that was seen. Returns whether it was.
    pub fn force(&mut self, seen: Fence, at: BootInstant) -> bool {
        self.free_if(at, |lease| lease.fence == seen)
    }

    /// How a release ended that found the lock its own or not, after any hand-over.
    pub fn released(&self, was_ours: bool, at: BootInstant) -> Released {
        let holder = self.holder(at).map(|lease| lease.fence);
        match (was_ours, holder) {
            (true, None) if self.in_turn(at).next().is_none() => Released::Free,
            (true, next) => Released::handed_over(next),
            (false, Some(by)) => Released::Taken { by: Some(by) },
            (false, None) => Released::Expired,
        }
    }

    /// What people may see of it.
    pub fn inspect(&self, name: &Name, at: BootInstant) -> Inspection {
        let show = |waiter: &Waiter<W>| engine::Waiter {
            holder: waiter.owner.holder(),
            mode: Mode::Exclusive,
            waiting_for: at.since(waiter.arrived),
        };
        Inspection {
            name: name.clone(),
            holders: self.tenure(at).into(),
            waiters: self.live(at).take(WAITERS_SHOWN as usize).map(show).collect(),
            waiting: self.live(at).count() as u32,
        }
    }

    fn tenure(&self, at: BootInstant) -> Option<Tenure> {
        let Lease { owner, fence, closed_until } = self.holder(at)?;
        let (mode, expires_in) = (Mode::Exclusive, Some(closed_until.since(at)));
        Some(Tenure { holder: owner.holder(), fence: *fence, mode, expires_in })
    }

    /// Extends the lease if it is this attempt's.
    fn extend(&mut self, owner: OwnerId, lasts: Duration, at: BootInstant) -> bool {
        let held = self.held.as_mut().filter(|lease| lease.closed_until > at && lease.owner.id() == owner);
        held.map(|lease| lease.closed_until = at + lasts).is_some()
    }

    /// Gives the lock to an attempt, whose entry in the queue is returned. Those before it have let their turn pass.
    fn grant(&mut self, owner: &Owner, lasts: Duration, now: Now) -> Result<Option<Waiter<W>>, EngineError> {
        let fence = next_fence(self.last, now.wall_us)?;
        let position = self.position(owner.id());
        for passed_over in self.queue.iter_mut().take(position.unwrap_or(usize::MAX)) {
            passed_over.turn = Duration::ZERO;
        }
        self.last = fence;
        self.held = Some(Lease { owner: owner.clone(), fence, closed_until: now.boot + lasts });
        Ok(position.and_then(|position| self.queue.remove(position)))
    }

    fn free_if(&mut self, at: BootInstant, is_meant: impl FnOnce(&Lease) -> bool) -> bool {
        let is_freed = self.held.take_if(|lease| lease.closed_until > at && is_meant(lease)).is_some();
        if is_freed {
            self.free_since = at;
        }
        is_freed
    }
}

impl<W> Waiter<W> {
    /// It has claimed again: its place and its time limit stay those of the first claim.
    fn poll(&mut self, queue: engine::Queue, handover: Handover, at: BootInstant) {
        self.live_until = self.gives_up.min(at + liveness(queue.poll_every));
        self.turn = match handover {
            Handover::Push => Duration::MAX,
            Handover::Pull => queue.poll_every.saturating_mul(2).clamp(TURN_MIN, TURN_MAX),
        };
    }
}

/// The fence after `last`: a counter alone repeats after a restore, time alone after a clock step.
///
/// # Errors
/// `Refused` when it would not fit a double any more.
pub fn next_fence(last: Fence, wall_us: u64) -> Result<Fence, EngineError> {
    let fence = last.get().saturating_add(1).max(wall_us);
    if fence >= FENCE_LIMIT {
        let why = format!("fence exhausted: the next one would be {fence}, and fences end at 2^53");
        return Err(EngineError::new(Fault::Refused(Refusal::Other), why));
    }
    Ok(Fence::new(fence))
}

#[cfg(test)]
mod tests;
