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
//!
//! # Modes
//! There is one queue for all modes. What does not fit beside the holders waits, and so does everybody behind it: a reader
//! behind a waiting writer, and a small request for permits behind a large one. What fits is granted together: the whole run
//! of readers up to the next writer. A name is a read-write lock or a semaphore, not both at a time.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use super::room::{Taken, Turn, Turns};
use crate::{
    clock::{BootInstant, Now},
    engine::{
        self, Answer, Claim, Converted, EngineError, Fault, Grant, HOLDERS_SHOWN, HandedTo, Handover, Hold,
        Holders, Inspection, Mode, Released, Tenure, WAITERS_MAX, WAITERS_SHOWN, liveness,
    },
    error::Refusal,
    fence::{FENCE_LIMIT, Fence},
    name::Name,
    owner::{Holder, Owner, OwnerId},
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
    /// The leases that were not given back, first come first. Some may have expired.
    pub held: Vec<Lease>,
    /// How many permits there are, if it is a semaphore. The store keeps it for a while after the last use.
    pub limit: Option<Limit>,
    /// When something of the lock was given back or expired last.
    pub free_since: BootInstant,
    /// The waiters in order of arrival. Some may have stopped polling.
    pub queue: VecDeque<Waiter<W>>,
}

/// How many permits a semaphore has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The number in force.
    pub now: NonZeroU32,
    /// The number that its first user named. Programs may go on to name it after an operator has changed the limit.
    pub first: NonZeroU32,
}

/// A lease as the store has it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The attempt that holds it.
    pub owner: Owner,
    /// Its fence.
    pub fence: Fence,
    /// How it is held.
    pub mode: Mode,
    /// When the lock opens unless the lease is renewed: the end of the lease and its lock-delay.
    pub closed_until: BootInstant,
}

/// An attempt in the queue.
#[derive(Clone, Debug)]
pub struct Waiter<W> {
    /// The attempt.
    pub owner: Owner,
    /// How it is to hold the lock.
    pub mode: Mode,
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
        let free_since = BootInstant::from_nanos(0);
        Self { handover, last, held: Vec::new(), limit: None, free_since, queue: VecDeque::new() }
    }

    /// The leases that have not expired.
    pub fn holders(&self, at: BootInstant) -> impl Iterator<Item = &Lease> {
        self.held.iter().filter(move |lease| lease.closed_until > at)
    }

    /// Whether somebody holds the lock or waits for it.
    pub fn is_in_use(&self, at: BootInstant) -> bool {
        self.holders(at).next().is_some() || self.live(at).next().is_some()
    }

    /// The waiters that may claim the lock at that time, first come first.
    pub fn in_turn(&self, at: BootInstant) -> impl Iterator<Item = &Waiter<W>> {
        let mut turns = self.turns(at);
        self.live(at).take_while(move |waiter| turns.pass(waiter.mode, waiter.turn) != Turn::NotYet)
    }

    fn live(&self, at: BootInstant) -> impl Iterator<Item = &Waiter<W>> {
        self.queue.iter().filter(move |waiter| waiter.live_until > at)
    }

    fn turns(&self, at: BootInstant) -> Turns {
        let taken = self.holders(at).fold(Taken::Nothing, |taken, lease| taken.and(lease.mode));
        let limit = self.limit.map(|limit| limit.now);
        Turns { at, begins: self.freed_at(at), taken: Some(taken), limit }
    }

    /// When something of the lock came free last.
    fn freed_at(&self, at: BootInstant) -> BootInstant {
        let expired = self.held.iter().map(|lease| lease.closed_until).filter(|end| *end <= at);
        expired.fold(self.free_since, BootInstant::max)
    }

    fn position(&self, owner: OwnerId) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.owner.id() == owner)
    }

    /// Decides a claim, the first of an attempt or a later one. `since` is the lower bound of a grant's start.
    ///
    /// # Errors
    /// `Overloaded` when too many wait already; `Refused` when fences are exhausted; `OtherMode`, `OtherLimit` and `AboveLimit` when
    /// the name is used in another way.
    pub fn claim(
        &mut self,
        claim: &Claim,
        since: BootInstant,
        wake: W,
        now: Now,
    ) -> Result<Answer, EngineError> {
        let (at, mode, lasts) = (now.boot, claim.mode, claim.ttl + claim.lock_delay);
        let granted = |fence| Ok(Answer::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 }));
        if let Some(lease) = self.extend(claim.owner.id(), lasts, at) {
            // A claim of its holder refreshes it.
            return granted(lease.fence);
        }
        let position = self.position(claim.owner.id());
        let place = position.unwrap_or(self.queue.len());
        let Some((ahead, holders)) = self.in_the_way(mode, position, at)? else {
            self.grant(&claim.owner, mode, lasts, now)?;
            return granted(self.last);
        };
        let Some(queue) = claim.queue else { return Ok(Answer::Busy { holders }) };
        if position.is_none() {
            if ahead >= WAITERS_MAX {
                let why = format!("{WAITERS_MAX} attempts wait for this name already");
                return Err(EngineError::new(Fault::Overloaded, why));
            }
            let (owner, gives_up, turn) = (claim.owner.clone(), at + queue.wait, Duration::ZERO);
            let waiter = Waiter { owner, mode, arrived: at, gives_up, live_until: at, turn, lasts, wake };
            self.queue.push_back(waiter);
        }
        self.queue[place].poll(queue, self.handover, at);
        Ok(Answer::Queued { ahead, holders, last: self.last, link: 0 })
    }

    /// Who holds the lock if a claim would be refused now; `None` if it would be granted.
    ///
    /// # Errors
    /// As [`Lock::claim`], except that nobody is too many for one who does not wait.
    pub fn refuses(&mut self, claim: &Claim, now: Now) -> Result<Option<Holders>, EngineError> {
        let owner = claim.owner.id();
        if self.holders(now.boot).any(|lease| lease.owner.id() == owner) {
            return Ok(None);
        }
        next_fence(self.last, now.wall_us)?;
        let in_the_way = self.in_the_way(claim.mode, self.position(owner), now.boot)?;
        Ok(in_the_way.map(|(_, holders)| holders))
    }

    /// Who holds the lock and how many wait before one in this position; `None` if nothing is in its way.
    fn in_the_way(
        &mut self,
        mode: Mode,
        position: Option<usize>,
        at: BootInstant,
    ) -> Result<Option<(u32, Holders)>, EngineError> {
        self.check_kind(mode, at)?;
        self.check_limit(mode, position.is_none())?;
        let place = position.unwrap_or(self.queue.len());
        let (mut turns, mut ahead, mut their_turns) = (self.turns(at), 0, Duration::ZERO);
        for waiter in self.queue.iter().take(place).filter(|waiter| waiter.live_until > at) {
            turns.pass(waiter.mode, waiter.turn);
            ahead += 1;
            their_turns = their_turns.saturating_add(waiter.turn);
        }
        if turns.fits(mode) {
            return Ok(None);
        }
        let mut holders = self.tenures(at);
        if holders.total == 0 {
            // It opens for the one who asks when its turn begins.
            holders.free_in = Some((self.freed_at(at) + their_turns).since(at));
        }
        Ok(Some((ahead, holders)))
    }

    /// A name is a read-write lock or a semaphore, as long as anybody uses it.
    fn check_kind(&self, mode: Mode, at: BootInstant) -> Result<(), EngineError> {
        let mut others =
            self.holders(at).map(|lease| lease.mode).chain(self.live(at).map(|waiter| waiter.mode));
        match others.find(|other| !other.is_kind_of(mode)) {
            Some(other) => Err(EngineError::other_mode(other, mode)),
            None => Ok(()),
        }
    }

    /// The first one who asks for permits says how many there are, and all others must agree.
    fn check_limit(&mut self, mode: Mode, is_new: bool) -> Result<(), EngineError> {
        let Mode::Permits { take, of } = mode else { return Ok(()) };
        let Limit { now, first } = *self.limit.get_or_insert(Limit { now: of, first: of });
        if is_new && of != now && of != first {
            return Err(EngineError::other_limit(now, of));
        }
        if take > now { Err(EngineError::above_limit(now, take)) } else { Ok(()) }
    }

    /// Changes the number of permits. Nobody loses any: with more taken than there are, nobody gets one until enough came back.
    ///
    /// # Errors
    /// `OtherMode` when the name is in use as a read-write lock; `Refused` when fences are exhausted.
    pub fn set_limit(&mut self, limit: NonZeroU32, now: Now) -> Result<(), EngineError> {
        self.check_kind(Mode::Permits { take: limit, of: limit }, now.boot)?;
        // The time of the last use: stores keep a name for a while after it.
        self.last = next_fence(self.last, now.wall_us)?;
        let stored = self.limit.get_or_insert(Limit { now: limit, first: limit });
        if std::mem::replace(&mut stored.now, limit) < limit {
            // The turns of those who wait begin now, or the first to claim would overtake the others.
            self.free_since = now.boot;
        }
        Ok(())
    }

    /// Hands what is free to the waiters whose turn it is, but not to the one who asks. They leave the queue.
    ///
    /// # Errors
    /// `Refused` when fences are exhausted.
    pub fn hand_over(
        &mut self,
        asks: Option<OwnerId>,
        now: Now,
    ) -> Result<Vec<(Waiter<W>, Fence)>, EngineError> {
        if self.queue.is_empty() {
            return Ok(Vec::new());
        }
        let next = self.in_turn(now.boot).filter(|waiter| Some(waiter.owner.id()) != asks);
        let next: Vec<_> = next.map(|waiter| (waiter.owner.clone(), waiter.mode, waiter.lasts)).collect();
        let mut handed = Vec::with_capacity(next.len());
        for (owner, mode, lasts) in next {
            let waiter = self.grant(&owner, mode, lasts, now)?;
            handed.extend(waiter.map(|waiter| (waiter, self.last)));
        }
        Ok(handed)
    }

    /// Renews a lease that is still there, never one that has expired. Returns whether it did.
    pub fn renew(&mut self, hold: &Hold, at: BootInstant) -> bool {
        self.extend(hold.owner.id(), hold.ttl + hold.lock_delay, at).is_some()
    }

    /// Makes a writer a reader, or the only reader a writer, without letting anybody in between, and renews its lease.
    /// `since` is the lower bound of its start.
    ///
    /// # Errors
    /// `OtherMode` for permits; `Refused` when fences are exhausted.
    pub fn convert(
        &mut self,
        hold: &Hold,
        to: Mode,
        since: BootInstant,
        now: Now,
    ) -> Result<Converted, EngineError> {
        let (at, owner) = (now.boot, hold.owner.id());
        let (fence, others) = (next_fence(self.last, now.wall_us)?, self.holders(at).count() > 1);
        let mine = |lease: &&mut Lease| lease.closed_until > at && lease.owner.id() == owner;
        let Some(lease) = self.held.iter_mut().find(mine) else { return Ok(Converted::Gone) };
        if !lease.mode.is_kind_of(to) {
            return Err(EngineError::other_mode(lease.mode, to));
        }
        if to == Mode::Exclusive && lease.mode != to {
            if others {
                return Ok(Converted::Busy);
            }
            // Above those of all readers before it.
            (lease.fence, self.last) = (fence, fence);
        }
        (lease.mode, lease.closed_until) = (to, at + hold.ttl + hold.lock_delay);
        Ok(Converted::Done { fence: lease.fence, since })
    }

    /// Gives an exclusive lease to the first live waiter that people see like this, which leaves the queue. It lasts as long
    /// as that one asked for, or as long as the one it comes from if the store does not know.
    ///
    /// # Errors
    /// `Unsupported` for a lock that several hold; `Refused` when fences are exhausted.
    pub fn hand_to(
        &mut self,
        hold: &Hold,
        next: &Holder,
        now: Now,
    ) -> Result<(HandedTo, Option<Waiter<W>>), EngineError> {
        let (at, owner) = (now.boot, hold.owner.id());
        let Some(mine) = self.holders(at).find(|lease| lease.owner.id() == owner) else {
            return Ok((HandedTo::Gone, None));
        };
        if mine.mode != Mode::Exclusive {
            let why = "only the holder of an exclusive lock can name the next one";
            return Err(EngineError::new(Fault::Unsupported, why));
        }
        let Some(waiter) = self.live(at).find(|waiter| waiter.owner.holder() == *next) else {
            return Ok((HandedTo::NotWaiting, None));
        };
        let (owner, mode) = (waiter.owner.clone(), waiter.mode);
        let lasts = if waiter.lasts.is_zero() { hold.ttl + hold.lock_delay } else { waiter.lasts };
        next_fence(self.last, now.wall_us)?;
        self.end(hold.owner.id(), at);
        let waiter = self.grant(&owner, mode, lasts, now)?;
        Ok((HandedTo::Done { fence: self.last }, waiter))
    }

    /// Ends an attempt, which leaves the queue and gives back what it holds. Returns whether it held the lock.
    pub fn end(&mut self, owner: OwnerId, at: BootInstant) -> bool {
        self.queue.retain(|waiter| waiter.owner.id() != owner);
        self.free_if(at, |lease| lease.owner.id() == owner)
    }

    /// Ends the lease that is still held under the fence that was seen. Returns whether it was.
    pub fn force(&mut self, seen: Fence, at: BootInstant) -> bool {
        self.free_if(at, |lease| lease.fence == seen)
    }

    /// How a release ended that found the lock its own or not, after it was handed to those under these fences.
    pub fn released(&self, was_ours: bool, mode: Mode, handed: &[Fence], at: BootInstant) -> Released {
        let in_the_way = |lease: &&Lease| mode == Mode::Exclusive || lease.mode == Mode::Exclusive;
        match (was_ours, handed.first(), self.woken(at)) {
            (true, Some(first), _) => Released::HandedOver { to: handed.len() as u32, next: Some(*first) },
            (true, None, 0) => Released::Free,
            (true, None, to) => Released::HandedOver { to, next: None },
            (false, ..) => match self.holders(at).find(in_the_way) {
                Some(lease) => Released::Taken { by: Some(lease.fence) },
                None => Released::Expired,
            },
        }
    }

    /// How many waiters can have the lock together.
    fn woken(&self, at: BootInstant) -> u32 {
        if self.queue.is_empty() {
            return 0;
        }
        let mut turns = self.turns(at);
        self.live(at).take_while(|waiter| turns.pass(waiter.mode, Duration::MAX) == Turn::Now).count() as u32
    }

    /// What people may see of it.
    pub fn inspect(&self, name: &Name, at: BootInstant) -> Inspection {
        let show = |waiter: &Waiter<W>| engine::Waiter {
            holder: waiter.owner.holder(),
            mode: waiter.mode,
            waiting_for: at.since(waiter.arrived),
        };
        Inspection {
            name: name.clone(),
            holders: self.tenures(at),
            limit: self.limit.map(|limit| limit.now),
            permits_taken: self.holders(at).map(|lease| lease.mode.permits()).sum(),
            waiters: self.live(at).take(WAITERS_SHOWN as usize).map(show).collect(),
            waiting: self.live(at).count() as u32,
        }
    }

    fn tenures(&self, at: BootInstant) -> Holders {
        let show = |lease: &Lease| Tenure {
            holder: lease.owner.holder(),
            fence: lease.fence,
            mode: lease.mode,
            expires_in: Some(lease.closed_until.since(at)),
        };
        Holders {
            shown: self.holders(at).take(HOLDERS_SHOWN).map(show).collect(),
            total: self.holders(at).count() as u32,
            free_in: self.holders(at).map(|lease| lease.closed_until.since(at)).min(),
        }
    }

    /// Extends the lease of this attempt, if it has one.
    fn extend(&mut self, owner: OwnerId, lasts: Duration, at: BootInstant) -> Option<&Lease> {
        let mine = |lease: &&mut Lease| lease.closed_until > at && lease.owner.id() == owner;
        let lease = self.held.iter_mut().find(mine)?;
        lease.closed_until = at + lasts;
        Some(lease)
    }

    /// Gives the lock to an attempt, whose entry in the queue is returned. Those before it who let their turn pass lose it.
    fn grant(
        &mut self,
        owner: &Owner,
        mode: Mode,
        lasts: Duration,
        now: Now,
    ) -> Result<Option<Waiter<W>>, EngineError> {
        let (at, fence) = (now.boot, next_fence(self.last, now.wall_us)?);
        let position = self.position(owner.id());
        if position != Some(0) && !self.queue.is_empty() {
            let mut turns = self.turns(at);
            let before = self.queue.iter_mut().take(position.unwrap_or(usize::MAX));
            for waiter in before.filter(|waiter| waiter.live_until > at) {
                if turns.pass(waiter.mode, waiter.turn) == Turn::Passed {
                    waiter.turn = Duration::ZERO;
                }
            }
        }
        self.free_since = self.freed_at(at);
        self.held.retain(|lease| lease.closed_until > at);
        self.last = fence;
        // Most locks have one holder at a time.
        self.held.reserve_exact(usize::from(self.held.is_empty()));
        self.held.push(Lease { owner: owner.clone(), fence, mode, closed_until: at + lasts });
        Ok(position.and_then(|position| self.queue.remove(position)))
    }

    fn free_if(&mut self, at: BootInstant, is_meant: impl Fn(&Lease) -> bool) -> bool {
        let before = self.held.len();
        self.held.retain(|lease| lease.closed_until <= at || !is_meant(lease));
        let is_freed = self.held.len() < before;
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
