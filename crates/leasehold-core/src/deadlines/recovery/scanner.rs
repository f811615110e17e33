//! Claims what is due and gives it to the handlers, scan after scan.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    Scans,
    handling::Handling,
    outbox::{Outbox, Settlement},
    plan::{Backoff, Plan},
};
use crate::{
    core::Core,
    deadlines::{Due, Settle},
    error::{Error, Result},
    lock::{Attempt, Lock},
    name::Name,
    telemetry::Count,
};

/// The lease of the lock of single scans.
const WINNER_TTL: Duration = Duration::from_secs(60);
/// Pauses while the store cannot be reached.
const OUTAGE: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

pub(super) struct Scanner {
    handling: Arc<Handling>,
    name: Name,
    /// No more claims.
    stop: CancellationToken,
    /// Handlers end now.
    cut: CancellationToken,
    /// As many permits as handlers may run; each has one until it ended.
    slots: Arc<Semaphore>,
    outages: u32,
}

type Settlements = mpsc::UnboundedSender<Settlement>;

impl Scanner {
    pub(super) fn new(handling: Handling, name: Name, stop: CancellationToken) -> Self {
        let slots = Arc::new(Semaphore::new(handling.plan.parallelism));
        Self { handling: Arc::new(handling), name, stop, cut: CancellationToken::new(), slots, outages: 0 }
    }

    fn core(&self) -> &Arc<Core> {
        self.handling.deadlines.core()
    }

    fn plan(&self) -> &Plan {
        &self.handling.plan
    }

    /// Scans until it is stopped, then ends what it began. False if handlers had to be cut off.
    pub(super) async fn run(mut self) -> bool {
        let (settlements, received) = mpsc::unbounded_channel();
        let outbox = Outbox { deadlines: self.handling.deadlines.clone(), patience: self.plan().visibility };
        let mut outbox = tokio::spawn(outbox.run(received));
        let grace = tokio::spawn(self.grace());
        let core = self.core().clone();
        while !self.stop.is_cancelled() {
            let began = core.clock.now();
            let next = match self.scan(&settlements).await {
                Ok(()) => {
                    self.reached();
                    began + self.plan().every
                }
                Err(error) => core.clock.now() + self.missed(&error),
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = core.clock.sleep_until(next) => {}
            }
        }
        drop(settlements);
        self.handlers_ended().await;
        let in_time = !self.cut.is_cancelled();
        let too_late = async {
            core.clock.sleep_until(core.command_until()).await;
            self.cut.cancelled().await;
        };
        let all_told = tokio::select! {
            biased;
            told = &mut outbox => told.unwrap_or(false),
            () = too_late => false,
        };
        grace.abort();
        outbox.abort();
        in_time && all_told
    }

    /// Cuts the handlers off once they have had the grace after a stop.
    fn grace(&self) -> impl Future<Output = ()> + Send + use<> {
        let (stop, cut) = (self.stop.clone(), self.cut.clone());
        let (core, grace) = (self.core().clone(), self.plan().grace);
        async move {
            stop.cancelled().await;
            core.clock.sleep_until(core.clock.now() + grace).await;
            cut.cancel();
        }
    }

    async fn handlers_ended(&self) {
        let _all = self.slots.acquire_many(self.plan().parallelism as u32).await;
    }

    async fn scan(&self, settlements: &Settlements) -> Result<()> {
        let telemetry = &self.core().telemetry;
        if self.plan().scans == Scans::Shared {
            telemetry.count(Count::recovery_scans);
            return self.drain(&self.cut, settlements).await;
        }
        self.probe().await?;
        let Attempt::Held(winner) = self.lock().try_acquire().await? else {
            telemetry.count(Count::recovery_skipped);
            return Ok(());
        };
        telemetry.count(Count::recovery_scans);
        // Nobody else may scan while a handler runs: the lock outlives them all, and none outlives the lock.
        let cut = self.cut.child_token();
        let mut work = pin!(async {
            let drained = self.drain(&cut, settlements).await;
            self.handlers_ended().await;
            drained
        });
        let drained = tokio::select! {
            biased;
            drained = &mut work => drained,
            () = winner.lost() => {
                cut.cancel();
                work.await
            }
        };
        // A release that fails is logged and counted; the lease ends by itself.
        let _outcome = winner.release().await;
        drained
    }

    /// Claims until nothing more is due and every handler was begun, or until `cut`.
    async fn drain(&self, cut: &CancellationToken, settlements: &Settlements) -> Result<()> {
        let (deadlines, plan) = (&self.handling.deadlines, self.plan());
        let buckets = usize::from(deadlines.opening().ready().await?.1.layout.buckets);
        // Not more than is soon begun: what waits here for a turn is hidden from others who have the time.
        let fair = (plan.parallelism * 2).div_ceil(buckets) as u32;
        let limit = fair.clamp(1, plan.limit);
        while !self.stop.is_cancelled() && !cut.is_cancelled() {
            let claimed = deadlines.claim_quietly(limit, plan.visibility).await?;
            let more = claimed.more;
            let mut waiting = claimed.into_iter();
            while let Some(due) = waiting.next() {
                if let Some(settle) = plan.instead_of(due.attempt()) {
                    let _open = settlements.send((due.receipt().clone(), settle));
                } else if let Some(due) = self.begin(due, cut, settlements).await {
                    // Nobody here will handle the rest: others can have it at once.
                    for due in [due].into_iter().chain(waiting) {
                        let _open = settlements.send((due.receipt().clone(), Settle::GiveBack));
                    }
                    return Ok(());
                }
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Begins a handler as soon as one may run; returns the deadline when stopped before.
    async fn begin(&self, due: Due, cut: &CancellationToken, settlements: &Settlements) -> Option<Due> {
        let slot = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Some(due),
            () = cut.cancelled() => return Some(due),
            slot = self.slots.clone().acquire_owned() => slot,
        };
        let (handling, cut, settlements) = (self.handling.clone(), cut.clone(), settlements.clone());
        tokio::spawn(async move {
            let receipt = due.receipt().clone();
            if let Some(settle) = handling.handle(due, &cut).await {
                let _open = settlements.send((receipt, settle));
            }
            drop(slot);
        });
        None
    }

    /// The lock of single scans. It stays closed for most of the interval, so that processes whose intervals begin at
    /// different times do not take turns within one.
    fn lock(&self) -> Lock {
        let ttl = WINNER_TTL.min(self.core().config.max_ttl);
        let lock = Lock::named(self.core().clone(), Name::new(format!("recovery:{}", self.name)));
        lock.ttl(ttl).keep_alive().hold_at_least(self.plan().every * 9 / 10)
    }

    /// While the store is out of reach, inspects the pool before it asks for the lock, whose failure would be logged.
    async fn probe(&self) -> Result<()> {
        if self.outages == 0 {
            return Ok(());
        }
        let core = self.core();
        let (engine, pool) = self.handling.deadlines.opening().ready().await?;
        let answer = engine.peek(pool, 1, core.command_until()).await;
        answer.map(drop).map_err(|error| core.explain(error, "looking at the pool", &pool.name))
    }

    fn reached(&mut self) {
        if std::mem::take(&mut self.outages) > 0 {
            tracing::info!(pool = %self.name, "recovery goes on");
        }
    }

    /// Logs the first failure of an outage. The pause before the next try.
    fn missed(&mut self, error: &Error) -> Duration {
        self.outages = self.outages.saturating_add(1);
        if self.outages == 1 {
            tracing::error!(pool = %self.name, %error, "recovery waits for the store");
        } else {
            tracing::debug!(pool = %self.name, %error, "recovery still waits for the store");
        }
        OUTAGE.pause(self.outages, self.core().entropy.fraction())
    }
}
