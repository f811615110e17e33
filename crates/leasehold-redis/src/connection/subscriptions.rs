//! Subscriptions of a link: where it gets wake-ups.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redis::Cmd;
use tokio::sync::OnceCell;

use super::{Connection, Link, State};
use crate::{Result, info::command, locked};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::EngineError,
};

/// A waiter asks again well within this time, so a slot that nobody asked about for longer has none.
const UNUSED_AFTER: Duration = Duration::from_secs(15);
/// Subscriptions that are kept whatever they are used for.
const KEPT: usize = 64;

/// Where the subscription of a connection to its own channel stands, which is in no cluster.
const OWN: u16 = 0;

/// By slot, or for the connection: when a waiter last needed it, and whether the server has confirmed it.
pub(super) type Subscriptions = HashMap<u16, (BootInstant, Arc<OnceCell<()>>)>;

impl Link {
    /// Makes sure that wake-ups come over this link; returns when the server confirmed it.
    pub(crate) async fn subscribe(&self, until: Until) -> Result<()> {
        self.confirm(OWN, &command(&["SUBSCRIBE", &self.signals.options.channel]), false, until).await
    }

    async fn confirm(&self, slot: u16, cmd: &Cmd, asking: bool, until: Until) -> Result<()> {
        let clock = &self.signals.options.clock;
        let confirmed = {
            let mut subscriptions = locked(&self.subscriptions);
            let (used_at, confirmed) = subscriptions.entry(slot).or_insert((clock.now(), Arc::default()));
            *used_at = clock.now();
            confirmed.clone()
        };
        let confirmed =
            confirmed.get_or_try_init(|| async { self.send_to(asking, cmd, until).await.map(drop) });
        // Also while somebody else subscribes.
        clock.bounded(until, confirmed).await.unwrap_or_else(|| Err(EngineError::no_answer())).copied()
    }
}

/// Whether so many subscriptions have no waiter that a new link is cheaper.
fn mostly_unused(slots: &Subscriptions, now: BootInstant) -> bool {
    let unused = slots.values().filter(|(used_at, _)| now.since(*used_at) > UNUSED_AFTER);
    slots.len() >= KEPT && unused.count() * 2 > slots.len()
}

impl Connection {
    /// Makes sure that wake-ups of one slot of a cluster come over the link, on a channel of that slot.
    pub(crate) async fn subscribe_slot(
        self: &Arc<Self>,
        (slot, channel): (u16, &str),
        asking: bool,
        until: Until,
    ) -> Result<()> {
        let mut link = self.link(until).await?;
        let is_known = locked(&link.subscriptions).contains_key(&slot);
        if !is_known && mostly_unused(&locked(&link.subscriptions), self.options.clock.now()) {
            // To unsubscribe would shift the driver's replies: only a new link is rid of them.
            link.broke("most wake-ups that come over it have no waiter");
            link = self.link(until).await?;
        }
        link.confirm(slot, &command(&["SSUBSCRIBE", channel]), asking, until).await
    }

    /// Whether wake-ups of a slot come over the present link.
    pub(crate) fn is_subscribed(&self, slot: u16) -> bool {
        let State::Up { link, .. } = &*locked(&self.state) else { return false };
        let is_up = link.signals.end.get().is_none();
        is_up && locked(&link.subscriptions).get(&slot).is_some_and(|(_, confirmed)| confirmed.initialized())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_replaced_when_most_of_many_subscriptions_have_no_waiter() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let slots = |unused: u16, used: u16| -> Subscriptions {
            let times = (0..unused).map(|_| 1).chain((0..used).map(|_| 50));
            times.zip(0..).map(|(seconds, slot)| (slot, (at(seconds), Arc::default()))).collect()
        };
        assert!(mostly_unused(&slots(33, 31), at(60)));
        assert!(!mostly_unused(&slots(32, 32), at(60)), "half of them");
        assert!(!mostly_unused(&slots(33, 31), at(10)), "a moment ago");
        assert!(!mostly_unused(&slots(60, 0), at(60)), "few");
    }
}
