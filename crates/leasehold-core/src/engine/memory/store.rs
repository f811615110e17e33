//! The state behind `memory:` and its atomic operations. Pure: the time comes with each call.

use std::{collections::BTreeMap, sync::Weak};

use super::{deadlines::Pools, records::RecordStore};
pub(super) use crate::clock::Now;
use crate::{
    decide::lock,
    engine::{
        Answer, Claim, Cursor, EngineError, Handover, Hold, Inspection, Page, Released, Renewed, Wake,
        WakeSink,
        registry::{EndedAttempts, ended_error},
    },
    fence::Fence,
    name::Name,
    owner::OwnerId,
};

const SWEEP_EVERY_CLAIMS: u64 = 4096;

/// A wake-up, and where it goes.
pub(super) type Woken = (Weak<dyn WakeSink>, Wake);
pub(super) type Lock = lock::Lock<Weak<dyn WakeSink>>;

#[derive(Default)]
pub(super) struct Store {
    // Ordered, so that scans have a cursor and nothing depends on a hash's order.
    locks: BTreeMap<Name, Lock>,
    /// The highest fence of the names that were forgotten.
    floor: Fence,
    claims: u64,
    pub(super) ended: EndedAttempts,
    wakes: Vec<Woken>,
    pub(super) records: RecordStore,
    pub(super) pools: Pools,
}

impl Store {
    pub(super) fn names_in_use(&self, now: Now) -> usize {
        self.locks.values().filter(|lock| lock.is_in_use(now.boot)).count()
    }

    pub(super) fn take_wakes(&mut self) -> Vec<Woken> {
        self.wakes.drain(..).chain(self.records.wakes.drain(..)).collect()
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
            self.forget_unused(now);
        }
        let floor = self.floor;
        let lock = self.locks.entry(claim.name.clone()).or_insert_with(|| Lock::new(Handover::Push, floor));
        self.wakes.extend(hand_over(lock, Some(claim.owner.id()), now)?);
        lock.claim(claim, now.boot, sink, now)
    }

    pub(super) fn renew(&mut self, hold: &Hold, now: Now) -> Renewed {
        let is_kept = self.locks.get_mut(&hold.name).is_some_and(|lock| lock.renew(hold, now.boot));
        if is_kept { Renewed::Kept { since: now.boot } } else { Renewed::Gone }
    }

    /// Frees a lock, if `free` finds it the one that is meant, for the next waiter.
    pub(super) fn release(
        &mut self,
        name: &Name,
        now: Now,
        free: impl FnOnce(&mut Lock) -> bool,
    ) -> Result<Released, EngineError> {
        let Some(lock) = self.locks.get_mut(name) else { return Ok(Released::Expired) };
        let was_ours = free(lock);
        self.wakes.extend(hand_over(lock, None, now)?);
        Ok(lock.released(was_ours, now.boot))
    }

    pub(super) fn inspect(&self, name: &Name, now: Now) -> Inspection {
        let unused = || Inspection::unused(name.clone());
        self.locks.get(name).map_or_else(unused, |lock| lock.inspect(name, now.boot))
    }

    pub(super) fn scan(&self, prefix: &str, from: Option<&Cursor>, limit: u32, now: Now) -> Page<Inspection> {
        let after = from.map_or("", Cursor::as_str);
        let locks = self.locks.iter().filter(|(name, lock)| {
            name.as_str().starts_with(prefix) && name.as_str() > after && lock.is_in_use(now.boot)
        });
        Page::first(locks.map(|(name, lock)| lock.inspect(name, now.boot)), limit, |lock| lock.name.as_str())
    }

    /// Leases that ran out and that nobody asks for again would stay forever otherwise.
    fn forget_unused(&mut self, now: Now) {
        self.locks.retain(|_, lock| {
            drop_unreachable(lock, now);
            let is_kept = lock.holder(now.boot).is_some() || !lock.queue.is_empty();
            if !is_kept {
                self.floor = self.floor.max(lock.last);
            }
            is_kept
        });
    }
}

/// Hands a free lock to the first live waiter, unless that is the one who asks.
fn hand_over(lock: &mut Lock, asks: Option<OwnerId>, now: Now) -> Result<Option<Woken>, EngineError> {
    drop_unreachable(lock, now);
    if lock.in_turn(now.boot).next().is_some_and(|next| Some(next.owner.id()) == asks) {
        return Ok(None);
    }
    let next = lock.hand_over(now)?;
    Ok(next.map(|next| (next.wake, Wake::Granted { owner: next.owner.id(), fence: lock.last, link: 0 })))
}

/// Waiters whose client is gone or whose time limit has passed never claim again.
fn drop_unreachable(lock: &mut Lock, now: Now) {
    lock.queue.retain(|waiter| waiter.wake.strong_count() > 0 && waiter.gives_up > now.boot);
}
