//! Records of `memory:`. Pure: the time comes with each call, the deciding is that of all stores.

use std::{collections::BTreeMap, time::Duration};

use super::{Memory, Store, Woken, watchers::Watchers};
use crate::{
    clock::{BootInstant, Now, Until},
    engine::{
        Cursor, Fut, Grant, Hold, Page,
        records::{
            Begin, Begun, MARK, MarkOp, Record, Records, Settle, Settled,
            decide::{self, Beginning},
        },
    },
    fence::Fence,
    name::Name,
};

const SWEEP_EVERY_WRITES: u64 = 4096;
/// How long the last fence of a key is remembered after its record is over.
const LAST_REMEMBERED: Duration = Duration::from_secs(86_400);

#[derive(Default)]
pub(super) struct RecordStore {
    entries: BTreeMap<Name, Entry>,
    // One counter for all keys: a key that nobody uses needs no memory of its own.
    fence: u64,
    writes: u64,
    pub(super) wakes: Vec<Woken>,
}

/// It outlives its text, so that an execution that ends late is known to have been the last one.
struct Entry {
    text: Option<Vec<u8>>,
    until: BootInstant,
    last: Option<Fence>,
    watchers: Watchers,
}

impl Entry {
    fn found(&self, now: BootInstant) -> Option<&[u8]> {
        self.text.as_deref().filter(|_| now < self.until)
    }
}

impl RecordStore {
    /// Whether it was still running.
    pub(super) fn renew(&mut self, hold: &Hold, now: Now) -> bool {
        let entry = self.entries.get_mut(&hold.name);
        let runs = entry.filter(|entry| decide::is_run_by(entry.found(now.boot), &hold.owner));
        runs.map(|entry| entry.until = now.boot + hold.ttl).is_some()
    }

    fn mark(&mut self, key: &Name, op: MarkOp, now: Now) -> bool {
        let entry = self.entries.get(key);
        let last = entry.and_then(|entry| entry.last);
        let answer = decide::mark(entry.and_then(|entry| entry.found(now.boot)), op);
        match op {
            MarkOp::Set(ttl) | MarkOp::SetIfAbsent(ttl) if answer => {
                self.write(key, MARK.to_vec(), ttl, last, now);
            }
            MarkOp::Clear if answer => drop(self.remove(key, now)),
            _ => {}
        }
        answer
    }

    fn remove(&mut self, key: &Name, now: Now) -> bool {
        self.wake(key);
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let found = entry.found(now.boot).is_some();
        if entry.last.is_none() {
            self.entries.remove(key);
        } else {
            entry.text = None;
        }
        found
    }

    fn read(&self, key: &Name, now: Now) -> Option<Record> {
        let entry = self.entries.get(key)?;
        let content = decide::content(entry.found(now.boot)?);
        Some(Record { key: key.clone(), content, expires_in: Some(entry.until.since(now.boot)) })
    }

    fn write(&mut self, key: &Name, text: Vec<u8>, lasts: Duration, last: Option<Fence>, now: Now) {
        self.writes += 1;
        if self.writes.is_multiple_of(SWEEP_EVERY_WRITES) {
            self.entries.retain(|_, entry| {
                entry.text.take_if(|_| now.boot >= entry.until);
                // Until nobody can come late for it.
                let remembered = if entry.last.is_none() { Duration::ZERO } else { LAST_REMEMBERED };
                now.boot < entry.until + remembered
            });
        }
        let watchers = self.entries.remove(key).map_or_else(Watchers::default, |entry| entry.watchers);
        let entry = Entry { text: Some(text), until: now.boot + lasts, last, watchers };
        self.entries.insert(key.clone(), entry);
    }

    /// Tells all who wait for a key to look again.
    fn wake(&mut self, key: &Name) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.watchers.tell(&mut self.wakes);
        }
    }
}

impl Records for Memory {
    fn begin<'a>(&'a self, begin: &'a Begin, _: Until) -> Fut<'a, Begun> {
        self.fallible(|Store { records, .. }, now| {
            let entry = records.entries.get_mut(&begin.key);
            let expires_in = entry.as_ref().map_or(Duration::ZERO, |entry| entry.until.since(now.boot));
            let found = entry.as_ref().and_then(|entry| entry.found(now.boot));
            let fence = match decide::begin(found, expires_in, begin)? {
                Beginning::Take => {
                    records.fence = (records.fence + 1).max(now.wall_us);
                    Fence::new(records.fence)
                }
                Beginning::Refresh(fence) => fence,
                Beginning::Answer(answer) => {
                    if let (true, Begun::Running { .. }, Some(entry)) = (begin.wake, &answer, entry) {
                        entry.watchers.watch(begin.owner.id(), self.sink(), now.boot);
                    }
                    return Ok(answer);
                }
            };
            records.write(&begin.key, begin.text(fence), begin.lease, Some(fence), now);
            Ok(Begun::Yours(Grant { fence, since: now.boot, ttl: begin.lease, acks: 0 }))
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle, _: Until) -> Fut<'a, Settled> {
        self.fallible(|Store { records, .. }, now| {
            let key = &settle.hold.name;
            let entry = records.entries.get(key);
            let found = entry.and_then(|entry| entry.found(now.boot));
            if let Some(answer) = decide::settle(found, entry.and_then(|entry| entry.last), settle)? {
                return Ok(answer);
            }
            match settle.text() {
                None => drop(records.remove(key, now)),
                Some(text) => {
                    records.wake(key);
                    records.write(key, text, settle.keep, Some(settle.hold.fence), now);
                }
            }
            Ok(Settled::Stored)
        })
    }

    fn on_marks<'a>(&'a self, keys: &'a [Name], op: MarkOp, _: Until) -> Fut<'a, Vec<bool>> {
        self.atomic(|store, now| keys.iter().map(|key| store.records.mark(key, op, now)).collect())
    }

    fn read<'a>(&'a self, key: &'a Name, _: Until) -> Fut<'a, Option<Record>> {
        self.atomic(|store, now| store.records.read(key, now))
    }

    fn remove<'a>(&'a self, key: &'a Name, _: Until) -> Fut<'a, bool> {
        self.atomic(|store, now| store.records.remove(key, now))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        _: Until,
    ) -> Fut<'a, Page<Record>> {
        let after = from.as_ref().map_or("", Cursor::as_str);
        self.atomic(|Store { records, .. }, now| {
            let is_asked_for = |key: &str| key.starts_with(prefix) && key > after;
            let keys = records.entries.keys().filter(|key| is_asked_for(key.as_str()));
            Page::first(keys.filter_map(|key| records.read(key, now)), limit, |record| record.key.as_str())
        })
    }
}
