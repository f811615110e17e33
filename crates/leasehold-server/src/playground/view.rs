//! The playground as people see it.

use leasehold::{Holder, Lease};
use schemars::JsonSchema;
use serde::Serialize;

use super::{LOCK, TTL, World};
use crate::views::millis;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WorkerState {
    Waiting,
    Holding,
    Paused,
    Crashed,
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogKind {
    Waiting,
    Acquired,
    Wrote,
    Rejected,
    Released,
    Lost,
    Crashed,
    Paused,
    Resumed,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct LogRow {
    pub(super) seq: u64,
    pub(super) at_ms: u64,
    pub(super) worker: u32,
    pub(super) kind: LogKind,
    pub(super) fence: Option<u64>,
    pub(super) text: String,
}

/// What the lock protects.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Register {
    /// The highest fence that it has seen.
    pub(super) fence: u64,
    pub(super) value: String,
    pub(super) writes: u64,
    pub(super) rejected: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WorkerRow {
    id: u32,
    label: String,
    state: WorkerState,
    fence: Option<u64>,
    valid_for_ms: u64,
    /// Whether it thinks that it holds the lock.
    believes: bool,
    place: Option<usize>,
    paused_for_ms: u64,
    writes: u64,
    rejected: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Playground")]
pub(crate) struct PlaygroundView {
    at_ms: u64,
    lock: &'static str,
    ttl_ms: u64,
    workers: Vec<WorkerRow>,
    register: Register,
    holder: Option<u32>,
    /// Those that wait, next first.
    queue: Vec<u32>,
    /// Newest first.
    log: Vec<LogRow>,
}

pub(super) fn label(id: u32) -> String {
    format!("worker {id}")
}

fn id_of(holder: &Holder) -> Option<u32> {
    let Holder::Leasehold { label, .. } = holder else { return None };
    label.strip_prefix("worker ")?.parse().ok()
}

impl World {
    pub(crate) async fn view(&self, at_ms: u64) -> PlaygroundView {
        let seen = self.leases.inspect(LOCK).await.ok();
        let holder = seen.as_ref().and_then(|seen| id_of(&seen.held()?.holder));
        let queue: Vec<_> =
            seen.iter().flat_map(|seen| &seen.waiters).filter_map(|it| id_of(&it.holder)).collect();
        let state = self.state();
        let workers = state.workers.iter().map(|worker| WorkerRow {
            id: worker.id,
            label: label(worker.id),
            state: worker.state,
            fence: worker.lease.as_ref().map(|lease| lease.fence().get()),
            valid_for_ms: worker.lease.as_ref().map(Lease::remaining).map_or(0, millis),
            believes: worker.lease.is_some() && worker.lives(),
            place: queue.iter().position(|id| *id == worker.id).map(|ahead| ahead + 1),
            paused_for_ms: worker.paused_until_ms.saturating_sub(at_ms),
            writes: worker.writes,
            rejected: worker.rejected,
        });
        PlaygroundView {
            at_ms,
            lock: LOCK,
            ttl_ms: millis(TTL),
            workers: workers.collect(),
            register: state.register.clone(),
            holder,
            queue,
            log: state.log.clone(),
        }
    }
}
