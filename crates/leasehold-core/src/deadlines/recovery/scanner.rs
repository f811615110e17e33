//! Claims what is due and gives it to the handlers, scan after scan.

use std::{
    any::Any, convert::Infallible, future::pending, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Recover, Scans,
    outbox::{Outbox, Settlement},
    plan::Plan,
};
use crate::{
    core::Core,
    deadlines::{Deadlines, Due, Settle},
    error::Result,
    lease::validity,
    lock::{Attempt, Kind, Lock, pause_in_outage},
    name::Name,
    telemetry::Count,
};

/// The lease of the lock of single scans.
const WINNER_TTL: Duration = Duration::from_secs(60);
/// The first and the longest pause while the store cannot be reached.
const OUTAGE_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

pub(super) type Handler = Arc<dyn Fn(Due) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

pub(super) struct Scanner {
    deadlines: Deadlines,
    plan: Plan,
    handler: Handler,
    name: Name,
    /// Of single scans, if it is not the usual one.
    lock: Option<Lock>,
    /// No more claims.
    stop: CancellationToken,
    /// Handlers end now.
    cut: CancellationToken,
    /// As many permits as handlers may run; each has one until it ended.
    slots: Arc<Semaphore>,
    /// To the outbox, which ends once nobody can send to it any more.
    settlements: mpsc::UnboundedSender<Settlement>,
}

impl Scanner {
    /// Scans until it is stopped, then ends what it began. False as in [`Recovery::stop`](super::Recovery::stop).
    pub(super) async fn run(recover: Recover, name: Name, stop: CancellationToken) -> bool {
        let Recover { deadlines, handler, plan, lock, .. } = recover;
        let (settlements, received) = mpsc::unbounded_channel();
        let outbox = Outbox { deadlines: deadlines.clone(), name: name.clone(), patience: plan.visibility };
        let mut outbox = tokio::spawn(outbox.run(received));
        let (core, grace) = (deadlines.core().clone(), plan.grace);
        let (cut, slots) = (CancellationToken::new(), Arc::new(Semaphore::new(plan.parallelism)));
        let scanner = Self {
            deadlines,
            plan,
            handler,
            name,
            lock,
            stop: stop.clone(),
            cut: cut.clone(),
            slots,
            settlements,
        };
        let work = async {
            Arc::new(scanner).scan_until_stopped().await;
            let in_time = !cut.is_cancelled();
            let too_late = async {
                core.clock.sleep_until(core.command_until()).await;
                cut.cancelled().await;
            };
            let all_told = tokio::select! {
                biased;
                told = &mut outbox => told.unwrap_or(false),
                () = too_late => false,
            };
            outbox.abort();
            in_time && all_told
        };
        let grace_over = async {
            stop.cancelled().await;
            core.clock.sleep_until(core.clock.now() + grace).await;
        };
        cut_when(grace_over, &cut, work).await
    }

    fn core(&self) -> &Arc<Core> {
        self.deadlines.core()
    }

    /// Scans until it is stopped and all handlers have ended.
    async fn scan_until_stopped(self: Arc<Self>) {
        let core = self.core();
        let mut outages = 0_u32;
        while !self.stop.is_cancelled() {
            let began = core.clock.now();
            let next = match self.scan(outages > 0).await {
                Ok(()) => {
                    if std::mem::take(&mut outages) > 0 {
                        tracing::info!(pool = %self.name, "recovery goes on");
                    }
                    began + self.plan.every
                }
                Err(error) => {
                    if outages == 0 {
                        tracing::error!(pool = %self.name, %error, "recovery waits for the store");
                    } else {
                        tracing::debug!(pool = %self.name, %error, "recovery still waits for the store");
                    }
                    let (first, most) = OUTAGE_PAUSES;
                    let pause = pause_in_outage(first, most, outages, core.entropy.fraction());
                    outages = outages.saturating_add(1);
                    core.clock.now() + pause
                }
            };
            let _stopped = self.stop.run_until_cancelled(core.clock.sleep_until(next)).await;
        }
        self.handlers_ended().await;
    }

    async fn handlers_ended(&self) {
        let _all = self.slots.acquire_many(self.plan.parallelism as u32).await;
    }

    async fn scan(self: &Arc<Self>, after_outage: bool) -> Result<()> {
        let telemetry = &self.core().telemetry;
        if self.plan.scans == Scans::Shared {
            telemetry.count(Count::recovery_scans);
            return self.drain(&self.cut).await;
        }
        if after_outage {
            self.probe().await?;
        }
        let Attempt::Held(winner) = self.lock().try_acquire().await? else {
            telemetry.count(Count::recovery_skipped);
            return Ok(());
        };
        telemetry.count(Count::recovery_scans);
        // Nobody else may scan while a handler runs: the lock outlives them all, and none outlives the lock.
        let cut = self.cut.child_token();
        let work = async {
            let drained = self.drain(&cut).await;
            self.handlers_ended().await;
            drained
        };
        let drained = cut_when(winner.lost(), &cut, work).await;
        // A release that fails is logged and counted; the lease ends by itself.
        let _outcome = winner.release().await;
        drained
    }

    /// Inspects the pool before the lock is asked for, whose failure would be logged.
    async fn probe(&self) -> Result<()> {
        let (engine, pool) = self.deadlines.ready().await?;
        let answer = engine.peek(pool, 1, self.core().command_until()).await;
        answer.map(drop).map_err(|error| self.core().explain(error, "looking at the pool", &pool.name))
    }

    /// The lock of single scans. It stays closed for most of the interval, so that processes whose intervals begin at
    /// different times do not take turns within one.
    fn lock(&self) -> Lock {
        let lock = self.lock.clone().unwrap_or_else(|| {
            let lock = Lock::named(
                self.core().clone(),
                Name::new(format!("recovery:{}", self.name)),
                Kind::Exclusive,
            );
            lock.ttl(WINNER_TTL.min(self.core().config.max_ttl)).keep_alive()
        });
        lock.hold_at_least(self.plan.every * 9 / 10)
    }

    /// Claims until nothing more is due and every handler was begun, or until `cut`.
    async fn drain(self: &Arc<Self>, cut: &CancellationToken) -> Result<()> {
        let plan = &self.plan;
        let buckets = usize::from(self.deadlines.ready().await?.1.layout.buckets);
        // Not more than is soon begun: what waits here for a turn is hidden from others who have the time.
        let fair = (plan.parallelism * 2).div_ceil(buckets) as u32;
        let limit = fair.clamp(1, plan.limit);
        let mut more = true;
        while more && !self.stop.is_cancelled() && !cut.is_cancelled() {
            let claimed = self.deadlines.claim_quietly(limit, plan.visibility).await?;
            more = claimed.more;
            for due in claimed {
                if let Some(settle) = plan.instead_of(due.attempt()) {
                    self.settle(&due, settle);
                } else if let Some(slot) = self.free_slot(cut).await {
                    self.begin(due, slot, cut.clone());
                } else {
                    // Nobody here will handle it: others can have it at once.
                    self.settle(&due, Settle::GiveBack);
                }
            }
        }
        Ok(())
    }

    /// Waits until one more handler may run; `None` when stopped before.
    async fn free_slot(&self, cut: &CancellationToken) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            () = cut.cancelled() => None,
            slot = self.slots.clone().acquire_owned() => slot.ok(),
        }
    }

    fn begin(self: &Arc<Self>, mut due: Due, slot: OwnedSemaphorePermit, cut: CancellationToken) {
        let scanner = self.clone();
        tokio::spawn(async move {
            if let Some(settle) = scanner.handle(&mut due, &cut).await {
                scanner.settle(&due, settle);
            }
            drop(slot);
        });
    }

    fn settle(&self, due: &Due, settle: Settle) {
        let _open = self.settlements.send((due.receipt().clone(), settle));
    }

    /// Handles one deadline. Returns what becomes of it, unless it comes back by itself or is somebody else's by now.
    async fn handle(&self, due: &mut Due, cut: &CancellationToken) -> Option<Settle> {
        let (core, plan) = (self.core(), &self.plan);
        if due.hidden_for() < plan.handler_timeout() {
            match self.hide_again(due).await {
                Ok(true) => {}
                Ok(false) => {
                    core.telemetry.count(Count::deadlines_stale);
                    return None;
                }
                // Its handler was not called, so it must not cost an attempt.
                Err(_unreachable) => return Some(Settle::GiveBack),
            }
        }
        let span = tracing::debug_span!("deadline", id = due.id(), attempt = due.attempt());
        let until = due.hidden_until.min(core.clock.now() + plan.handler_timeout());
        let given = due.clone();
        let work = AssertUnwindSafe(async { (self.handler)(given).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            () = cut.cancelled() => return None,
            ended = core.clock.bounded(until, work.instrument(span)) => ended,
        };
        let (count, how) = match ended {
            Some(Ok(Ok(()))) => return (!due.is_settled()).then_some(Settle::Done),
            Some(Ok(Err(why))) => (Count::deadlines_failed, format!("failed: {why}")),
            Some(Err(panic)) => (Count::deadlines_panicked, format!("panicked: {}", panic_text(&*panic))),
            None => (Count::deadlines_timed_out, format!("took longer than {:?}", plan.handler_timeout())),
        };
        core.telemetry.count(count);
        tracing::warn!(id = due.id(), attempt = due.attempt(), how, "the handler of a deadline failed");
        let settle = || plan.after_failure(due.attempt(), &how, core.entropy.fraction());
        (!due.is_settled()).then(settle)
    }

    /// Renews the claim of a deadline that has waited so long for a free handler that its visibility would end mid-run.
    /// False if somebody else has claimed it since.
    async fn hide_again(&self, due: &mut Due) -> Result<bool> {
        let (since, visibility) = (self.core().clock.now(), self.plan.visibility);
        let again = [(due.receipt().clone(), Settle::Postpone(visibility))];
        let hidden = self.deadlines.settle_quietly(&again).await? == [true];
        due.hidden_until = validity::valid_until(since, visibility);
        Ok(hidden)
    }
}

/// Does the work, and cancels `cut` if `over` ends first: the work then has to come to its end.
async fn cut_when<T>(
    over: impl Future<Output = ()>,
    cut: &CancellationToken,
    work: impl Future<Output = T>,
) -> T {
    let cutting = async {
        over.await;
        cut.cancel();
        pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = cutting => match never {},
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
