//! Latches and barriers of `memory:`. Pure: the time comes with each call, the deciding is that of all stores.

use std::collections::BTreeMap;

use super::{Memory, Store, Woken, watchers::Watchers};
use crate::{
    clock::{BootInstant, Now, Until},
    decide::latch::{self, Found, Latch, Party},
    engine::{
        EngineError, Fut, Hold,
        latches::{Answer, KEPT, Latches, PARTIES_SHOWN, ParticipantInfo, Request, Snapshot},
    },
    name::Name,
    owner::{Holder, Owner, OwnerId},
};

const SWEEP_EVERY_ASKED: u64 = 4096;

#[derive(Default)]
pub(super) struct LatchStore {
    entries: BTreeMap<Name, Entry>,
    asked: u64,
    pub(super) wakes: Vec<Woken>,
}

struct Entry {
    latch: Latch,
    parties: BTreeMap<OwnerId, (Owner, Party)>,
    watchers: Watchers,
    used_at: BootInstant,
}

impl Entry {
    fn first(&self) -> Option<(BootInstant, Holder)> {
        let ends = self.parties.values().filter_map(|(owner, party)| Some((party.ends?, owner)));
        ends.min_by_key(|(ends, _)| *ends).map(|(ends, owner)| (ends, owner.holder()))
    }
}

impl LatchStore {
    fn found(&self, name: &Name, owner: Option<OwnerId>) -> Found {
        let Some(entry) = self.entries.get(name) else { return Found::default() };
        let me = owner.and_then(|owner| entry.parties.get(&owner)).map(|(_, party)| *party);
        Found { latch: Some(entry.latch.clone()), me, first: entry.first() }
    }

    fn ask(&mut self, request: &Request, memory: &Memory, now: Now) -> Result<Answer, EngineError> {
        self.asked += 1;
        if self.asked.is_multiple_of(SWEEP_EVERY_ASKED) {
            self.entries.retain(|_, entry| now.boot < entry.used_at + KEPT);
        }
        let (Request { name, owner, .. }, id) = (request, request.owner.id());
        let decided = latch::decide(self.found(name, Some(id)), request, now)?;
        let Some(latch) = decided.latch else { return Ok(decided.answer) };
        let (parties, watchers) = (BTreeMap::new(), Watchers::default());
        let new = || Entry { latch: latch.clone(), parties, watchers, used_at: now.boot };
        let entry = self.entries.entry(name.clone()).or_insert_with(new);
        (entry.latch, entry.used_at) = (latch, now.boot);
        if decided.clears {
            entry.parties.clear();
        }
        match decided.me {
            Some(me) => drop(entry.parties.insert(id, (owner.clone(), me))),
            None => drop(entry.parties.remove(&id)),
        }
        if decided.tells {
            entry.watchers.tell(&mut self.wakes);
        }
        if decided.watches {
            entry.watchers.watch(id, memory.sink(), now.boot);
        }
        Ok(decided.answer)
    }

    /// Whether the participant was renewed.
    pub(super) fn renew(&mut self, hold: &Hold, now: Now) -> bool {
        let found = self.found(&hold.name, Some(hold.owner.id()));
        let renewed = latch::renew(&found, now.boot + hold.ttl, now.boot);
        let entry = self.entries.get_mut(&hold.name);
        renewed
            .zip(entry)
            .map(|(party, entry)| {
                entry.used_at = now.boot;
                entry.parties.insert(hold.owner.id(), (hold.owner.clone(), party));
            })
            .is_some()
    }

    fn inspect(&self, name: &Name, now: BootInstant) -> Option<Snapshot> {
        let entry = self.entries.get(name)?;
        let seen = latch::inspect(name, self.found(name, None), now)?;
        let show = |(owner, party): &(Owner, Party)| {
            let counted = party.arrived == seen.generation;
            ParticipantInfo::new(owner.holder(), counted, party.ends.map(|ends| ends.since(now)))
        };
        let shown = seen.joined.min(PARTIES_SHOWN) as usize;
        Some(Snapshot { participants: entry.parties.values().take(shown).map(show).collect(), ..seen })
    }
}

impl Latches for Memory {
    fn ask<'a>(&'a self, request: &'a Request, _: Until) -> Fut<'a, Answer> {
        self.fallible(|Store { latches, .. }, now| latches.ask(request, self, now))
    }

    fn state<'a>(&'a self, name: &'a Name, _: Until) -> Fut<'a, Option<Snapshot>> {
        self.atomic(|store, now| store.latches.inspect(name, now.boot))
    }
}
