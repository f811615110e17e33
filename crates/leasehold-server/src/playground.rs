//! Workers on a memory engine of their own that people can crash and pause, to see what a lease and a fence do. Nothing of it
//! touches the store of the service.

mod view;
mod worker;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{Leasehold, clock::BootInstant};
use tokio_util::sync::CancellationToken;

pub(crate) use view::PlaygroundView;

use crate::{
    events::Topic,
    problem::{Problem, Result},
    state::App,
};
use view::{LogKind, LogRow, Register};
pub(crate) use worker::Command;
use worker::Worker;

/// What the workers take turns with.
pub(super) const LOCK: &str = "ledger";
pub(super) const TTL: Duration = Duration::from_secs(5);
const WORKERS_MAX: usize = 8;
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(30);
const LOG_MAX: usize = 60;
/// It stops when nobody has asked for it for so long.
const IDLE: Duration = Duration::from_secs(600);
/// Event clients get at most so many of its states a second.
const PUBLISH_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(crate) struct Playground {
    world: Mutex<Option<Arc<World>>>,
    asked_at: Mutex<Option<BootInstant>>,
}

/// One playground, from its first request to its end.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) leases: Leasehold,
    state: Mutex<State>,
    over: CancellationToken,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) workers: Vec<Worker>,
    pub(super) register: Register,
    pub(super) log: Vec<LogRow>,
    pub(super) lines: u64,
    made: u32,
    is_news: bool,
}

impl Playground {
    fn world(&self) -> MutexGuard<'_, Option<Arc<World>>> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked_at(&self) -> MutexGuard<'_, Option<BootInstant>> {
        self.asked_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world, begun by the first who asks.
    pub(crate) fn enter(&self, app: &App) -> Result<Arc<World>> {
        *self.asked_at() = Some(app.clock.now());
        let mut world = self.world();
        if let Some(world) = &*world {
            return Ok(world.clone());
        }
        let leases = Leasehold::connect_lazy("memory:")?;
        let (state, over) = (Mutex::default(), app.draining.child_token());
        let made = Arc::new(World { leases, state, over });
        tokio::spawn(made.clone().publish(app.clone()));
        Ok(world.insert(made).clone())
    }

    /// Ends the world.
    pub(crate) fn reset(&self) {
        if let Some(world) = self.world().take() {
            world.over.cancel();
        }
    }

    /// Ends a world that nobody asks for.
    pub(crate) fn sweep(&self, now: BootInstant) {
        if self.asked_at().is_some_and(|at| now.since(at) >= IDLE) {
            self.reset();
        }
    }
}

impl World {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn over(&self) -> CancellationToken {
        self.over.child_token()
    }

    pub(crate) fn add(self: &Arc<Self>) -> Result<()> {
        let mut state = self.state();
        if state.workers.iter().filter(|worker| worker.lives()).count() >= WORKERS_MAX {
            let pause = Duration::from_secs(1);
            return Err(Problem::busy("playground", None, None, pause));
        }
        // Those that are gone make room.
        if state.workers.len() >= WORKERS_MAX {
            let gone = state.workers.iter().position(|worker| !worker.lives());
            gone.map(|index| state.workers.remove(index));
        }
        state.made += 1;
        let id = state.made;
        let commands = worker::start(self.clone(), id);
        state.workers.push(Worker::new(id, commands));
        state.is_news = true;
        Ok(())
    }

    pub(crate) fn command(&self, id: u32, command: Command) -> Result<()> {
        let state = self.state();
        let worker = state.workers.iter().find(|worker| worker.id == id && worker.lives());
        let worker = worker.ok_or_else(|| Problem::not_found(format!("no worker {id} lives")))?;
        worker.command(command);
        Ok(())
    }

    /// Changes something, and tells those who watch.
    pub(super) fn change(&self, id: u32, change: impl FnOnce(&mut Worker)) {
        let mut state = self.state();
        if let Some(worker) = state.workers.iter_mut().find(|worker| worker.id == id) {
            change(worker);
        }
        state.is_news = true;
    }

    /// The resource that the lock protects: it refuses a fence that is lower than one it has seen.
    pub(super) fn write(&self, id: u32, fence: u64, at_ms: u64) -> bool {
        let mut state = self.state();
        let is_taken = fence >= state.register.fence;
        let seen = state.register.fence;
        let Some(worker) = state.workers.iter_mut().find(|worker| worker.id == id) else { return is_taken };
        let text = if is_taken {
            worker.writes += 1;
            format!("worker {id} wrote under fence {fence}")
        } else {
            worker.rejected += 1;
            format!("the write of worker {id} under fence {fence} bounced: fence {seen} was here already")
        };
        let value = format!("worker {id} #{}", worker.writes);
        if is_taken {
            let writes = state.register.writes + 1;
            state.register = Register { fence, value, writes, ..state.register };
        } else {
            state.register.rejected += 1;
        }
        let kind = if is_taken { LogKind::Wrote } else { LogKind::Rejected };
        state.log(LogRow { seq: 0, at_ms, worker: id, kind, fence: Some(fence), text });
        is_taken
    }

    pub(super) fn log(&self, row: LogRow) {
        self.state().log(row);
    }

    async fn publish(self: Arc<Self>, app: App) {
        let mut every = tokio::time::interval(PUBLISH_EVERY);
        while !self.over.is_cancelled() {
            tokio::select! {
                _ = every.tick() => {}
                () = self.over.cancelled() => break,
            }
            let is_news = std::mem::take(&mut self.state().is_news);
            if is_news && app.events.clients() > 0 {
                *app.playground.asked_at() = Some(app.clock.now());
                app.events.publish(Topic::Playground, "playground", &self.view(app.wall_ms()).await);
            }
        }
        if let Err(error) = self.leases.close().await {
            tracing::debug!(%error, "the playground ended late");
        }
    }
}

impl State {
    fn log(&mut self, row: LogRow) {
        self.lines += 1;
        self.log.insert(0, LogRow { seq: self.lines, ..row });
        self.log.truncate(LOG_MAX);
        self.is_news = true;
    }
}
