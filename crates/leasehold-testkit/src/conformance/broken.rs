//! Engines that are wrong on purpose, each with a mistake that real lock libraries have made.
//!
//! A suite or a checker that passes one of them proves nothing. Never use them for anything else.

mod kinds;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use leasehold::{
    Clock, Fence,
    clock::Until,
    engine::{
        Engine, Fut, Grant, Hold, Released,
        deadlines::{Deadlines, Pool, Receipt, Settle as SettleDeadline},
        records::{Begin, Begun, Records, Settle, Settled},
    },
    owner::OwnerId,
};

use super::{Tamper, Wrapped};
pub use kinds::{one_permit_too_many, readers_apart_from_writers, released_before_the_body_ended};

/// Releases the lock without comparing its owner: a bare `DEL`. A late holder releases the lock of its successor.
pub fn release_without_compare(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, ReleasesAnybody))
}

struct ReleasesAnybody;

impl Tamper for ReleasesAnybody {
    fn release<'a>(&'a self, inner: &'a dyn Engine, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            match inner.inspector().inspect(&hold.name, until).await?.held() {
                Some(held) => inner.leases().force_release(&hold.name, held.fence, until).await,
                None => inner.leases().release(hold, until).await,
            }
        })
    }
}

/// Stores every result without comparing the owner of the record: a bare `SET`. A late execution overwrites the result of
/// its successor.
pub fn settle_without_compare(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, SettlesAnyway))
}

struct SettlesAnyway;

impl Tamper for SettlesAnyway {
    fn settle<'a>(&'a self, inner: &'a dyn Records, settle: &'a Settle, until: Until) -> Fut<'a, Settled> {
        Box::pin(async move {
            let refused = inner.settle(settle, until).await?;
            let Settled::FencedOff { .. } = refused else { return Ok(refused) };
            inner.remove(&settle.hold.name, until).await?;
            let Hold { name: key, owner, ttl: lease, .. } = settle.hold.clone();
            let fingerprint = settle.fingerprint.clone();
            match inner.begin(&Begin { key, owner, fingerprint, lease, wake: false }, until).await? {
                Begun::Yours(grant) => {
                    let hold = Hold { fence: grant.fence, ..settle.hold.clone() };
                    inner.settle(&Settle { hold, ..settle.clone() }, until).await
                }
                _ => Ok(refused),
            }
        })
    }
}

/// Removes an acknowledged deadline by its id alone, without comparing the receipt. A late acknowledgement removes a
/// deadline that was set or claimed again meanwhile.
pub fn acknowledge_without_receipt(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Wrapped::new(inner, AcknowledgesAnyway))
}

struct AcknowledgesAnyway;

impl Tamper for AcknowledgesAnyway {
    fn settle_deadlines<'a>(
        &'a self,
        inner: &'a dyn Deadlines,
        pool: &'a Pool,
        settlements: &'a [(Receipt, SettleDeadline)],
        until: Until,
    ) -> Fut<'a, Vec<bool>> {
        Box::pin(async move {
            let mut settled = inner.settle(pool, settlements, until).await?;
            for ((receipt, settle), settled) in settlements.iter().zip(&mut settled) {
                if *settle == SettleDeadline::Done && !*settled {
                    *settled = inner.cancel(pool, std::slice::from_ref(&receipt.id), until).await? == [true];
                }
            }
            Ok(settled)
        })
    }
}

/// Counts validity from the reply instead of from before the request. The time that a slow reply took is then counted
/// twice.
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

/// The counter of [`fence_from_a_counter`]. Clones share it; a new one starts over.
#[derive(Clone, Debug, Default)]
pub struct BareCounter {
    count: Arc<Mutex<Count>>,
}

#[derive(Debug, Default)]
struct Count {
    last: u64,
    // An attempt that retries gets the same fence: only the restart is wrong here.
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
