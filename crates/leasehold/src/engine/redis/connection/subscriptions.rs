//! Subscriptions of a link: where it gets wake-ups.

use std::{
    collections::HashMap,
    sync::{
        Arc, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::OnceCell;

use super::{Connection, Link};
use crate::{
    clock::{BootInstant, Until},
    engine::EngineError,
};

/// A waiter asks again well within this time, so a slot that nobody asked about for longer has none.
const UNUSED_AFTER: Duration = Duration::from_secs(15);
/// Subscriptions that are kept whatever they are used for.
const KEPT: usize = 64;

/// A subscription to the wake-ups of one slot of a cluster.
#[derive(Default)]
pub(super) struct Subscription {
    confirmed: OnceCell<()>,
    /// When a waiter last needed it, in nanoseconds.
    used_at: AtomicU64,
}

impl Link {
    /// Makes sure that wake-ups come over this link; answers when the server confirmed it.
    pub(in super::super) async fn subscribe(&self, until: Until) -> Result<(), EngineError> {
        let clock = &self.options().clock;
        let began = clock.now();
        let channel = &self.options().channel;
        let subscribed =
            self.subscribed.get_or_try_init(|| async { self.inner.clone().subscribe(channel).await });
        // Also while somebody else subscribes.
        match clock.bounded(until, subscribed).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.failed(&error)),
            None => Err(self.unanswered(began)),
        }
    }

    async fn subscribe_slot(
        &self,
        (slot, channel): (u16, &str),
        asking: bool,
        until: Until,
    ) -> Result<(), EngineError> {
        let clock = &self.options().clock;
        let subscription = self.slots().entry(slot).or_default().clone();
        subscription.used_at.store(clock.now().as_nanos(), Ordering::Relaxed);
        let confirmed = subscription.confirmed.get_or_try_init(|| async {
            let mut cmd = redis::cmd("SSUBSCRIBE");
            cmd.arg(channel);
            self.send_to(asking, &cmd, until).await.map(drop)
        });
        // Also while somebody else subscribes.
        clock.bounded(until, confirmed).await.unwrap_or_else(|| Err(EngineError::no_answer()))?;
        Ok(())
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<u16, Arc<Subscription>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether so many subscriptions have no waiter that a new link is cheaper.
fn mostly_unused(slots: &HashMap<u16, Arc<Subscription>>, now: BootInstant) -> bool {
    let unused = |subscription: &&Arc<Subscription>| {
        let used_at = BootInstant::from_nanos(subscription.used_at.load(Ordering::Relaxed));
        now.since(used_at) > UNUSED_AFTER
    };
    slots.len() >= KEPT && slots.values().filter(unused).count() * 2 > slots.len()
}

impl Connection {
    /// Makes sure that wake-ups of one slot of a cluster come over the link, on a channel of that slot.
    pub(in super::super) async fn subscribe_slot(
        self: &Arc<Self>,
        (slot, channel): (u16, &str),
        asking: bool,
        until: Until,
    ) -> Result<(), EngineError> {
        let mut link = self.link(until).await?;
        let is_new = !link.slots().contains_key(&slot);
        if is_new && mostly_unused(&link.slots(), link.options().clock.now()) {
            // To unsubscribe would shift the driver's replies: only a new link is rid of them.
            link.broke("most wake-ups that come over it have no waiter");
            link = self.link(until).await?;
        }
        link.subscribe_slot((slot, channel), asking, until).await
    }

    /// Whether wake-ups of a slot come over the present link.
    pub(in super::super) fn is_subscribed(&self, slot: u16) -> bool {
        self.present()
            .is_some_and(|link| link.slots().get(&slot).is_some_and(|slot| slot.confirmed.initialized()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_when_most_of_many_subscriptions_have_no_waiter() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let slots = |unused: u16, used: u16| -> HashMap<u16, Arc<Subscription>> {
            let times = (0..unused).map(|_| 1).chain((0..used).map(|_| 50));
            let subscription = |seconds| Subscription {
                confirmed: OnceCell::new(),
                used_at: AtomicU64::new(at(seconds).as_nanos()),
            };
            times.enumerate().map(|(slot, at)| (slot as u16, Arc::new(subscription(at)))).collect()
        };
        assert!(mostly_unused(&slots(33, 31), at(60)));
        assert!(!mostly_unused(&slots(32, 32), at(60)), "half of them");
        assert!(!mostly_unused(&slots(33, 31), at(10)), "a moment ago");
        assert!(!mostly_unused(&slots(60, 0), at(60)), "few");
    }
}
