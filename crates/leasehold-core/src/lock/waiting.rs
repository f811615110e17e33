//! Which attempts of this client wait, and where wake-ups for them go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::{
    clock::BootInstant,
    engine::{Claim, Grant, LinkChange, LossHint, Wake, WakeSink, registry::EndedAttempts},
    fence::Fence,
    lease::{Cleanup, Keeper, Reaper},
    owner::{OwnerId, OwnerMap},
    telemetry::{Count, Event, Telemetry},
};

/// The client's side of wake-ups.
pub(crate) struct Waiting {
    registry: Mutex<Registry>,
    reaper: Reaper,
    keeper: Arc<Keeper>,
    telemetry: Arc<Telemetry>,
}

#[derive(Default)]
struct Registry {
    waiting: OwnerMap<Arc<WaitingAttempt>>,
    /// A late hand-over to one of them is given on.
    ended: EndedAttempts<Claim>,
}

struct WaitingAttempt {
    claim: Option<Claim>,
    heard: Mutex<Heard>,
    notify: Notify,
}

/// What was heard of an attempt since it began.
#[derive(Default)]
struct Heard {
    bound: Option<Bound>,
    notification: Option<Notification>,
    /// The client was closed, and has ended the attempt.
    ended: bool,
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

/// What a waiting attempt is woken with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Notification {
    /// The lease was handed to it.
    Granted(Grant),
    /// It should claim again.
    LookAgain,
}

impl WaitingAttempt {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A hand-over whose start is not known is a hint: asking again refreshes the lease.
    fn hand_over(&self, fence: Fence, link: u64) {
        let mut heard = self.heard();
        let since = heard.bound.and_then(|bound| bound.start_of(fence, link));
        let (Some(claim), Some(since)) = (&self.claim, since) else {
            drop(heard);
            return self.hint();
        };
        heard.notification = Some(Notification::Granted(Grant { fence, since, ttl: claim.ttl, acks: 0 }));
        self.notify.notify_one();
    }

    /// Never replaces a grant.
    fn hint(&self) {
        self.heard().notification.get_or_insert(Notification::LookAgain);
        self.notify.notify_one();
    }
}

impl Waiting {
    pub(crate) fn new(reaper: Reaper, keeper: Arc<Keeper>, telemetry: Arc<Telemetry>) -> Self {
        Self { registry: Mutex::default(), reaper, keeper, telemetry }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an attempt before its first claim leaves, so that no wake-up can be missed. Without a claim it waits for a
    /// record: for hints only, and it leaves nothing behind in the store that must be ended.
    pub(crate) fn enter(&self, owner: OwnerId, claim: Option<Claim>) -> Ticket<'_> {
        let attempt = Arc::new(WaitingAttempt { claim, heard: Mutex::default(), notify: Notify::new() });
        self.registry().waiting.insert(owner, attempt.clone());
        Ticket { waiting: self, owner, attempt }
    }

    /// Ends every waiting attempt in the store and wakes it, so that its caller learns of it.
    pub(crate) fn end_all(&self) {
        for attempt in self.registry().waiting.values() {
            if let Some(claim) = &attempt.claim
                && !std::mem::replace(&mut attempt.heard().ended, true)
            {
                self.reaper.spawn(Cleanup::Abandon(claim.clone()));
            }
            attempt.hint();
        }
    }

    /// Remembers an attempt that gave up: if the lock is handed to it after all, it must move on.
    pub(crate) fn ended(&self, claim: Claim) {
        self.registry().ended.insert(claim.owner.id(), claim);
    }
}

impl WakeSink for Waiting {
    fn wake(&self, wake: Wake) {
        let registry = self.registry();
        match wake {
            Wake::Granted { owner, fence, link } => match registry.waiting.get(&owner) {
                Some(attempt) => attempt.hand_over(fence, link),
                None => {
                    if let Some(claim) = registry.ended.get(owner) {
                        self.reaper.spawn(Cleanup::Abandon(claim.clone()));
                    }
                }
            },
            Wake::LookAgain { owner } => {
                if let Some(attempt) = registry.waiting.get(&owner) {
                    attempt.hint();
                }
            }
            Wake::LookAgainAll => registry.waiting.values().for_each(|attempt| attempt.hint()),
        }
    }

    fn may_be_lost(&self, hint: LossHint) {
        self.keeper.may_be_lost(hint);
    }

    fn link(&self, change: LinkChange) {
        match change {
            LinkChange::Connected => {
                tracing::debug!("connected to the store");
                self.telemetry.emit(|| Event::Connected);
            }
            LinkChange::Disconnected { why } => {
                self.telemetry.count(Count::disconnected);
                tracing::warn!(%why, "lost the connection to the store");
                self.telemetry.emit(|| Event::Disconnected { why });
            }
        }
    }
}

/// A waiting attempt's entry in the registry; leaves when dropped.
pub(crate) struct Ticket<'a> {
    waiting: &'a Waiting,
    owner: OwnerId,
    attempt: Arc<WaitingAttempt>,
}

impl Ticket<'_> {
    /// The next notification.
    ///
    /// # Cancel safety
    /// A notification stays until it is taken.
    pub(crate) async fn notified(&self) -> Notification {
        loop {
            if let Some(notification) = self.attempt.heard().notification.take() {
                return notification;
            }
            self.attempt.notify.notified().await;
        }
    }

    /// Leaves; returns whether the client has ended the attempt before.
    pub(crate) fn leave(self) -> bool {
        let attempt = self.attempt.clone();
        drop(self);
        attempt.heard().ended
    }

    /// The store answered that the attempt is queued.
    pub(crate) fn queued(&self, bound: Bound) {
        self.attempt.heard().bound = Some(bound);
    }

    /// Forgets hints that came before a claim: its answer is newer. A grant stays.
    pub(crate) fn forget_hints(&self) {
        self.attempt.heard().notification.take_if(|it| matches!(it, Notification::LookAgain));
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.waiting.registry().waiting.remove(&self.owner);
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
