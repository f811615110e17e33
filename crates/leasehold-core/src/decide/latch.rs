//! One latch or barrier: who takes part, how many have counted down, and what a generation has come to.
//!
//! A store reads the latch, the participant that asks and the first lease that ends, asks [`decide`], and writes what that says.
//! So a request costs the same however many take part.
//!
//! - *No more take part than there are parties*: of an open generation every participant was counted, so a count that is sent
//!   again after the latch was armed anew can be answered without remembering who took part.
//! - *A generation is at least the wall clock*, as a fence is: one of a latch that was forgotten is never met again.
//! - *Everything up to the floor is not known to have opened*: generations that the store forgot. Whoever waits for one of them is
//!   told that it broke, never that it opened. Above the floor those that broke are known, and all others opened.

use std::num::NonZeroU32;

use super::lock::next_fence;
use crate::{
    clock::{BootInstant, Now},
    engine::{
        EngineError,
        latches::{Answer, Kind, Op, Request, Said, Snapshot, Standing},
    },
    fence::Fence,
    name::Name,
    owner::Holder,
};

/// A latch as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latch {
    /// What it is.
    pub kind: Kind,
    /// How many parties it has.
    pub count: NonZeroU32,
    /// The present generation.
    pub generation: u64,
    /// How that stands.
    pub phase: Phase,
    /// How many have counted down in it.
    pub counted: u32,
    /// How many take part in it.
    pub joined: u32,
    /// The generation before, if it is known.
    pub previous: u64,
    /// Nothing is known about this generation and those before it.
    pub floor: u64,
    /// The generations above the floor that broke, last first; at most [`BROKEN_MAX`].
    pub broken: Vec<u64>,
    /// Who broke the last of them.
    pub broken_by: Option<Holder>,
}

/// Generations that are known to have broken.
pub const BROKEN_MAX: usize = 16;

/// How the present generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Some have not counted down.
    Armed,
    /// All have. A barrier is armed again at once.
    Open,
    /// A participant ended before it had counted down.
    Broken,
}

impl Phase {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Open => "open",
            Self::Broken => "broken",
        }
    }

    /// Reads the word for it.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Armed, Self::Open, Self::Broken].into_iter().find(|phase| phase.as_str() == word)
    }
}

/// A participant as a store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party {
    /// When its lease ends; `None` once it needs none.
    pub ends: Option<BootInstant>,
    /// The last generation in which it counted down; 0 if there is none.
    pub arrived: u64,
    /// How many were counted before it there.
    pub index: u32,
}

/// What a store has under a name, for one that asks.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The latch.
    pub latch: Option<Latch>,
    /// The participant that asks, if it takes part.
    pub me: Option<Party>,
    /// The first lease that ends, and whose it is.
    pub first: Option<(BootInstant, Holder)>,
}

/// What a store has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// All participants are forgotten.
    pub clears: bool,
    /// The participant that asked, from here on.
    pub me: Option<Party>,
    /// The latch from here on; `None` if there is none.
    pub latch: Option<Latch>,
    /// All who wait are told to look again.
    pub tells: bool,
    /// The one who asked is to be told of what comes.
    pub watches: bool,
    /// What it is answered.
    pub answer: Answer,
}

/// Decides about one request.
///
/// # Errors
/// `OtherMode` for a barrier that was to be a latch, or the other way round; `OtherCount` for an armed latch with another number
/// of parties. Nothing is to be written then.
pub fn decide(found: Found, request: &Request, now: Now) -> Result<Decided, EngineError> {
    let Found { latch, me, first } = found;
    let latch = match (latch, request.op) {
        (Some(latch), _) => latch,
        (None, Op::Join { .. } | Op::Look { generation: None, .. }) => Latch::new(request, now)?,
        (None, op) => return Ok(unknown(op)),
    };
    if latch.kind != request.kind {
        return Err(EngineError::other_kind(latch.kind, request.kind));
    }
    let first_ends_in = first.as_ref().map(|(ends, _)| ends.since(now.boot));
    let mut step = Step { latch, me, clears: false, tells: false, watches: false };
    step.expire(first, now.boot);
    let said = step.take(request, now)?;
    let Step { latch, me, clears, tells, watches } = step;
    let first_ends_in = first_ends_in.filter(|_| latch.phase == Phase::Armed && !clears);
    let answer = Answer { generation: latch.generation, said, first_ends_in };
    Ok(Decided { clears, me, latch: Some(latch), tells, watches, answer })
}

/// The participant that asks to be renewed, with its new end; `None` if its lease is over, or its latch.
pub fn renew(found: &Found, ends: BootInstant, now: BootInstant) -> Option<Party> {
    let is_armed = found.latch.as_ref().is_some_and(|latch| latch.phase == Phase::Armed);
    let me = found.me.filter(|me| is_armed && me.ends.is_some_and(|ends| ends > now))?;
    Some(Party { ends: Some(ends), ..me })
}

/// What people may see; the participants are still to be listed, unless the latch is over.
pub fn inspect(name: &Name, found: Found, now: BootInstant) -> Option<Snapshot> {
    let Found { latch, first, .. } = found;
    let mut step = Step { latch: latch?, me: None, clears: false, tells: false, watches: false };
    step.expire(first, now);
    let Latch { kind, count, generation, joined, .. } = step.latch;
    let standing = step.latch.standing(generation);
    let (name, count) = (name.clone(), count.get());
    Some(Snapshot { name, kind, count, generation, standing, joined, participants: Vec::new() })
}

/// A latch that is not there cannot be counted down: whoever took part in it was forgotten.
fn unknown(op: Op) -> Decided {
    let said = match op {
        Op::Leave { .. } => Said::Left,
        Op::Rearm { .. } => Said::OtherGeneration,
        _ => Said::Stands(Standing::Broken { who: None }),
    };
    let answer = Answer { generation: 0, said, first_ends_in: None };
    Decided { clears: false, me: None, latch: None, tells: false, watches: false, answer }
}

impl Latch {
    fn new(request: &Request, now: Now) -> Result<Self, EngineError> {
        let generation = generation_after(0, now)?;
        let (kind, count, floor) = (request.kind, request.count, generation - 1);
        let (phase, counted, joined, previous) = (Phase::Armed, 0, 0, 0);
        let (broken, broken_by) = (Vec::new(), None);
        Ok(Self { kind, count, generation, phase, counted, joined, previous, floor, broken, broken_by })
    }

    fn missing(&self) -> u32 {
        self.count.get().saturating_sub(self.counted)
    }

    fn standing(&self, generation: u64) -> Standing {
        let is_known = self.floor < generation && generation <= self.generation;
        if !is_known || self.broken.contains(&generation) {
            let is_last = self.broken.first() == Some(&generation);
            return Standing::Broken { who: self.broken_by.clone().filter(|_| is_last) };
        }
        let is_armed = generation == self.generation && self.phase == Phase::Armed;
        if is_armed { Standing::Armed { missing: self.missing() } } else { Standing::Opened }
    }

    fn next_generation(&mut self, now: Now) -> Result<(), EngineError> {
        let next = generation_after(self.generation, now)?;
        self.previous = std::mem::replace(&mut self.generation, next);
        (self.phase, self.counted) = (Phase::Armed, 0);
        Ok(())
    }
}

fn generation_after(last: u64, now: Now) -> Result<u64, EngineError> {
    Ok(next_fence(Fence::new(last), now.wall_us)?.get())
}

/// A latch while a request is decided about.
struct Step {
    latch: Latch,
    me: Option<Party>,
    clears: bool,
    tells: bool,
    watches: bool,
}

impl Step {
    /// A lease that has ended breaks the latch.
    fn expire(&mut self, first: Option<(BootInstant, Holder)>, now: BootInstant) {
        match first {
            Some((ends, who)) if self.latch.phase == Phase::Armed && ends <= now => self.break_by(who),
            _ => {}
        }
    }

    fn break_by(&mut self, who: Holder) {
        let latch = &mut self.latch;
        (latch.phase, latch.broken_by) = (Phase::Broken, Some(who));
        latch.broken.insert(0, latch.generation);
        if latch.broken.len() > BROKEN_MAX {
            latch.floor = latch.broken.pop().unwrap_or(latch.floor);
        }
        self.forget_participants();
        self.tells = true;
    }

    fn forget_participants(&mut self) {
        (self.latch.joined, self.me, self.clears) = (0, None, true);
    }

    fn take(&mut self, request: &Request, now: Now) -> Result<Said, EngineError> {
        let is_armed = self.latch.phase == Phase::Armed;
        let leaves = matches!(request.op, Op::Leave { .. });
        if is_armed && !leaves && request.count != self.latch.count {
            return Err(EngineError::other_count(self.latch.count, request.count));
        }
        match request.op {
            Op::Join { ttl } => Ok(self.join(now.boot + ttl)),
            Op::CountDown { generation } => self.count_down(generation, now),
            Op::Leave { breaks } => Ok(self.leave(breaks, request)),
            Op::Look { generation, wake } => {
                let standing = self.latch.standing(generation.unwrap_or(self.latch.generation));
                self.watches = wake && matches!(standing, Standing::Armed { .. });
                Ok(Said::Stands(standing))
            }
            Op::Rearm { generation } => self.rearm(generation, request.count, now),
        }
    }

    fn join(&mut self, ends: BootInstant) -> Said {
        let latch = &mut self.latch;
        match &mut self.me {
            _ if latch.phase != Phase::Armed => Said::Stands(latch.standing(latch.generation)),
            Some(me) => {
                // One that has counted down needs no lease any more.
                me.ends = me.ends.map(|_| ends);
                Said::Joined
            }
            None if latch.joined >= latch.count.get() => Said::Full,
            None => {
                latch.joined += 1;
                self.me = Some(Party { ends: Some(ends), arrived: 0, index: 0 });
                Said::Joined
            }
        }
    }

    fn count_down(&mut self, generation: u64, now: Now) -> Result<Said, EngineError> {
        let latch = &mut self.latch;
        let is_present = generation == latch.generation;
        let Some(me) = self.me.as_mut().filter(|me| is_present || me.arrived == generation) else {
            return Ok(match latch.standing(generation) {
                Standing::Armed { .. } => Said::Stranger,
                standing => Said::Stands(standing),
            });
        };
        let again = me.arrived == generation;
        if again {
            let missing = if is_present { latch.missing() } else { 0 };
            return Ok(Said::Counted { index: me.index, again, missing });
        }
        let index = latch.counted;
        latch.counted += 1;
        (me.arrived, me.index) = (generation, index);
        if latch.kind == Kind::Latch {
            me.ends = None;
        }
        let missing = latch.missing();
        if missing == 0 {
            self.tells = true;
            match latch.kind {
                Kind::Barrier => latch.next_generation(now)?,
                Kind::Latch => {
                    latch.phase = Phase::Open;
                    self.forget_participants();
                }
            }
        }
        Ok(Said::Counted { index, again, missing })
    }

    fn leave(&mut self, breaks: bool, request: &Request) -> Said {
        let Some(me) = self.me else { return Said::Left };
        let has_counted = me.arrived == self.latch.generation;
        match (self.latch.kind, has_counted) {
            (Kind::Latch, true) => {}
            (Kind::Barrier, true) => self.break_by(request.owner.holder()),
            (_, false) if breaks => self.break_by(request.owner.holder()),
            (_, false) => {
                self.me = None;
                self.latch.joined -= 1;
            }
        }
        Said::Left
    }

    fn rearm(&mut self, generation: u64, count: NonZeroU32, now: Now) -> Result<Said, EngineError> {
        let latch = &mut self.latch;
        if generation != latch.generation {
            // The same request again: the latch is what it asked for.
            let is_done = latch.phase == Phase::Armed && generation == latch.previous && generation > 0;
            return Ok(if is_done { Said::Rearmed } else { Said::OtherGeneration });
        }
        if latch.phase == Phase::Armed {
            return Ok(Said::Stands(latch.standing(generation)));
        }
        latch.next_generation(now)?;
        latch.count = count;
        self.forget_participants();
        Ok(Said::Rearmed)
    }
}

#[cfg(test)]
mod tests;
