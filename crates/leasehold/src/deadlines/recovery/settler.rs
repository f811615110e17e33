//! Tells the store what became of deadlines. One outcome leaves at once; those that come while a call is under way leave
//! together with the next. Calls that are slow, or have to be sent again, hold up nobody: a part of the store that is silent
//! would otherwise make what the others have come back, although it was handled.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::mpsc;

use super::{backoff::Backoff, verdict::Verdict};
use crate::{
    deadlines::{Deadlines, ITEMS_MAX, bounds::shortened},
    engine::{EngineError, Fault, Fut, deadlines::Receipt},
    error::Refusal,
    telemetry::{Count, Event},
};

/// What shall become of one deadline.
pub(super) struct Ended {
    pub(super) receipt: Receipt,
    pub(super) verdict: Verdict,
}

/// Pauses while the store cannot be reached.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long outcomes wait for the call before theirs.
const HELD_UP: Duration = Duration::from_millis(20);
/// Most calls that are slow at a time.
const SLOW_MAX: usize = 256;

pub(super) struct Settler {
    pub(super) deadlines: Deadlines,
    /// How long an outcome is worth sending: after it the deadline has come back anyway.
    pub(super) patience: Duration,
}

impl Settler {
    /// Settles what arrives until nobody can send any more. False if something could not be told to the store.
    pub(super) async fn run(self, mut ended: mpsc::UnboundedReceiver<Ended>) -> bool {
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
        while let Some(told) = slow.next().await {
            all_told &= told;
        }
        all_told
    }

    /// False if something could not be told to the store.
    async fn settle(&self, batch: Vec<Ended>) -> bool {
        let (mut done, mut again, mut dead) = (Vec::new(), Vec::new(), Vec::new());
        for Ended { receipt, verdict } in batch {
            match verdict {
                Verdict::Acknowledge => done.push(receipt),
                Verdict::Postpone(by) => again.push((receipt, by)),
                Verdict::Bury(why) => dead.push((receipt, shortened(&why))),
                Verdict::Leave => {}
            }
        }
        let told = tokio::join!(self.acknowledge(&done), self.postpone(&again), self.bury(&dead));
        told.0.is_some() && told.1.is_some() && told.2.is_some()
    }

    async fn acknowledge(&self, done: &[Receipt]) -> Option<()> {
        let (engine, pool) = self.deadlines.ready().await.ok()?;
        let core = self.deadlines.core();
        let good = self.send(done.len(), || engine.acknowledge(pool, done, core.command_until())).await?;
        self.deadlines.count_good(Count::deadlines_done, &good);
        Some(())
    }

    async fn postpone(&self, again: &[(Receipt, Duration)]) -> Option<()> {
        let (engine, pool) = self.deadlines.ready().await.ok()?;
        let core = self.deadlines.core();
        self.send(again.len(), || engine.postpone(pool, again, core.command_until())).await.map(drop)
    }

    async fn bury(&self, dead: &[(Receipt, String)]) -> Option<()> {
        let (engine, pool) = self.deadlines.ready().await.ok()?;
        let core = self.deadlines.core();
        let good = self.send(dead.len(), || engine.bury(pool, dead, core.command_until())).await?;
        self.deadlines.count_good(Count::deadlines_buried, &good);
        for ((receipt, why), _) in dead.iter().zip(good).filter(|(_, good)| *good) {
            tracing::error!(pool = %pool.name, id = %receipt.id, why, "gave a deadline up");
            core.telemetry.tell(|| Event::Buried {
                pool: pool.name.clone(),
                id: receipt.id.clone(),
                why: why.clone(),
            });
        }
        Some(())
    }

    /// Sends until it is answered; `None` if it is not worth it any more. True where it took effect.
    async fn send<'a>(&self, items: usize, call: impl Fn() -> Fut<'a, Vec<bool>>) -> Option<Vec<bool>> {
        if items == 0 {
            return Some(Vec::new());
        }
        let core = self.deadlines.core();
        let give_up = core.clock.now() + self.patience;
        let pauses = Backoff::new(RETRY.0, RETRY.1);
        for nth in 1.. {
            match call().await {
                Ok(good) => {
                    // Sent again, a receipt may be used up by the first call: which of the two it was is not known.
                    if nth == 1 {
                        let stale = good.iter().filter(|good| !**good).count();
                        core.telemetry.count_many(Count::deadlines_stale, stale);
                    }
                    return Some(good);
                }
                Err(error) => {
                    let pause = pauses.pause(nth, core.chance.fraction());
                    if !may_pass(&error) || core.clock.now() + pause >= give_up {
                        tracing::warn!(%error, items, "could not settle deadlines; they come back");
                        break;
                    }
                    core.clock.sleep_until(core.clock.now() + pause).await;
                }
            }
        }
        None
    }
}

/// Whether the same call may succeed a little later.
fn may_pass(error: &EngineError) -> bool {
    match error.fault {
        Fault::Unreachable | Fault::NoAnswer | Fault::Overloaded | Fault::Busy => true,
        Fault::Refused(refusal) => matches!(refusal, Refusal::ReadOnly | Refusal::OutOfMemory),
        _ => false,
    }
}
