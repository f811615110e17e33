//! What a node remembers, and how it changes.

use std::{collections::BTreeMap, time::Duration};

use leasehold::{
    Fence, Holder, Name,
    engine::{
        Claim, Hold, Mode,
        voter::{Ballot, Record, Vote},
    },
    owner::{Owner, OwnerId},
};

use crate::node::{Moment, Nudge};

/// What a node knows. All of it is gone after an empty restart.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    pub(crate) keys: BTreeMap<Name, Key>,
    /// Readers by owner value. A name has a key or readers.
    pub(crate) readers: BTreeMap<Name, BTreeMap<String, Reading>>,
    pub(crate) fences: BTreeMap<Name, Fence>,
    /// The highest fence that a writer may have been given.
    pub(crate) written: BTreeMap<Name, Fence>,
    pub(crate) waiters: BTreeMap<Name, BTreeMap<(u64, String), Waiter>>,
    pub(crate) gone: BTreeMap<(Name, String), Duration>,
    pub(crate) record: Option<Record>,
    pub(crate) floor: Fence,
    pub(crate) highest: Fence,
}

#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) owner: String,
    pub(crate) expires_at: Duration,
}

#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) fence: Fence,
    pub(crate) expires_at: Duration,
}

#[derive(Clone)]
pub(crate) struct Waiter {
    id: OwnerId,
    pub(crate) mode: Mode,
    client: usize,
    pub(crate) holder: Holder,
    pub(crate) since: Duration,
    seen_at: Duration,
    silent_max: Duration,
}

impl Memory {
    pub(crate) fn drop_expired(&mut self, name: &Name, now: Moment) {
        if self.keys.get(name).is_some_and(|key| key.expires_at <= now.at) {
            self.keys.remove(name);
        }
        if let Some(readers) = self.readers.get_mut(name) {
            readers.retain(|_, reading| reading.expires_at > now.at);
            if readers.is_empty() {
                self.readers.remove(name);
            }
        }
    }

    /// The one that holds it alone.
    pub(crate) fn holder(&mut self, name: &Name, now: Moment) -> Option<&str> {
        self.drop_expired(name, now);
        self.keys.get(name).map(|key| key.owner.as_str())
    }

    pub(crate) fn fence(&self, name: &Name) -> Fence {
        self.fences.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn written(&self, name: &Name) -> Fence {
        self.written.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn raise(&mut self, name: &Name, fence: Fence, mode: Mode) {
        let raised = self.fence(name).max(fence);
        self.fences.insert(name.clone(), raised);
        if mode == Mode::Exclusive {
            self.written.insert(name.clone(), raised);
        }
        self.highest = self.highest.max(raised);
    }

    /// Moves the end of what this owner holds, and returns its fence.
    pub(crate) fn extend(&mut self, name: &Name, owner: &str, end: Duration) -> Option<Fence> {
        if let Some(reading) = self.readers.get_mut(name).and_then(|readers| readers.get_mut(owner)) {
            reading.expires_at = end;
            return Some(reading.fence);
        }
        self.keys.get_mut(name).filter(|key| key.owner == owner)?.expires_at = end;
        Some(self.fence(name))
    }

    pub(crate) fn put(&mut self, claim: &Claim, fence: Fence, end: Duration) {
        self.put_hold(&claim.hold(fence), end);
    }

    pub(crate) fn put_hold(&mut self, hold: &Hold, expires_at: Duration) {
        let (name, owner) = (hold.name.clone(), hold.owner.expose().to_owned());
        self.raise(&name, hold.fence, hold.mode);
        if hold.mode == Mode::Shared {
            self.readers.entry(name).or_default().insert(owner, Reading { fence: hold.fence, expires_at });
        } else {
            self.keys.insert(name, Key { owner, expires_at });
        }
    }

    /// Takes back what this owner holds. Returns whether it held anything.
    pub(crate) fn take_back(&mut self, name: &Name, owner: &Owner, now: Moment) -> bool {
        let is_key = self.holder(name, now) == Some(owner.expose());
        if is_key {
            self.keys.remove(name);
        }
        let readers = self.readers.get_mut(name);
        let is_reader = readers.is_some_and(|readers| readers.remove(owner.expose()).is_some());
        self.drop_expired(name, now);
        is_key || is_reader
    }

    /// Who is in the way, and until when.
    pub(crate) fn refusal(&self, name: &Name, now: Moment) -> Vote {
        let alone = self.keys.get(name).map(|key| (&key.owner, key.expires_at));
        let readers = self.readers.get(name);
        let last = readers.into_iter().flatten().map(|(owner, reading)| (owner, reading.expires_at));
        let held = alone.or(last.max_by_key(|(_, end)| *end));
        Vote::No {
            fence: self.fence(name),
            holder: held.map(|(owner, _)| Holder::parse(owner)),
            readers: readers.map_or(0, |readers| readers.len() as u32),
            expires_in: held.map(|(_, end)| end.saturating_sub(now.at)),
            ahead: self.waiting(name),
        }
    }

    /// Whether others wait who come before this claim: a reader only waits for writers.
    pub(crate) fn is_behind(&mut self, ballot: &Ballot, now: Moment) -> bool {
        let Claim { name, owner, mode, .. } = &ballot.claim;
        let reads = *mode == Mode::Shared;
        let others = self.live(name, now).take_while(|waiter| waiter.id != owner.id());
        let first = others.into_iter().find(|waiter| !reads || waiter.mode == Mode::Exclusive);
        first.is_some()
    }

    pub(crate) fn enqueue(&mut self, ballot: &Ballot, client: usize, now: Moment) {
        let claim = &ballot.claim;
        let line = self.waiters.entry(claim.name.clone()).or_default();
        let place = (ballot.arrival, claim.owner.expose().to_owned());
        let waiter = line.entry(place).or_insert_with(|| Waiter {
            id: claim.owner.id(),
            mode: claim.mode,
            client,
            holder: claim.owner.holder(),
            since: now.at,
            seen_at: now.at,
            silent_max: leasehold::engine::liveness(claim.queue.expect("it waits").poll_every),
        });
        waiter.seen_at = now.at;
    }

    /// Returns whether it waited.
    pub(crate) fn dequeue(&mut self, name: &Name, owner: &Owner) -> bool {
        let Some(line) = self.waiters.get_mut(name) else { return false };
        let before = line.len();
        line.retain(|(_, value), _| value != owner.expose());
        line.len() < before
    }

    pub(crate) fn waiting(&self, name: &Name) -> u32 {
        self.waiters.get(name).map_or(0, |line| line.len() as u32)
    }

    fn live(&mut self, name: &Name, now: Moment) -> impl Iterator<Item = &Waiter> {
        let line = self.waiters.entry(name.clone()).or_default();
        line.retain(|_, waiter| waiter.seen_at + waiter.silent_max > now.at);
        line.values()
    }

    /// Who is told to try: the first waiter or the run of readers that it begins; beside readers no writer.
    pub(crate) fn next(&mut self, name: &Name, beside_readers: bool, now: Moment) -> Vec<Nudge> {
        let mut line = self.live(name, now).peekable();
        let nudge = |waiter: &Waiter| Nudge { client: waiter.client, owner: waiter.id };
        if !beside_readers && let Some(writer) = line.next_if(|waiter| waiter.mode == Mode::Exclusive) {
            return vec![nudge(writer)];
        }
        line.take_while(|waiter| waiter.mode == Mode::Shared).map(nudge).collect()
    }
}
