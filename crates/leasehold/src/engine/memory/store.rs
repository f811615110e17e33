//! The state behind `memory:` and its atomic operations; `decide::lock` decides. Pure: the time comes with each call.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Weak,
};

use super::{deadlines::Pools, records::RecordStore};
use crate::{
    clock::BootInstant,
    decide::lock::{self, Claimed, Ended, Lease, View},
    engine::{
        Answer, Claim, Cursor, EngineError, Grant, Hold, Holders, Inspection, Mode, Page, Released, Renewed,
        Tenure, WAITERS_SHOWN, Waiter, Wake, WakeSink, liveness,
        registry::{EndedAttempts, ended_error},
    },
    fence::Fence,
    name::Name,
    owner::Owner,
};

const SWEEP_EVERY_CLAIMS: u64 = 4096;

#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) boot: BootInstant,
    pub(super) wall_us: u64,
}

/// A wake-up, and where it goes.
type Woken = (Weak<dyn WakeSink>, Wake);

#[derive(Default)]
pub(super) struct Store {
    // Ordered, so that scans have a cursor and nothing depends on a hash's order.
    entries: BTreeMap<Name, Entry>,
    // One counter for all names: a name that nobody uses needs no memory of its own.
    fence: u64,
    claims: u64,
    pub(super) ended: EndedAttempts,
    wakes: Vec<Woken>,
    pub(super) records: RecordStore,
    pub(super) pools: Pools,
}

#[derive(Default)]
struct Entry {
    held: Option<Held>,
    queue: VecDeque<Waiting>,
}

struct Held {
    owner: Owner,
    fence: Fence,
    closed_until: BootInstant,
}

impl Held {
    fn lease(&self) -> Lease {
        Lease { owner: self.owner.id(), fence: self.fence, closed_until: self.closed_until }
    }

    fn tenure(&self, now: BootInstant) -> Tenure {
        Tenure {
            holder: self.owner.holder(),
            fence: self.fence,
            mode: Mode::Exclusive,
            expires_in: Some(self.closed_until.since(now)),
        }
    }
}

struct Waiting {
    claim: Claim,
    arrived: BootInstant,
    seen: BootInstant,
    sink: Weak<dyn WakeSink>,
}

impl Waiting {
    fn is_live(&self, now: BootInstant) -> bool {
        self.claim.queue.is_some_and(|queue| {
            now < self.arrived + queue.wait && now.since(self.seen) <= liveness(queue.poll_every)
        }) && self.sink.strong_count() > 0
    }
}

impl Store {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn take_wakes(&mut self) -> Vec<Woken> {
        let mut wakes = std::mem::take(&mut self.wakes);
        wakes.append(&mut self.records.take_wakes());
        wakes
    }

    pub(super) fn claim(
        &mut self,
        claim: &Claim,
        sink: Weak<dyn WakeSink>,
        now: Now,
    ) -> Result<Answer, EngineError> {
        if self.ended.contains(claim.owner.id()) {
            return Err(ended_error());
        }
        self.claims += 1;
        if self.claims.is_multiple_of(SWEEP_EVERY_CLAIMS) {
            self.sweep(now.boot);
        }
        let entry = self.entries.entry(claim.name.clone()).or_default();
        entry.expire(now.boot);
        loop {
            let position = entry.queue.iter().position(|waiting| waiting.claim.owner == claim.owner);
            let ahead = position.unwrap_or(entry.queue.len()) as u32;
            let view = View {
                holder: entry.held.as_ref().map(Held::lease),
                free_since: now.boot,
                ahead,
                turns: None,
                is_queued: position.is_some(),
            };
            let granted = |fence| Grant { fence, since: now.boot, ttl: claim.ttl, acks: 0 };
            let decided = lock::claim(&view, claim, now.boot)?;
            let holders = Holders::from(entry.held.as_ref().map(|held| held.tenure(now.boot)));
            match (decided, &mut entry.held) {
                (Claimed::HandOver, _) => self.wakes.extend(entry.hand_over(&mut self.fence, now)?),
                (Claimed::Refresh(fence), Some(held)) => {
                    held.closed_until = lock::closed_until(now.boot, claim.ttl, claim.lock_delay);
                    return Ok(Answer::Granted(granted(fence)));
                }
                (Claimed::Grant | Claimed::Refresh(_), _) => {
                    entry.queue.retain(|waiting| waiting.claim.owner != claim.owner);
                    return Ok(Answer::Granted(granted(entry.grant(claim, &mut self.fence, now)?)));
                }
                (Claimed::Refuse { .. }, _) => return Ok(Answer::Busy { holders }),
                (Claimed::Queue { .. }, _) => {
                    match position {
                        Some(position) => entry.queue[position].seen = now.boot,
                        None => entry.queue.push_back(Waiting {
                            claim: claim.clone(),
                            arrived: now.boot,
                            seen: now.boot,
                            sink,
                        }),
                    }
                    return Ok(Answer::Queued { ahead, holders, last: Fence::new(self.fence), link: 0 });
                }
            }
        }
    }

    pub(super) fn renew(&mut self, hold: &Hold, now: Now) -> Renewed {
        let held = self.entries.get_mut(&hold.name).and_then(|entry| {
            entry.expire(now.boot);
            entry.held.as_mut().filter(|held| lock::is_held(Some(&held.lease()), hold))
        });
        match held {
            Some(held) => {
                held.closed_until = lock::closed_until(now.boot, hold.ttl, hold.lock_delay);
                Renewed::Kept { since: now.boot }
            }
            None => Renewed::Gone,
        }
    }

    /// Release and abandon: leaves the queue, and gives back what is held.
    pub(super) fn release(&mut self, name: &Name, owner: &Owner, now: Now) -> Result<Released, EngineError> {
        self.end(name, now, |entry| {
            entry.queue.retain(|waiting| waiting.claim.owner != *owner);
            lock::end(entry.lease().as_ref(), owner.id())
        })
    }

    pub(super) fn force_release(
        &mut self,
        name: &Name,
        seen: Fence,
        now: Now,
    ) -> Result<Released, EngineError> {
        self.end(name, now, |entry| lock::force(entry.lease().as_ref(), seen))
    }

    fn end(
        &mut self,
        name: &Name,
        now: Now,
        decide: impl FnOnce(&mut Entry) -> Ended,
    ) -> Result<Released, EngineError> {
        let Some(entry) = self.entries.get_mut(name) else { return Ok(Released::Expired) };
        entry.expire(now.boot);
        let ended = decide(entry);
        let next = match ended {
            Ended::Taken(_) => None,
            Ended::Ours | Ended::Free => {
                entry.held = None;
                self.wakes.extend(entry.hand_over(&mut self.fence, now)?);
                entry.held.as_ref().map(|next| next.fence)
            }
        };
        self.forget_if_unused(name);
        Ok(ended.outcome(next.map(Some)))
    }

    pub(super) fn inspect(&mut self, name: &Name, now: Now) -> Inspection {
        match self.entries.get_mut(name) {
            None => Inspection::unused(name.clone()),
            Some(entry) => entry.inspect(name, now.boot),
        }
    }

    pub(super) fn scan(
        &mut self,
        prefix: &str,
        from: Option<&Cursor>,
        limit: u32,
        now: Now,
    ) -> Page<Inspection> {
        let after = from.map(Cursor::as_str);
        let mut items = Vec::new();
        for (name, entry) in &mut self.entries {
            if !name.as_str().starts_with(prefix) || after.is_some_and(|after| name.as_str() <= after) {
                continue;
            }
            let found = entry.inspect(name, now.boot);
            if !found.is_in_use() {
                continue;
            }
            if items.len() == limit as usize {
                let last: &Inspection = &items[items.len() - 1];
                let next = Some(Cursor::new(last.name.as_str()));
                return Page { items, next };
            }
            items.push(found);
        }
        Page { items, next: None }
    }

    /// Leases that ran out and that nobody asks for again would stay forever otherwise.
    fn sweep(&mut self, now: BootInstant) {
        self.entries.retain(|_, entry| {
            entry.expire(now);
            entry.held.is_some() || !entry.queue.is_empty()
        });
    }

    fn forget_if_unused(&mut self, name: &Name) {
        if self.entries.get(name).is_some_and(|entry| entry.held.is_none() && entry.queue.is_empty()) {
            self.entries.remove(name);
        }
    }
}

impl Entry {
    fn expire(&mut self, now: BootInstant) {
        if self.held.as_ref().is_some_and(|held| held.closed_until <= now) {
            self.held = None;
        }
    }

    fn lease(&self) -> Option<Lease> {
        self.held.as_ref().map(Held::lease)
    }

    fn grant(&mut self, claim: &Claim, last: &mut u64, now: Now) -> Result<Fence, EngineError> {
        let fence = lock::next_fence(*last, now.wall_us)?;
        *last = fence.get();
        let closed_until = lock::closed_until(now.boot, claim.ttl, claim.lock_delay);
        self.held = Some(Held { owner: claim.owner.clone(), fence, closed_until });
        Ok(fence)
    }

    /// Gives a free lock to the first live waiter.
    fn hand_over(&mut self, last: &mut u64, now: Now) -> Result<Option<Woken>, EngineError> {
        while let Some(next) = self.queue.pop_front() {
            if next.is_live(now.boot) {
                let fence = self.grant(&next.claim, last, now)?;
                let owner = next.claim.owner.id();
                return Ok(Some((next.sink, Wake::Granted { owner, fence, link: 0 })));
            }
        }
        Ok(None)
    }

    fn inspect(&mut self, name: &Name, now: BootInstant) -> Inspection {
        self.expire(now);
        self.queue.retain(|waiting| waiting.is_live(now));
        let show = |waiting: &Waiting| Waiter {
            holder: waiting.claim.owner.holder(),
            mode: waiting.claim.mode,
            waiting_for: now.since(waiting.arrived),
        };
        Inspection {
            name: name.clone(),
            holders: self.held.as_ref().map(|held| held.tenure(now)).into(),
            waiters: self.queue.iter().take(WAITERS_SHOWN as usize).map(show).collect(),
            waiting: self.queue.len() as u32,
        }
    }
}
