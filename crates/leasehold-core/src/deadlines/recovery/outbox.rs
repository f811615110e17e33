//! Settles deadlines in the store. One outcome leaves at once; those that come while a call is under way leave together
//! with the next. Calls that are slow, or have to be sent again, delay no other: otherwise a part of the store that does not
//! answer would make what the others have come back, although it was handled.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::mpsc;

use crate::{
    deadlines::{Deadlines, ITEMS_MAX, Receipt, Settle},
    lock::pause_in_outage,
    name::Name,
    telemetry::{Count, Event},
};

/// What becomes of one deadline.
pub(super) type Settlement = (Receipt, Settle);

/// The first and the longest pause while the store cannot be reached.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long outcomes wait for the call before theirs.
const HELD_UP: Duration = Duration::from_millis(20);
/// Most calls that are slow at a time.
const SLOW_MAX: usize = 256;

/// Outcomes of handlers on their way to the store.
pub(super) struct Outbox {
    pub(super) deadlines: Deadlines,
    pub(super) name: Name,
    /// How long an outcome is worth sending: after it the deadline has come back anyway.
    pub(super) patience: Duration,
}

impl Outbox {
    /// Settles what arrives until nobody can send any more. False if the store did not learn of something.
    pub(super) async fn run(self, mut ended: mpsc::UnboundedReceiver<Settlement>) -> bool {
        let clock = &self.deadlines.core().clock;
        let mut slow = FuturesUnordered::new();
        let mut all_told = true;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                Some(told) = slow.next() => all_told &= told,
                received = ended.recv_many(&mut batch, ITEMS_MAX), if slow.len() < SLOW_MAX => {
                    if received == 0 {
                        break;
                    }
                    let mut call = Box::pin(self.settle(batch));
                    match clock.bounded(clock.now() + HELD_UP, call.as_mut()).await {
                        Some(told) => all_told &= told,
                        None => slow.push(call),
                    }
                }
            }
        }
        slow.fold(all_told, async |all, told| all && told).await
    }

    /// Sends until it is answered or not worth it any more. False if the store did not learn of it.
    async fn settle(&self, batch: Vec<Settlement>) -> bool {
        let (core, (first, most)) = (self.deadlines.core(), PAUSES);
        let give_up = core.clock.now() + self.patience;
        let mut failures = 0;
        let good = loop {
            let error = match self.deadlines.settle_quietly(&batch).await {
                Ok(good) => break good,
                Err(error) => error,
            };
            let again = core.clock.now() + pause_in_outage(first, most, failures, core.entropy.fraction());
            if !error.is_retryable() || again >= give_up {
                tracing::warn!(%error, items = batch.len(), "could not settle deadlines; they come back");
                return false;
            }
            core.clock.sleep_until(again).await;
            failures += 1;
        };
        // Sent again, a receipt may be used up by the first call: which of the two it was is not known.
        if failures == 0 {
            let stale = good.iter().filter(|good| !**good).count();
            core.telemetry.count_many(Count::deadlines_stale, stale);
        }
        for ((Receipt { id, .. }, settle), good) in batch.into_iter().zip(good) {
            if let (Settle::Bury(why), true) = (settle, good) {
                let pool = self.name.clone();
                tracing::error!(%pool, %id, why, "gave a deadline up");
                core.telemetry.emit(|| Event::Buried { pool, id, why });
            }
        }
        true
    }
}
