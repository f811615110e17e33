//! Claims what is due and gives it to the handlers, scan after scan.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Plan, Scans,
    backoff::Backoff,
    handling::{Handler, handle},
    settler::{Ended, Settler},
    verdict::{Verdict, verdict_before},
};
use crate::{
    deadlines::{Deadlines, Due},
    error::Result,
    lease::Guard,
    lock::{Attempt, Lock},
    name::Name,
    telemetry::Count,
};

/// The lease of the lock of single scans.
const WINNER_TTL: Duration = Duration::from_secs(60);
/// First pause while the store cannot be reached.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause while the store cannot be reached.
const OUTAGE_PAUSE_MAX: Duration = Duration::from_secs(30);

pub(super) struct Scanner {
    deadlines: Deadlines,
    name: Name,
    plan: Arc<Plan>,
    handler: Handler,
    /// No more claims.
    stop: CancellationToken,
    slots: Arc<Semaphore>,
    running: TaskTracker,
    /// Handlers end now.
    cut: CancellationToken,
    outages: u32,
}

impl Scanner {
    pub(super) fn new(
        deadlines: Deadlines,
        name: Name,
        plan: Plan,
        handler: Handler,
        stop: CancellationToken,
    ) -> Self {
        Self {
            deadlines,
            name,
            slots: Arc::new(Semaphore::new(plan.parallelism)),
            plan: Arc::new(plan),
            handler,
            stop,
            running: TaskTracker::new(),
            cut: CancellationToken::new(),
            outages: 0,
        }
    }

    /// Scans until it is stopped, then ends what it began. False if handlers had to be cut off.
    pub(super) async fn run(mut self) -> bool {
        let (ended, endings) = mpsc::unbounded_channel();
        let settler = Settler { deadlines: self.deadlines.clone(), patience: self.plan.visibility };
        let settler = tokio::spawn(settler.run(endings));
        let core = self.deadlines.core().clone();
        while !self.stop.is_cancelled() {
            let began = core.clock.now();
            let next = match self.scan(&ended).await {
                Ok(()) => {
                    self.reached();
                    began + self.plan.every
                }
                Err(error) => core.clock.now() + self.missed(&error),
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = core.clock.sleep_until(next) => {}
            }
        }
        drop(ended);
        self.running.close();
        let until = core.clock.now() + self.plan.grace;
        let in_time = core.clock.bounded(until, self.running.wait()).await.is_some();
        self.cut.cancel();
        self.running.wait().await;
        let until = until.max(core.command_until());
        let abort = settler.abort_handle();
        let all_told = core.clock.bounded(until, settler).await.is_some_and(|told| told.unwrap_or(false));
        abort.abort();
        in_time && all_told
    }

    async fn scan(&mut self, ended: &mpsc::UnboundedSender<Ended>) -> Result<()> {
        let telemetry = &self.deadlines.core().telemetry;
        let winner = match self.plan.scans {
            Scans::Shared => None,
            Scans::SingleWinner => {
                self.probe().await?;
                let Attempt::Held(guard) = self.lock().try_acquire().await? else {
                    telemetry.count(Count::recovery_skipped);
                    return Ok(());
                };
                Some(guard)
            }
        };
        telemetry.count(Count::recovery_scans);
        let scanned = self.drain(winner.as_ref(), ended).await;
        if let Some(winner) = winner {
            let all = self.slots.acquire_many(self.plan.parallelism as u32);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = winner.lost() => {}
                _ = all => {}
            }
            // A release that fails is logged and counted; the lease ends by itself.
            let _outcome = winner.release().await;
        }
        scanned
    }

    /// Claims until nothing more is due and every handler was begun.
    async fn drain(&self, winner: Option<&Guard>, ended: &mpsc::UnboundedSender<Ended>) -> Result<()> {
        let buckets = usize::from(self.deadlines.ready().await?.1.layout.buckets);
        // Not more than is soon begun: what waits here for a turn is hidden from others who have the time.
        let fair = (self.plan.parallelism * 2).div_ceil(buckets) as u32;
        let limit = fair.clamp(1, self.plan.limit);
        loop {
            if self.stop.is_cancelled() || winner.is_some_and(|winner| !winner.is_held()) {
                return Ok(());
            }
            let claimed = self.deadlines.claim_quietly(limit, self.plan.visibility).await?;
            let more = claimed.more;
            let mut waiting = claimed.into_iter();
            while let Some(due) = waiting.next() {
                if let Some(verdict) = verdict_before(due.attempt(), self.plan.attempts) {
                    let _open = ended.send(Ended { receipt: due.receipt().clone(), verdict });
                } else if let Some(due) = self.begin(due, ended).await {
                    // Nobody here will handle the rest: others can have it at once.
                    for due in [due].into_iter().chain(waiting) {
                        let verdict = Verdict::Postpone(Duration::ZERO);
                        let _open = ended.send(Ended { receipt: due.receipt().clone(), verdict });
                    }
                    return Ok(());
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Begins a handler as soon as there is a place; gives the deadline back when stopped before.
    async fn begin(&self, due: Due, ended: &mpsc::UnboundedSender<Ended>) -> Option<Due> {
        let place = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Some(due),
            place = self.slots.clone().acquire_owned() => place,
        };
        let (deadlines, plan) = (self.deadlines.clone(), self.plan.clone());
        let (handler, cut, ended) = (self.handler.clone(), self.cut.clone(), ended.clone());
        self.running.spawn(async move {
            if let Some(end) = handle(&deadlines, &plan, handler, due, &cut).await {
                let _open = ended.send(end);
            }
            drop(place);
        });
        None
    }

    /// The lock of single scans. It stays closed for most of the interval, so that processes whose intervals begin at
    /// different times do not take turns within one.
    fn lock(&self) -> Lock {
        let core = self.deadlines.core();
        let name = format!("recovery:{}", self.name);
        let ttl = WINNER_TTL.min(core.config.max_ttl);
        Lock::new(core.clone(), &name).ttl(ttl).keep_alive().hold_at_least(self.plan.every * 9 / 10)
    }

    /// While the store is out of reach, looks without a word before it asks for the lock, which would be logged.
    async fn probe(&self) -> Result<()> {
        if self.outages == 0 {
            return Ok(());
        }
        let core = self.deadlines.core();
        let (engine, pool) = self.deadlines.ready().await?;
        let answer = engine.peek(pool, 1, core.command_until()).await;
        answer.map(drop).map_err(|error| core.explain(error, "looking at the pool", &pool.name))
    }

    fn reached(&mut self) {
        if self.outages > 0 {
            tracing::info!(pool = %self.name, "recovery goes on");
            self.outages = 0;
        }
    }

    /// Logs the first failure of an outage. The pause before the next try.
    fn missed(&mut self, error: &crate::Error) -> Duration {
        self.outages = self.outages.saturating_add(1);
        if self.outages == 1 {
            tracing::error!(pool = %self.name, %error, "recovery waits for the store");
        } else {
            tracing::debug!(pool = %self.name, %error, "recovery still waits for the store");
        }
        let pauses = Backoff::new(OUTAGE_PAUSE, OUTAGE_PAUSE_MAX);
        pauses.pause(self.outages, self.deadlines.core().chance.fraction())
    }
}
