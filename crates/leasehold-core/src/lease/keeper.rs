//! One task that renews all leases of a client and reports those that can no longer be trusted.
//!
//! Leases that are due soon are renewed together, so that a thousand leases cost a handful of commands. Each batch is its
//! own task, so that a slow answer delays nobody else.

mod hints;

use std::{
    collections::HashMap,
    num::NonZeroU64,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{state::LeaseState, validity};
use crate::{
    clock::{BootInstant, Clock},
    engine::{Engine, EngineError, Hold, LossHint, Renewed},
    fence::Fence,
    name::Name,
    owner::OwnerMap,
    telemetry::{Count, Event},
};
use hints::{Hints, WATCHED_WITHIN};

/// Leases due within this part of their renewal interval are renewed together.
const TOGETHER: u32 = 8;
/// How long the task stays up once no lease is left. A client whose locks are held for less than it takes to wake the task
/// would otherwise wake it for every lock.
const LINGER: Duration = Duration::from_secs(1);
/// Shortest wait for the answer to a renewal.
const TRY_MIN: Duration = Duration::from_millis(200);

pub(crate) struct Keeper {
    schedule: Mutex<Schedule>,
    earlier: Notify,
    engine: Arc<dyn Engine>,
    clock: Clock,
    command_timeout: Duration,
}

#[derive(Default)]
struct Schedule {
    /// By the attempt that got it, which gets one lease.
    leases: OwnerMap<Kept>,
    hints: Hints,
    /// When the task wakes by itself.
    wakes_at: Option<BootInstant>,
}

struct Kept {
    lease: Arc<LeaseState>,
    /// `None` while a renewal is under way, and for a lease that is not renewed.
    renew_at: Option<BootInstant>,
    /// Over which link the store reports that it may be lost, if it does.
    link: Option<NonZeroU64>,
    /// A hint came while a renewal was under way.
    doubted: bool,
    /// Before this it was checked for a hint a moment ago.
    checks_from: BootInstant,
}

impl Kept {
    fn due_at(&self) -> BootInstant {
        let lost_at = self.lease.lost_at();
        self.renew_at.map_or(lost_at, |renew_at| renew_at.min(lost_at))
    }
}

impl Keeper {
    /// Starts the task; it ends with `closed`.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        clock: Clock,
        command_timeout: Duration,
        closed: CancellationToken,
    ) -> Arc<Self> {
        let (schedule, earlier) = (Mutex::default(), Notify::new());
        let keeper = Arc::new(Self { schedule, earlier, engine, clock, command_timeout });
        let task = keeper.clone();
        tokio::spawn(async move {
            closed.run_until_cancelled(task.run()).await;
        });
        keeper
    }

    /// Watches a lease until [`Keeper::forget`]. `renew_at` is when to renew it first, if at all.
    pub(crate) fn watch(&self, lease: Arc<LeaseState>, renew_at: Option<BootInstant>) {
        let mut schedule = self.schedule();
        let (owner, checks_from) = (lease.hold.owner.id(), lease.acquired_at);
        let kept = Kept { lease, renew_at, link: None, doubted: false, checks_from };
        self.wake_for(&mut schedule, kept.due_at());
        schedule.leases.insert(owner, kept);
    }

    /// Renews a lease from now on that was not kept alive so far.
    pub(crate) fn keep_alive(&self, lease: &LeaseState) {
        if !lease.set_kept_alive() {
            return;
        }
        let (mut schedule, now) = (self.schedule(), self.clock.now());
        if let Some(kept) = schedule.leases.get_mut(&lease.hold.owner.id()) {
            // Little of it may be left.
            kept.renew_at = Some(now);
            self.wake_for(&mut schedule, now);
        }
    }

    /// Stops watching; after it no renewal of this lease begins.
    pub(crate) fn forget(&self, lease: &LeaseState) {
        self.schedule().leases.remove(&lease.hold.owner.id());
    }

    /// How long after its start, or its last renewal, a lease is renewed. A store that does not report yet whether this one
    /// is lost is asked to soon.
    pub(crate) fn renew_after(&self, hold: &Hold, link: Option<u64>) -> Duration {
        let regular = validity::renew_interval(hold.ttl);
        let is_wanted = link.is_none() && self.engine.leases().reports_loss(hold);
        if is_wanted { regular.min(WATCHED_WITHIN) } else { regular }
    }

    /// Leases may be lost: the task renews them at once.
    pub(crate) fn may_be_lost(&self, hint: LossHint) {
        let mut schedule = self.schedule();
        schedule.hints.add(hint);
        self.wake_for(&mut schedule, self.clock.now());
    }

    /// This client has force-released a lock, perhaps one of its own. No store reports to a client what it did itself.
    pub(crate) fn taken(&self, name: &Name, fence: Fence) {
        let is_taken = |hold: &Hold| hold.fence == fence && hold.name == *name;
        let mut schedule = self.schedule();
        let taken: Vec<_> = schedule.leases.extract_if(|_, kept| is_taken(&kept.lease.hold)).collect();
        drop(schedule);
        taken.iter().for_each(|(_, kept)| kept.lease.lose());
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task if it would sleep through `at`; once woken, it need not be woken again for later things.
    fn wake_for(&self, schedule: &mut Schedule, at: BootInstant) {
        if schedule.wakes_at.is_none_or(|wakes_at| at < wakes_at) {
            schedule.wakes_at = Some(at);
            self.earlier.notify_one();
        }
    }

    async fn run(self: Arc<Self>) {
        let mut idle_until = None;
        loop {
            let (renew, ran_out, next) = self.due(self.clock.now(), idle_until);
            for lease in ran_out {
                lease.lose();
            }
            // Leases of each shard of the store by themselves.
            let mut shards = HashMap::<u64, Vec<Hold>>::new();
            for hold in renew {
                shards.entry(self.engine.leases().shard_of(&hold)).or_default().push(hold);
            }
            for batch in shards.into_values() {
                tokio::spawn(self.clone().renew(batch));
            }
            let asleep = async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let is_woken = tokio::select! {
                biased;
                () = self.earlier.notified() => true,
                () = asleep => false,
            };
            idle_until = is_woken.then(|| self.clock.now() + LINGER);
        }
    }

    /// Takes the leases to be renewed and those that ran out, and when to come back: with none left, at `idle_until`.
    fn due(
        &self,
        now: BootInstant,
        idle_until: Option<BootInstant>,
    ) -> (Vec<Hold>, Vec<Arc<LeaseState>>, Option<BootInstant>) {
        let mut schedule = self.schedule();
        let (mut renew, mut ran_out, mut next) = (Vec::new(), Vec::new(), None::<BootInstant>);
        let hints = std::mem::take(&mut schedule.hints);
        if !hints.is_empty() {
            schedule.leases.values_mut().for_each(|kept| kept.follow(&hints, now));
        }
        let is_due = |kept: &Kept| kept.renew_at.is_some_and(|at| at <= now);
        // The first lease that is due sets the pace; those due a little later come along.
        let together = schedule.leases.values().any(is_due);
        schedule.leases.retain(|_, kept| {
            if kept.lease.lost_at() <= now {
                ran_out.push(kept.lease.clone());
                return false;
            }
            // One that has just begun may be over soon.
            let is_young = now.since(kept.lease.acquired_at) < WATCHED_WITHIN / 2;
            let interval = validity::renew_interval(kept.lease.hold.ttl);
            let ahead = if is_young { Duration::ZERO } else { interval / TOGETHER };
            if together && let Some(at) = kept.renew_at.take_if(|at| *at <= now + ahead) {
                // The first renewal after a hand-over comes at once.
                let watch = kept.lease.is_kept_alive() && at > kept.lease.acquired_at;
                renew.push(Hold { watch, ..kept.lease.hold.clone() });
            }
            let due_at = kept.due_at();
            next = Some(next.map_or(due_at, |next| next.min(due_at)));
            true
        });
        schedule.wakes_at = next.or(idle_until);
        (renew, ran_out, schedule.wakes_at)
    }

    async fn renew(self: Arc<Self>, mut holds: Vec<Hold>) {
        {
            // Released since it was due: a renewal now would undo what the release has set.
            let schedule = self.schedule();
            holds.retain(|hold| schedule.leases.contains_key(&hold.owner.id()));
        }
        let Some(shortest) = holds.iter().map(|hold| hold.ttl).min() else { return };
        // A short lease cannot wait long for a connection that fell silent: it needs the time to try again.
        let patience = self.command_timeout.min((shortest / 6).max(TRY_MIN));
        let answers = match self.engine.leases().renew(&holds, self.clock.now() + patience).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); holds.len()],
        };
        // One line for all of them: an outage concerns every lease at once.
        let missed = answers.iter().filter(|answer| answer.is_err()).count();
        if let Some((hold, Err(error))) = holds.iter().zip(&answers).find(|(_, answer)| answer.is_err()) {
            tracing::error!(name = %hold.name, missed, %error, "renewals got no answer");
        }
        for (hold, answer) in holds.iter().zip(answers) {
            self.renewed(hold, answer);
        }
    }

    fn renewed(&self, hold: &Hold, answer: Result<Renewed, EngineError>) {
        let owner = hold.owner.id();
        let Some(lease) = self.schedule().leases.get(&owner).map(|kept| kept.lease.clone()) else { return };
        let now = self.clock.now();
        let is_kept = answer.is_ok();
        let (again, link) = match answer {
            Ok(Renewed::Kept { since, link }) => {
                lease.telemetry.count(Count::renewed);
                lease.extend(since);
                (lease.is_kept_alive().then(|| now + self.renew_after(hold, link)), link)
            }
            Ok(Renewed::Gone) => {
                self.forget(&lease);
                lease.lose();
                return;
            }
            Err(error) => {
                lease.telemetry.count(Count::renew_miss);
                let (name, fence) = (&hold.name, hold.fence);
                lease.telemetry.emit(|| Event::RenewalMissed {
                    name: name.clone(),
                    fence,
                    mode: hold.mode,
                    why: error.to_string(),
                });
                (Some(now + (hold.ttl / 20).max(Duration::from_millis(10))), None)
            }
        };
        let mut schedule = self.schedule();
        let Some(kept) = schedule.leases.get_mut(&owner) else { return };
        (kept.renew_at, kept.link) = (again, link.and_then(NonZeroU64::new));
        if std::mem::take(&mut kept.doubted) && is_kept {
            kept.renew_at = again.map(|again| again.min(kept.check_at(now)));
        }
        let due_at = kept.due_at();
        self.wake_for(&mut schedule, due_at);
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
