//! The rules of one node, as a Redis node keeps them in its scripts. No I/O and no clock: the time comes in.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    Fence, Name, Refusal,
    engine::{
        self, Claim, EngineError, Fault, Hold, Mode,
        voter::{
            Abstention, Ballot, FLOOR_LEAD_MAX, Kept, NodeStatus, Op, Outcome, Reader, Record, Sighting,
            State, Value, Vote, Withdrawn,
        },
    },
    owner::{Owner, OwnerId},
};

use crate::memory::Memory;

/// A rule that is left out, to see that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A node votes whatever it may have forgotten.
    NoAbstention,
    /// The second phase never reaches a node.
    NoSecondPhase,
    /// A vote that comes after its withdrawal counts.
    NoTombstone,
    /// Validity counts from the answer.
    ValidFromTheAnswer,
    /// A node votes for a reader although a writer has its vote.
    ReadsBesideAWriter,
    /// A node votes for a writer although readers have its vote.
    WritesBesideReaders,
    /// A node gives readers the fence of the last writer.
    ReadsUnderTheLastFence,
}

/// How long a withdrawn attempt is remembered.
const TOMBSTONE: Duration = Duration::from_secs(1200);
/// How far a hint may be from the node's own time.
const HINT_MAX_US: u64 = 60_000_000;

/// A node: its memory, and what makes one run of it differ from another.
pub(crate) struct Node {
    pub(crate) label: String,
    /// Counts restarts.
    pub(crate) run: u32,
    pub(crate) memory: Memory,
    /// A copy of the memory that it can be rolled back to.
    pub(crate) dump: Option<Memory>,
    /// How much faster than the clients' its clock runs, in parts of a million.
    pub(crate) rate_ppm: i64,
    /// How much its wall clock is ahead, in microseconds.
    pub(crate) wall_ahead_us: i64,
    pub(crate) flaw: Option<Flaw>,
    /// Out of memory: no record can be written.
    pub(crate) is_full: bool,
    /// How often somebody tried to write one.
    pub(crate) marks: u32,
}

/// Somebody to be told that a lock became free.
#[derive(Clone, Copy)]
pub(crate) struct Nudge {
    pub(crate) client: usize,
    pub(crate) owner: OwnerId,
}

/// When something happens: the node's own time since its start, and its wall clock.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) wall_us: u64,
}

impl Node {
    pub(crate) fn identity(&self) -> String {
        format!("{}-{}", self.label, self.run)
    }

    /// The node's time, from the clients' time since the start.
    pub(crate) fn moment(&self, elapsed: Duration, wall_us: u64) -> Moment {
        let nanos = elapsed.as_nanos() as i64;
        let at = Duration::from_nanos((nanos + nanos / 1_000_000 * self.rate_ppm) as u64);
        Moment { at, wall_us: wall_us.saturating_add_signed(self.wall_ahead_us) }
    }

    /// Whether its record says that it votes.
    pub(crate) fn is_admitted(&self) -> bool {
        let admitted = |record: &Record| record.state == State::Votes && record.identity == self.identity();
        self.memory.record.as_ref().is_some_and(admitted)
    }

    /// Starts again, with this memory. Who waits must ask again to be known.
    pub(crate) fn restart(&mut self, memory: Memory) {
        self.run += 1;
        self.memory = Memory { waiters: BTreeMap::new(), ..memory };
    }

    /// Whether it votes under a expected.
    fn knows(&self, expected: &Record) -> bool {
        self.flaw == Some(Flaw::NoAbstention)
            || (self.memory.record.as_ref() == Some(expected) && expected.identity == self.identity())
    }

    pub(crate) fn vote(
        &mut self,
        ballot: &Ballot,
        expected: &Record,
        client: usize,
        now: Moment,
    ) -> Result<Vote, EngineError> {
        let claim = &ballot.claim;
        if self.has_ended(&claim.name, &claim.owner, now) {
            return Err(EngineError::new(Fault::Ended, "this attempt has ended"));
        }
        if !self.knows(expected) {
            return Ok(Vote::Abstains(Abstention::Forgot));
        }
        let length = claim.ttl + claim.lock_delay;
        if length > Duration::from_millis(expected.max_ms) {
            return Err(EngineError::new(Fault::Unsupported, "longer than this quorum allows"));
        }
        self.memory.drop_expired(&claim.name, now);
        let (name, value, reads) = (&claim.name, claim.owner.expose(), claim.mode == Mode::Shared);
        if let Some(fence) = self.memory.extend(name, value, now.at + length) {
            return Ok(Vote::Yes(fence));
        }
        if !self.has_room(claim) || self.memory.is_behind(ballot, now) {
            let no = self.memory.refusal(name, now);
            if claim.queue.is_some() {
                self.memory.enqueue(ballot, client, now);
            }
            return Ok(no);
        }
        if ballot.hint.get().abs_diff(now.wall_us) > HINT_MAX_US {
            return Err(EngineError::new(Fault::Unsupported, "the clocks differ by more than 60 s"));
        }
        let above = self.memory.fence(name).max(self.memory.floor).get() + 1;
        let fence = match Fence::new(above).max(ballot.hint) {
            _ if reads && self.flaw == Some(Flaw::ReadsUnderTheLastFence) => self.memory.fence(name),
            fence => fence,
        };
        self.memory.put(claim, fence, now.at + length);
        self.memory.dequeue(name, &claim.owner);
        Ok(Vote::Yes(fence))
    }

    /// Whether nobody holds it whom this claim excludes.
    fn has_room(&self, claim: &Claim) -> bool {
        let no_writer =
            !self.memory.keys.contains_key(&claim.name) || self.flaw == Some(Flaw::ReadsBesideAWriter);
        let no_reader =
            !self.memory.readers.contains_key(&claim.name) || self.flaw == Some(Flaw::WritesBesideReaders);
        match claim.mode {
            Mode::Shared => no_writer,
            _ => !self.memory.keys.contains_key(&claim.name) && no_reader,
        }
    }

    /// Does it if nobody else holds the lock or waits for it.
    pub(crate) fn do_ordinary(
        &mut self,
        op: &Op,
        expected: Option<&Record>,
        client: usize,
        now: Moment,
    ) -> Outcome {
        let name = op.name();
        let nobody_waits = self.memory.waiting(name) == 0;
        let holder = self.memory.holder(name, now).map(str::to_owned);
        let is_read = self.memory.readers.contains_key(name);
        match (op, expected) {
            (Op::Vote(ballot), Some(expected))
                if nobody_waits && holder.is_none() && !is_read && ballot.claim.mode == Mode::Exclusive =>
            {
                match self.vote(ballot, expected, client, now) {
                    Ok(Vote::Yes(fence)) => Outcome::Voted(fence),
                    Ok(Vote::Abstains(_)) => Outcome::Abstained,
                    _ => Outcome::NotOrdinary,
                }
            }
            (Op::Withdraw(lock), _) if nobody_waits && !is_read => match holder {
                None => {
                    self.withdraw(name, &lock.1, now);
                    Outcome::Absent
                }
                Some(holder) if holder == lock.1.expose() => {
                    self.withdraw(name, &lock.1, now);
                    Outcome::Withdrawn
                }
                Some(_) => Outcome::NotOrdinary,
            },
            _ => Outcome::NotOrdinary,
        }
    }

    pub(crate) fn confirm(&mut self, hold: &Hold, now: Moment) -> bool {
        let is_ours = self.memory.holder(&hold.name, now) == Some(hold.owner.expose());
        let readers = self.memory.readers.get_mut(&hold.name);
        if let Some(reading) = readers.and_then(|readers| readers.get_mut(hold.owner.expose())) {
            let confirms = reading.fence <= hold.fence;
            if confirms {
                reading.fence = hold.fence;
                self.memory.raise(&hold.name, hold.fence, Mode::Shared);
            }
            return confirms;
        }
        let confirms = is_ours && self.memory.fence(&hold.name) <= hold.fence;
        if confirms {
            self.memory.raise(&hold.name, hold.fence, Mode::Exclusive);
        }
        confirms
    }

    pub(crate) fn renew(&mut self, hold: &Hold, now: Moment) -> Kept {
        self.memory.drop_expired(&hold.name, now);
        let end = now.at + hold.ttl + hold.lock_delay;
        if self.memory.extend(&hold.name, hold.owner.expose(), end).is_some() {
            return Kept::Yes;
        }
        let is_read = hold.mode == Mode::Exclusive && self.memory.readers.contains_key(&hold.name);
        if is_read || self.memory.keys.contains_key(&hold.name) { Kept::Taken } else { Kept::Missing }
    }

    pub(crate) fn repair(&mut self, hold: &Hold, expected: &Record, now: Moment) -> bool {
        let (name, value) = (&hold.name, hold.owner.expose());
        self.memory.drop_expired(name, now);
        let end = now.at + hold.ttl + hold.lock_delay;
        let is_ours = self.memory.extend(name, value, end).is_some();
        let is_read = self.memory.readers.contains_key(name);
        let is_free = !self.memory.keys.contains_key(name)
            && match hold.mode {
                Mode::Shared => self.memory.written(name) < hold.fence,
                _ => !is_read && self.memory.fence(name) <= hold.fence,
            };
        let repairs = (is_ours || is_free) && self.knows(expected) && !self.has_ended(name, &hold.owner, now);
        if repairs && !is_ours {
            self.memory.put_hold(hold, end);
        } else if repairs {
            self.memory.raise(name, hold.fence, hold.mode);
        }
        repairs
    }

    pub(crate) fn retract(&mut self, ballot: &Ballot, client: usize, now: Moment) -> Vec<Nudge> {
        let Claim { name, owner, queue, .. } = &ballot.claim;
        self.memory.take_back(name, owner, now);
        if queue.is_some() && !self.has_ended(name, owner, now) {
            self.memory.enqueue(ballot, client, now);
        }
        let mut next = if self.is_held(name, now) { Vec::new() } else { self.memory.next(name, false, now) };
        next.retain(|nudge| nudge.owner != owner.id());
        next
    }

    pub(crate) fn withdraw(&mut self, name: &Name, owner: &Owner, now: Moment) -> (Withdrawn, Vec<Nudge>) {
        let waited = self.memory.dequeue(name, owner);
        if self.flaw != Some(Flaw::NoTombstone) {
            self.memory.gone.insert((name.clone(), owner.expose().to_owned()), now.at + TOMBSTONE);
        }
        let was_ours = self.memory.take_back(name, owner, now);
        let by_readers = self.memory.readers.contains_key(name);
        let by = self.is_held(name, now).then(|| self.memory.fence(name));
        let wakes = by.is_none() || by_readers && waited;
        let next = if wakes { self.memory.next(name, by_readers, now) } else { Vec::new() };
        (Withdrawn { was_ours, woke: next.len() as u32, by, by_readers }, next)
    }

    pub(crate) fn inspect(&mut self, name: &Name, now: Moment) -> Sighting {
        self.memory.drop_expired(name, now);
        let key = self.memory.keys.get(name);
        let waiters = self.memory.waiters.get(name).into_iter().flat_map(BTreeMap::values);
        let readers = self.memory.readers.get(name).into_iter().flatten();
        Sighting {
            owner: key.map(|key| Value(key.owner.clone())),
            expires_in: key.map(|key| key.expires_at.saturating_sub(now.at)),
            fence: self.memory.fence(name),
            readers: readers
                .map(|(owner, reading)| Reader {
                    owner: Value(owner.clone()),
                    fence: reading.fence,
                    expires_in: Some(reading.expires_at.saturating_sub(now.at)),
                })
                .collect(),
            waiters: waiters
                .map(|waiter| engine::Waiter {
                    holder: waiter.holder.clone(),
                    mode: waiter.mode,
                    waiting_for: now.at.saturating_sub(waiter.since),
                })
                .collect(),
            waiting: self.memory.waiting(name),
        }
    }

    /// Names that are held or waited for.
    pub(crate) fn names(&mut self, now: Moment) -> Vec<Name> {
        self.memory.keys.retain(|_, key| key.expires_at > now.at);
        let Memory { keys, readers, waiters, .. } = &self.memory;
        let mut names: Vec<_> = keys.keys().chain(readers.keys()).chain(waiters.keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(crate) fn is_held(&mut self, name: &Name, now: Moment) -> bool {
        self.memory.holder(name, now).is_some() || self.memory.readers.contains_key(name)
    }

    pub(crate) fn status(&self, now: Moment) -> NodeStatus {
        NodeStatus {
            identity: self.identity(),
            record: self.memory.record.clone(),
            unknown_layout: false,
            highest: self.memory.highest,
            time_us: now.wall_us,
        }
    }

    pub(crate) fn write_record(
        &mut self,
        seen: Option<&Record>,
        record: &Record,
        floor: Fence,
        now: Moment,
    ) -> Result<bool, EngineError> {
        self.marks += 1;
        if self.is_full {
            return Err(EngineError::new(Fault::Refused(Refusal::OutOfMemory), "out of memory"));
        }
        let unchanged = self.memory.record.as_ref() == seen;
        if unchanged && floor.get() > now.wall_us + FLOOR_LEAD_MAX.as_micros() as u64 {
            return Err(EngineError::new(Fault::Refused(Refusal::Other), "FLOOR its clock is behind"));
        }
        if unchanged {
            self.memory.record = Some(record.clone());
            self.memory.floor = self.memory.floor.max(floor);
            self.memory.highest = self.memory.highest.max(floor);
        }
        Ok(unchanged)
    }

    /// A key vanishes: it was evicted, deleted by hand, or the node's clock was set.
    pub(crate) fn lose_key(&mut self, name: &Name) {
        self.memory.keys.remove(name);
        self.memory.readers.remove(name);
    }

    fn has_ended(&self, name: &Name, owner: &Owner, now: Moment) -> bool {
        let until = self.memory.gone.get(&(name.clone(), owner.expose().to_owned()));
        until.is_some_and(|until| *until > now.at)
    }
}
