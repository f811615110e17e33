//! The rules of one node, as a Redis node keeps them in its scripts. No I/O and no clock: the time comes in.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    Fence, Holder, Name, Refusal,
    engine::{
        self, Claim, EngineError, Fault, Hold,
        voter::{
            Abstention, Ballot, FLOOR_LEAD_MAX, Kept, NodeStatus, Op, Outcome, Record, Sighting, State,
            Value, Vote, Withdrawn,
        },
    },
    owner::{Owner, OwnerId},
};

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

/// What a node knows. All of it is gone after an empty restart.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    keys: BTreeMap<Name, Key>,
    fences: BTreeMap<Name, Fence>,
    waiters: BTreeMap<Name, BTreeMap<(u64, String), Waiter>>,
    gone: BTreeMap<(Name, String), Duration>,
    pub(crate) record: Option<Record>,
    floor: Fence,
    highest: Fence,
}

#[derive(Clone)]
struct Key {
    owner: String,
    expires_at: Duration,
}

#[derive(Clone)]
struct Waiter {
    id: OwnerId,
    client: usize,
    holder: Holder,
    since: Duration,
    seen_at: Duration,
    silent_max: Duration,
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
        let first = self.memory.first_waiter(&claim.name, now);
        if !self.memory.keys.contains_key(&claim.name)
            && first.is_some_and(|first| first.owner != claim.owner.id())
        {
            let no = Vote::No {
                fence: self.memory.fence(&claim.name),
                holder: None,
                expires_in: None,
                ahead: self.memory.waiting(&claim.name),
            };
            if claim.queue.is_some() {
                self.memory.enqueue(ballot, client, now);
            }
            return Ok(no);
        }
        let value = claim.owner.expose();
        match self.memory.keys.get_mut(&claim.name) {
            Some(key) if key.owner == value => {
                key.expires_at = now.at + length;
                Ok(Vote::Yes(self.memory.fence(&claim.name)))
            }
            Some(key) => {
                let holder = Some(Holder::parse(&key.owner));
                let expires_in = Some(key.expires_at.saturating_sub(now.at));
                if claim.queue.is_some() {
                    self.memory.enqueue(ballot, client, now);
                }
                let ahead = self.memory.waiting(&claim.name);
                Ok(Vote::No { fence: self.memory.fence(&claim.name), holder, expires_in, ahead })
            }
            None => {
                if ballot.hint.get().abs_diff(now.wall_us) > HINT_MAX_US {
                    return Err(EngineError::new(Fault::Unsupported, "the clocks differ by more than 60 s"));
                }
                let above = self.memory.fence(&claim.name).max(self.memory.floor).get() + 1;
                let fence = Fence::new(above).max(ballot.hint);
                self.memory.raise(&claim.name, fence);
                let key = Key { owner: value.to_owned(), expires_at: now.at + length };
                self.memory.keys.insert(claim.name.clone(), key);
                self.memory.dequeue(&claim.name, &claim.owner);
                Ok(Vote::Yes(fence))
            }
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
        match (op, expected) {
            (Op::Vote(ballot), Some(expected)) if nobody_waits && holder.is_none() => {
                match self.vote(ballot, expected, client, now) {
                    Ok(Vote::Yes(fence)) => Outcome::Voted(fence),
                    Ok(Vote::Abstains(_)) => Outcome::Abstained,
                    _ => Outcome::NotOrdinary,
                }
            }
            (Op::Withdraw(lock), _) if nobody_waits => match holder {
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
        let confirms = is_ours && self.memory.fence(&hold.name) <= hold.fence;
        if confirms {
            self.memory.raise(&hold.name, hold.fence);
        }
        confirms
    }

    pub(crate) fn renew(&mut self, hold: &Hold, now: Moment) -> Kept {
        self.memory.drop_expired(&hold.name, now);
        match self.memory.keys.get_mut(&hold.name) {
            Some(key) if key.owner == hold.owner.expose() => {
                key.expires_at = now.at + hold.ttl + hold.lock_delay;
                Kept::Yes
            }
            Some(_) => Kept::Taken,
            None => Kept::Missing,
        }
    }

    pub(crate) fn repair(&mut self, hold: &Hold, expected: &Record, now: Moment) -> bool {
        let value = hold.owner.expose();
        let is_free = match self.memory.holder(&hold.name, now) {
            None => self.memory.fence(&hold.name) <= hold.fence,
            Some(holder) => holder == value,
        };
        let repairs = is_free && self.knows(expected) && !self.has_ended(&hold.name, &hold.owner, now);
        if repairs {
            self.memory.raise(&hold.name, hold.fence);
            let expires_at = now.at + hold.ttl + hold.lock_delay;
            self.memory.keys.insert(hold.name.clone(), Key { owner: value.to_owned(), expires_at });
        }
        repairs
    }

    pub(crate) fn retract(&mut self, ballot: &Ballot, client: usize, now: Moment) -> Option<Nudge> {
        let Claim { name, owner, queue, .. } = &ballot.claim;
        if self.memory.holder(name, now) == Some(owner.expose()) {
            self.memory.keys.remove(name);
        }
        if queue.is_some() && !self.has_ended(name, owner, now) {
            self.memory.enqueue(ballot, client, now);
        }
        let is_free = self.memory.holder(name, now).is_none();
        let first = if is_free { self.memory.first_waiter(name, now) } else { None };
        first.filter(|first| first.owner != owner.id())
    }

    pub(crate) fn withdraw(&mut self, name: &Name, owner: &Owner, now: Moment) -> (Withdrawn, Option<Nudge>) {
        self.memory.dequeue(name, owner);
        if self.flaw != Some(Flaw::NoTombstone) {
            self.memory.gone.insert((name.clone(), owner.expose().to_owned()), now.at + TOMBSTONE);
        }
        let was_ours = self.memory.holder(name, now) == Some(owner.expose());
        if was_ours {
            self.memory.keys.remove(name);
        }
        let by = self.memory.keys.get(name).map(|_| self.memory.fence(name));
        let nudge = if by.is_none() { self.memory.first_waiter(name, now) } else { None };
        (Withdrawn { was_ours, woke: nudge.is_some(), by }, nudge)
    }

    pub(crate) fn inspect(&mut self, name: &Name, now: Moment) -> Sighting {
        self.memory.drop_expired(name, now);
        let key = self.memory.keys.get(name);
        let waiters = self.memory.waiters.get(name).into_iter().flat_map(BTreeMap::values);
        Sighting {
            owner: key.map(|key| Value(key.owner.clone())),
            expires_in: key.map(|key| key.expires_at.saturating_sub(now.at)),
            fence: self.memory.fence(name),
            waiters: waiters
                .map(|waiter| engine::Waiter {
                    holder: waiter.holder.clone(),
                    mode: engine::Mode::Exclusive,
                    waiting_for: now.at.saturating_sub(waiter.since),
                })
                .collect(),
            waiting: self.memory.waiting(name),
        }
    }

    /// Names that are held or waited for.
    pub(crate) fn names(&mut self, now: Moment) -> Vec<Name> {
        self.memory.keys.retain(|_, key| key.expires_at > now.at);
        let mut names: Vec<_> = self.memory.keys.keys().chain(self.memory.waiters.keys()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(crate) fn is_held(&mut self, name: &Name, now: Moment) -> bool {
        self.memory.holder(name, now).is_some()
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
    }

    fn has_ended(&self, name: &Name, owner: &Owner, now: Moment) -> bool {
        let until = self.memory.gone.get(&(name.clone(), owner.expose().to_owned()));
        until.is_some_and(|until| *until > now.at)
    }
}

impl Memory {
    fn drop_expired(&mut self, name: &Name, now: Moment) {
        if self.keys.get(name).is_some_and(|key| key.expires_at <= now.at) {
            self.keys.remove(name);
        }
    }

    fn holder(&mut self, name: &Name, now: Moment) -> Option<&str> {
        self.drop_expired(name, now);
        self.keys.get(name).map(|key| key.owner.as_str())
    }

    fn fence(&self, name: &Name) -> Fence {
        self.fences.get(name).copied().unwrap_or_default()
    }

    fn raise(&mut self, name: &Name, fence: Fence) {
        let raised = self.fence(name).max(fence);
        self.fences.insert(name.clone(), raised);
        self.highest = self.highest.max(raised);
    }

    fn enqueue(&mut self, ballot: &Ballot, client: usize, now: Moment) {
        let claim = &ballot.claim;
        let line = self.waiters.entry(claim.name.clone()).or_default();
        let place = (ballot.arrival, claim.owner.expose().to_owned());
        let waiter = line.entry(place).or_insert_with(|| Waiter {
            id: claim.owner.id(),
            client,
            holder: claim.owner.holder(),
            since: now.at,
            seen_at: now.at,
            silent_max: leasehold::engine::liveness(claim.queue.expect("it waits").poll_every),
        });
        waiter.seen_at = now.at;
    }

    fn dequeue(&mut self, name: &Name, owner: &Owner) {
        if let Some(line) = self.waiters.get_mut(name) {
            line.retain(|(_, value), _| value != owner.expose());
        }
    }

    fn waiting(&self, name: &Name) -> u32 {
        self.waiters.get(name).map_or(0, |line| line.len() as u32)
    }

    fn first_waiter(&mut self, name: &Name, now: Moment) -> Option<Nudge> {
        let line = self.waiters.get_mut(name)?;
        line.retain(|_, waiter| waiter.seen_at + waiter.silent_max > now.at);
        line.values().next().map(|waiter| Nudge { client: waiter.client, owner: waiter.id })
    }
}
