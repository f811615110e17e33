//! Engines that are wrong on purpose, each with a mistake that real lock libraries have made.
//!
//! A suite or a checker that lets one of them pass proves nothing. Never use them for anything else.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use leasehold::{
    Clock, Fence,
    clock::Until,
    engine::{Engine, Fut, Grant, Hold, Leases, Released},
    owner::OwnerId,
};

use super::{Tamper, Wrapped};

/// Releases whatever lock has the name, whoever holds it: a bare `DEL`. A holder that comes late opens the lock of the
/// one after it.
pub fn release_without_compare(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, ReleasesAnybody))
}

struct ReleasesAnybody;

impl Tamper for ReleasesAnybody {
    fn release<'a>(&'a self, inner: &'a dyn Leases, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            match inner.inspect(&hold.name, until).await?.held {
                Some(held) => inner.force_release(&hold.name, held.fence, until).await,
                None => inner.release(hold, until).await,
            }
        })
    }
}

/// Counts validity from when the answer came instead of from before the question left. The time that a slow answer
/// took is then trusted twice.
pub fn validity_from_the_reply(inner: Arc<dyn Engine>, clock: Clock) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, CountsFromReply { clock }))
}

struct CountsFromReply {
    clock: Clock,
}

impl Tamper for CountsFromReply {
    fn grant(&self, _: OwnerId, grant: Grant) -> Grant {
        Grant { since: self.clock.now(), ..grant }
    }
}

/// Takes fences from a bare counter that starts at 1 whenever the counter is new: as after a fail-over that lost the
/// last writes, or a store that was wiped.
pub fn fence_from_a_counter(inner: Arc<dyn Engine>, counter: BareCounter) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, counter))
}

/// The counter of [`fence_from_a_counter`]. Clones share it; a new one forgets everything.
#[derive(Clone, Debug, Default)]
pub struct BareCounter {
    count: Arc<Mutex<Count>>,
}

#[derive(Debug, Default)]
struct Count {
    last: u64,
    // An attempt that asks again gets the same fence: only the restart is wrong here.
    given: HashMap<OwnerId, Fence>,
}

impl Tamper for BareCounter {
    fn grant(&self, owner: OwnerId, grant: Grant) -> Grant {
        let mut guard = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let count = &mut *guard;
        let fence = *count.given.entry(owner).or_insert_with(|| {
            count.last += 1;
            Fence::new(count.last)
        });
        Grant { fence, ..grant }
    }
}
