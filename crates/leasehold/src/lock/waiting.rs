//! Who waits in this client, and where wake-ups for them go.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    clock::BootInstant,
    engine::{Claim, Grant, LinkChange, Wake, WakeSink},
    fence::Fence,
    lease::Reaper,
    owner::OwnerId,
    telemetry::{Count, Event, Telemetry},
};

/// Ended attempts that are remembered, so that a late hand-over to one of them is given on.
const ENDED_REMEMBERED: usize = 10_000;

/// The client's side of wake-ups.
pub(crate) struct Waiting {
    registry: Mutex<Registry>,
    reaper: Reaper,
    telemetry: Arc<Telemetry>,
}

#[derive(Default)]
struct Registry {
    /// Without a claim it waits for a record, and leaves nothing behind in the store that must be ended.
    waiting: HashMap<OwnerId, (Option<Claim>, Arc<Slot>)>,
    ended: HashMap<OwnerId, Claim>,
    ended_order: VecDeque<OwnerId>,
}

#[derive(Default)]
struct Slot {
    notification: Mutex<Option<Notification>>,
    changed: Notify,
    bound: Mutex<Option<Bound>>,
    /// The client was closed, and has ended the attempt.
    ended: AtomicBool,
}

/// A lease handed over under a fence above `last` cannot have begun before `asked_at`: then the store still answered
/// "queued", and `last` was its last fence. It holds for messages over the same link, thus of the same run of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) link: u64,
    pub(crate) last: Fence,
    pub(crate) asked_at: BootInstant,
}

impl Bound {
    /// Since when a lease is trusted that was handed over by this message; `None` if its start is not known.
    fn start_of(&self, fence: Fence, link: u64) -> Option<BootInstant> {
        (link == self.link && fence > self.last).then_some(self.asked_at)
    }
}

/// What a waiting attempt is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notification {
    /// The lease was handed to it.
    Granted(Grant),
    /// It should claim again.
    LookAgain,
}

impl Slot {
    /// What a hand-over to this claim means. One whose start is not known is a hint: asking again refreshes the lease.
    fn handed_over(&self, claim: &Claim, fence: Fence, link: u64) -> Notification {
        let since = lock(&self.bound).and_then(|bound| bound.start_of(fence, link));
        since.map_or(Notification::LookAgain, |since| {
            Notification::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 })
        })
    }

    fn put(&self, notification: Notification) {
        let mut place = lock(&self.notification);
        // A hint never replaces a grant.
        if !matches!((&*place, notification), (Some(Notification::Granted(_)), Notification::LookAgain)) {
            *place = Some(notification);
        }
        drop(place);
        self.changed.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    pub(crate) fn new(reaper: Reaper, telemetry: Arc<Telemetry>) -> Self {
        Self { registry: Mutex::default(), reaper, telemetry }
    }

    /// Takes a place before the first claim leaves, so that no wake-up can be missed.
    pub(crate) fn enter(self: &Arc<Self>, claim: &Claim) -> Ticket {
        self.place(claim.owner.id(), Some(claim.clone()))
    }

    /// Takes a place for hints only.
    pub(crate) fn listen(self: &Arc<Self>, owner: OwnerId) -> Ticket {
        self.place(owner, None)
    }

    fn place(self: &Arc<Self>, owner: OwnerId, claim: Option<Claim>) -> Ticket {
        let slot = Arc::<Slot>::default();
        lock(&self.registry).waiting.insert(owner, (claim, slot.clone()));
        Ticket { waiting: self.clone(), owner, slot }
    }

    /// Ends every waiting attempt in the store and wakes it, so that its caller learns of it.
    pub(crate) fn end_all(&self) {
        for (claim, slot) in lock(&self.registry).waiting.values_mut() {
            if let Some(claim) = claim.take() {
                slot.ended.store(true, Ordering::Relaxed);
                self.reaper.abandon(claim);
            }
            slot.put(Notification::LookAgain);
        }
    }

    /// Remembers an attempt that gave up: if the lock is handed to it after all, it must move on.
    pub(crate) fn ended(&self, claim: Claim) {
        let mut registry = lock(&self.registry);
        if registry.ended_order.len() == ENDED_REMEMBERED
            && let Some(oldest) = registry.ended_order.pop_front()
        {
            registry.ended.remove(&oldest);
        }
        registry.ended_order.push_back(claim.owner.id());
        registry.ended.insert(claim.owner.id(), claim);
    }
}

impl WakeSink for Waiting {
    fn wake(&self, wake: Wake) {
        let registry = lock(&self.registry);
        match wake {
            Wake::Granted { owner, fence, link } => match registry.waiting.get(&owner) {
                Some((Some(claim), slot)) => slot.put(slot.handed_over(claim, fence, link)),
                Some((None, slot)) => slot.put(Notification::LookAgain),
                None => {
                    if let Some(claim) = registry.ended.get(&owner) {
                        self.reaper.abandon(claim.clone());
                    }
                }
            },
            Wake::LookAgain { owner } => {
                if let Some((_, slot)) = registry.waiting.get(&owner) {
                    slot.put(Notification::LookAgain);
                }
            }
            Wake::LookAgainAll => {
                registry.waiting.values().for_each(|(_, slot)| slot.put(Notification::LookAgain))
            }
        }
    }

    fn link(&self, change: LinkChange) {
        match change {
            LinkChange::Connected => {
                tracing::debug!("connected to the store");
                self.telemetry.tell(|| Event::Connected);
            }
            LinkChange::Disconnected { why } => {
                self.telemetry.count(Count::disconnected);
                tracing::warn!(%why, "lost the connection to the store");
                self.telemetry.tell(|| Event::Disconnected { why });
            }
        }
    }
}

/// A waiting attempt's place; leaves when dropped.
pub(crate) struct Ticket {
    waiting: Arc<Waiting>,
    owner: OwnerId,
    slot: Arc<Slot>,
}

impl Ticket {
    /// The next notification.
    ///
    /// # Cancel safety
    /// A notification stays until it is taken.
    pub(crate) async fn notified(&self) -> Notification {
        loop {
            if let Some(notification) = lock(&self.slot.notification).take() {
                return notification;
            }
            self.slot.changed.notified().await;
        }
    }

    /// Gives the place up; answers whether the client has ended the attempt before.
    pub(crate) fn leave(self) -> bool {
        let slot = self.slot.clone();
        drop(self);
        // Set with the registry locked, and only of those in it.
        slot.ended.load(Ordering::Relaxed)
    }

    /// The store answered that the attempt is queued.
    pub(crate) fn queued(&self, bound: Bound) {
        *lock(&self.slot.bound) = Some(bound);
    }

    /// Forgets hints that were put before a claim: its answer is newer. A grant stays.
    pub(crate) fn forget_hints(&self) {
        let mut place = lock(&self.slot.notification);
        if matches!(*place, Some(Notification::LookAgain)) {
            *place = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.waiting.registry).waiting.remove(&self.owner);
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
