//! Who waits for the end of something, and is told to look again.

use std::{sync::Weak, time::Duration};

use super::Woken;
use crate::{
    clock::BootInstant,
    engine::{WAITERS_MAX, Wake, WakeSink},
    owner::OwnerId,
};

/// A waiter that has not asked for this long gets no wake-up any more.
const WATCHER_LAPSES: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(super) struct Watchers(Vec<Watcher>);

struct Watcher {
    owner: OwnerId,
    seen: BootInstant,
    sink: Weak<dyn WakeSink>,
}

impl Watchers {
    pub(super) fn watch(&mut self, owner: OwnerId, sink: Weak<dyn WakeSink>, now: BootInstant) {
        self.0.retain(|known| {
            known.owner != owner && now.since(known.seen) <= WATCHER_LAPSES && known.sink.strong_count() > 0
        });
        // Over the bound there is no wake-up: waiters poll as well.
        if self.0.len() < WAITERS_MAX as usize {
            self.0.push(Watcher { owner, seen: now, sink });
        }
    }

    /// Tells all of them to look again, and forgets them.
    pub(super) fn tell(&mut self, wakes: &mut Vec<Woken>) {
        let told = self.0.drain(..);
        wakes.extend(told.map(|watcher| (watcher.sink, Wake::LookAgain { owner: watcher.owner })));
    }
}
