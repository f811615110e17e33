//! One task that renews all leases of a client and tells holders when a lease can no longer be trusted.
//!
//! Leases are kept in order of what is due first. Those due soon are renewed together, so that a thousand
//! leases cost a handful of commands; each batch is its own task, so that a slow answer delays nobody else.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{state::LeaseState, validity};
use crate::{
    clock::{BootInstant, Clock},
    engine::{Engine, EngineError, Hold, Renewed},
    telemetry::{Count, Telemetry},
};

/// Leases due within this part of their renewal interval are renewed together.
const TOGETHER: u32 = 8;
/// How long the task stays up once nothing is listed. A client whose locks are held for less than it takes to wake the
/// task would otherwise wake it for every lock.
const LINGER: Duration = Duration::from_secs(1);

/// Shortest wait for the answer to a renewal.
const TRY_MIN: Duration = Duration::from_millis(200);

pub(crate) struct Keeper {
    schedule: Mutex<Schedule>,
    earlier: Notify,
    clock: Clock,
}

#[derive(Default)]
struct Schedule {
    by_time: BTreeSet<(BootInstant, u64)>,
    leases: HashMap<u64, Kept>,
    last_id: u64,
    /// When the task wakes by itself.
    wakes_at: Option<BootInstant>,
}

struct Kept {
    lease: Arc<LeaseState>,
    renew_at: Option<BootInstant>,
    listed_at: BootInstant,
}

impl Keeper {
    /// Starts the task; it ends with `closed`.
    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        clock: Clock,
        telemetry: Arc<Telemetry>,
        command_timeout: Duration,
        closed: CancellationToken,
    ) -> Arc<Self> {
        let keeper = Arc::new(Self { schedule: Mutex::default(), earlier: Notify::new(), clock });
        let renewer = Arc::new(Renewer { keeper: keeper.clone(), engine, telemetry, command_timeout });
        tokio::spawn(async move {
            closed.run_until_cancelled(renewer.run()).await;
        });
        keeper
    }

    /// Watches a lease until [`Keeper::forget`]. `renew_at` is when to renew it first, if at all.
    pub(crate) fn watch(&self, lease: Arc<LeaseState>, renew_at: Option<BootInstant>) -> u64 {
        let mut schedule = self.schedule();
        schedule.last_id += 1;
        let id = schedule.last_id;
        let listed_at = next_step(&lease, renew_at);
        schedule.leases.insert(id, Kept { lease, renew_at, listed_at });
        schedule.by_time.insert((listed_at, id));
        let wake = schedule.must_wake_for(listed_at);
        drop(schedule);
        if wake {
            self.earlier.notify_one();
        }
        id
    }

    /// Stops watching; after it no renewal of this lease begins.
    pub(crate) fn forget(&self, id: u64) {
        let mut schedule = self.schedule();
        if let Some(kept) = schedule.leases.remove(&id) {
            schedule.by_time.remove(&(kept.listed_at, id));
        }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a lease again after a renewal, unless it was forgotten or lost meanwhile.
    fn relist(&self, id: u64, renew_at: Option<BootInstant>) {
        let mut schedule = self.schedule();
        let Some(kept) = schedule.leases.get_mut(&id) else { return };
        let before = kept.listed_at;
        kept.renew_at = renew_at;
        kept.listed_at = next_step(&kept.lease, renew_at);
        let after = kept.listed_at;
        schedule.by_time.remove(&(before, id));
        schedule.by_time.insert((after, id));
        if schedule.must_wake_for(after) {
            self.earlier.notify_one();
        }
    }

    /// Takes what is due at this moment. With nothing listed the next look is at `idle_until`.
    fn due(&self, now: BootInstant, idle_until: Option<BootInstant>) -> Due {
        let mut schedule = self.schedule();
        let Due { mut renew, mut ran_out, .. } = Due::default();
        while let Some(&(at, id)) = schedule.by_time.first() {
            let Some(kept) = schedule.leases.get_mut(&id) else {
                schedule.by_time.pop_first();
                continue;
            };
            let ahead = kept
                .renew_at
                .map_or(Duration::ZERO, |_| validity::renew_interval(kept.lease.hold().ttl) / TOGETHER);
            // The first lease that is due sets the pace; those due a little later come along.
            if at > now && (renew.is_empty() || at > now + ahead) {
                break;
            }
            schedule.by_time.pop_first();
            let kept = schedule.leases.get_mut(&id).expect("looked up above");
            if kept.lease.lost_at() <= now {
                ran_out.push(kept.lease.clone());
                schedule.leases.remove(&id);
                continue;
            }
            if kept.renew_at.take().is_some() {
                renew.push((id, kept.lease.hold().clone()));
            }
            // While the renewal is under way only the end of validity is due.
            kept.listed_at = next_step(&kept.lease, None);
            let listed_at = kept.listed_at;
            schedule.by_time.insert((listed_at, id));
        }
        schedule.wakes_at = schedule.by_time.first().map(|(at, _)| *at).or(idle_until);
        Due { renew, ran_out, next: schedule.wakes_at }
    }
}

#[derive(Default)]
struct Due {
    renew: Vec<(u64, Hold)>,
    ran_out: Vec<Arc<LeaseState>>,
    /// When to look again.
    next: Option<BootInstant>,
}

impl Schedule {
    /// Whether the task must be woken for something at `at`; once it was, it need not be woken again for later things.
    fn must_wake_for(&mut self, at: BootInstant) -> bool {
        let earlier = self.wakes_at.is_none_or(|wakes_at| at < wakes_at);
        if earlier {
            self.wakes_at = Some(at);
        }
        earlier
    }
}

fn next_step(lease: &LeaseState, renew_at: Option<BootInstant>) -> BootInstant {
    let lost_at = lease.lost_at();
    renew_at.map_or(lost_at, |renew_at| renew_at.min(lost_at))
}

struct Renewer {
    keeper: Arc<Keeper>,
    engine: Arc<dyn Engine>,
    telemetry: Arc<Telemetry>,
    command_timeout: Duration,
}

impl Renewer {
    async fn run(self: Arc<Self>) {
        let mut idle_until = None;
        loop {
            let now = self.keeper.clock.now();
            let Due { renew, ran_out, next } = self.keeper.due(now, idle_until);
            for lease in ran_out {
                lease.lose();
            }
            for batch in self.by_shard(renew) {
                tokio::spawn(self.clone().renew(batch));
            }
            let earlier = self.keeper.earlier.notified();
            let woken = match next {
                None => {
                    earlier.await;
                    true
                }
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = earlier => true,
                        () = self.keeper.clock.sleep_until(at) => false,
                    }
                }
            };
            idle_until = woken.then(|| self.keeper.clock.now() + LINGER);
        }
    }

    /// Leases of each shard of the store by themselves.
    fn by_shard(&self, due: Vec<(u64, Hold)>) -> Vec<Vec<(u64, Hold)>> {
        let mut shards: Vec<(u64, Vec<(u64, Hold)>)> = Vec::new();
        for (id, hold) in due {
            let shard = self.engine.leases().shard_of(&hold);
            match shards.iter_mut().find(|(known, _)| *known == shard) {
                Some((_, batch)) => batch.push((id, hold)),
                None => shards.push((shard, vec![(id, hold)])),
            }
        }
        shards.into_iter().map(|(_, batch)| batch).collect()
    }

    async fn renew(self: Arc<Self>, mut batch: Vec<(u64, Hold)>) {
        {
            // Released since it was due: a renewal now would undo what the release has set.
            let schedule = self.keeper.schedule();
            batch.retain(|(id, _)| schedule.leases.contains_key(id));
        }
        if batch.is_empty() {
            return;
        }
        let (ids, holds): (Vec<u64>, Vec<Hold>) = batch.into_iter().unzip();
        // A short lease cannot wait long for a connection that fell silent: it needs the time to try again.
        let shortest = holds.iter().map(|hold| hold.ttl).min().unwrap_or_default();
        let patience = self.command_timeout.min((shortest / 6).max(TRY_MIN));
        let until = self.keeper.clock.now() + patience;
        let answers = match self.engine.leases().renew(&holds, until).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); holds.len()],
        };
        // One line for all of them: an outage concerns every lease at once.
        let missed = answers.iter().filter(|answer| answer.is_err()).count();
        if let Some((hold, Err(error))) = holds.iter().zip(&answers).find(|(_, answer)| answer.is_err()) {
            tracing::error!(name = %hold.name, missed, %error, "renewals got no answer");
        }
        for ((id, hold), answer) in ids.into_iter().zip(&holds).zip(answers) {
            self.renewed(id, hold, answer);
        }
    }

    fn renewed(&self, id: u64, hold: &Hold, answer: Result<Renewed, EngineError>) {
        let Some(lease) = self.keeper.schedule().leases.get(&id).map(|kept| kept.lease.clone()) else {
            return;
        };
        let now = self.keeper.clock.now();
        let again = match answer {
            Ok(Renewed::Kept { since }) => {
                self.telemetry.count(Count::renewed);
                lease.extend(since, hold.ttl);
                lease.kept_alive().then(|| now + validity::renew_interval(hold.ttl))
            }
            Ok(Renewed::Gone) => {
                self.keeper.forget(id);
                lease.lose();
                return;
            }
            Err(_) => {
                self.telemetry.count(Count::renew_miss);
                Some(now + (hold.ttl / 20).max(Duration::from_millis(10)))
            }
        };
        self.keeper.relist(id, again);
    }
}
