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
    room: Mutex<Room>,
    reaper: Reaper,
    telemetry: Arc<Telemetry>,
}

#[derive(Default)]
struct Room {
    /// Without a claim it waits for a record, and leaves nothing behind in the store that must be ended.
    waiting: HashMap<OwnerId, (Option<Claim>, Arc<Slot>)>,
    ended: HashMap<OwnerId, Claim>,
    ended_order: VecDeque<OwnerId>,
}

#[derive(Default)]
struct Slot {
    news: Mutex<Option<News>>,
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
pub(crate) enum News {
    /// The lease was handed to it.
    Granted(Grant),
    /// It should claim again.
    LookAgain,
}

impl Slot {
    /// What a hand-over to this claim means. One whose start is not known is a hint: asking again refreshes the lease.
    fn handed_over(&self, claim: &Claim, fence: Fence, link: u64) -> News {
        let since = lock(&self.bound).and_then(|bound| bound.start_of(fence, link));
        since.map_or(News::LookAgain, |since| News::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 }))
    }

    fn put(&self, news: News) {
        let mut place = lock(&self.news);
        // A hint never replaces a grant.
        if !matches!((&*place, news), (Some(News::Granted(_)), News::LookAgain)) {
            *place = Some(news);
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
        Self { room: Mutex::default(), reaper, telemetry }
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
        lock(&self.room).waiting.insert(owner, (claim, slot.clone()));
        Ticket { waiting: self.clone(), owner, slot }
    }

    /// Ends every waiting attempt in the store and wakes it, so that its caller learns of it.
    pub(crate) fn end_all(&self) {
        for (claim, slot) in lock(&self.room).waiting.values_mut() {
            if let Some(claim) = claim.take() {
                slot.ended.store(true, Ordering::Relaxed);
                self.reaper.abandon(claim);
            }
            slot.put(News::LookAgain);
        }
    }

    /// Remembers an attempt that gave up: if the lock is handed to it after all, it must move on.
    pub(crate) fn ended(&self, claim: Claim) {
        let mut room = lock(&self.room);
        if room.ended_order.len() == ENDED_REMEMBERED
            && let Some(oldest) = room.ended_order.pop_front()
        {
            room.ended.remove(&oldest);
        }
        room.ended_order.push_back(claim.owner.id());
        room.ended.insert(claim.owner.id(), claim);
    }
}

impl WakeSink for Waiting {
    fn wake(&self, wake: Wake) {
        let room = lock(&self.room);
        match wake {
            Wake::Granted { owner, fence, link } => match room.waiting.get(&owner) {
                Some((Some(claim), slot)) => slot.put(slot.handed_over(claim, fence, link)),
                Some((None, slot)) => slot.put(News::LookAgain),
                None => {
                    if let Some(claim) = room.ended.get(&owner) {
                        self.reaper.abandon(claim.clone());
                    }
                }
            },
            Wake::LookAgain { owner } => {
                if let Some((_, slot)) = room.waiting.get(&owner) {
                    slot.put(News::LookAgain);
                }
            }
            Wake::LookAgainAll => room.waiting.values().for_each(|(_, slot)| slot.put(News::LookAgain)),
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
    /// The next news.
    ///
    /// # Cancel safety
    /// News stay until they are taken.
    pub(crate) async fn news(&self) -> News {
        loop {
            if let Some(news) = lock(&self.slot.news).take() {
                return news;
            }
            self.slot.changed.notified().await;
        }
    }

    /// Gives the place up; answers whether the client has ended the attempt before.
    pub(crate) fn leave(self) -> bool {
        let slot = self.slot.clone();
        drop(self);
        // Set with the room locked, and only of those in it.
        slot.ended.load(Ordering::Relaxed)
    }

    /// The store answered that the attempt is queued.
    pub(crate) fn queued(&self, bound: Bound) {
        *lock(&self.slot.bound) = Some(bound);
    }

    /// Forgets hints that were put before a claim: its answer is newer. A grant stays.
    pub(crate) fn forget_hints(&self) {
        let mut place = lock(&self.slot.news);
        if matches!(*place, Some(News::LookAgain)) {
            *place = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.waiting.room).waiting.remove(&self.owner);
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        clock::Clock,
        engine::{Answer, Engine, Queue, memory::Memory},
        name::Name,
        owner::{Holder, Owner},
    };

    #[tokio::test]
    async fn a_lock_handed_to_an_attempt_that_gave_up_moves_on() {
        let engine: Arc<dyn Engine> = Arc::new(Memory::open("", Clock::system()));
        let soon = || Clock::system().now() + Duration::from_secs(10);
        let claim = Claim {
            name: Name::new("x").unwrap(),
            owner: Owner::new(1, &Holder::Foreign),
            mode: crate::engine::Mode::Exclusive,
            ttl: Duration::from_secs(60),
            lock_delay: Duration::ZERO,
            queue: Some(Queue { wait: Duration::from_secs(60), poll_every: Duration::from_secs(5) }),
            acks: crate::engine::Acks::None,
        };
        let Ok(Answer::Granted(grant)) = engine.leases().claim(&claim, soon()).await else {
            panic!("it was free")
        };
        let reaper = Reaper::start(engine.clone(), Clock::system(), Duration::from_secs(2));
        let waiting = Waiting::new(reaper.clone(), Arc::new(Telemetry::new(None)));
        waiting.ended(claim.clone());
        waiting.wake(Wake::Granted { owner: claim.owner.id(), fence: grant.fence, link: 0 });
        reaper.drained().await;
        assert_eq!(engine.inspector().inspect(&claim.name, soon()).await.unwrap().held(), None);
    }

    #[test]
    fn a_lease_that_was_handed_over_began_after_the_last_answer_over_the_same_link_with_a_lower_fence() {
        let asked_at = BootInstant::from_nanos(5_000);
        let bound = Bound { link: 1, last: Fence::new(10), asked_at };
        assert_eq!(bound.start_of(Fence::new(11), 1), Some(asked_at));
        assert_eq!(bound.start_of(Fence::new(10), 1), None);
        assert_eq!(bound.start_of(Fence::new(11), 2), None);
    }
}
