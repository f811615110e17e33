//! One worker: waits for the lock, writes under its fence, gives it back, again and again. It asks nobody before it writes, as a
//! program that was paused between its check and its write.

use std::{sync::Arc, time::Duration};

use leasehold::{Clock, Guard, Lease};
use tokio::sync::mpsc;

use super::{
    LOCK, TTL, World,
    view::{LogKind, LogRow, WorkerState, label},
};

const WRITE_EVERY: Duration = Duration::from_millis(700);
const WRITES: u32 = 5;
const REST: Duration = Duration::from_millis(600);

/// What people do to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Crash,
    Pause(Duration),
    Stop,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) id: u32,
    pub(super) state: WorkerState,
    pub(super) lease: Option<Lease>,
    pub(super) paused_until_ms: u64,
    pub(super) writes: u64,
    pub(super) rejected: u64,
    commands: mpsc::Sender<Command>,
}

impl Worker {
    pub(super) fn new(id: u32, commands: mpsc::Sender<Command>) -> Self {
        let (state, lease) = (WorkerState::Waiting, None);
        Self { id, state, lease, paused_until_ms: 0, writes: 0, rejected: 0, commands }
    }

    pub(super) fn lives(&self) -> bool {
        !matches!(self.state, WorkerState::Crashed | WorkerState::Stopped)
    }

    /// One that is paused takes it when it goes on; more than a few are dropped.
    pub(super) fn command(&self, command: Command) {
        let _full = self.commands.try_send(command);
    }
}

pub(super) fn start(world: Arc<World>, id: u32) -> mpsc::Sender<Command> {
    let (sender, commands) = mpsc::channel(4);
    let over = world.over();
    let life = Life { world, id, commands, clock: Clock::system() };
    tokio::spawn(async move { over.run_until_cancelled(life.live()).await });
    sender
}

struct Life {
    world: Arc<World>,
    id: u32,
    commands: mpsc::Receiver<Command>,
    clock: Clock,
}

impl Life {
    async fn live(mut self) {
        loop {
            self.log(LogKind::Waiting, None, "waits for the lock");
            self.become_state(WorkerState::Waiting, None);
            let Some(guard) = self.acquire().await else { return };
            let Some(guard) = self.work(guard).await else { return };
            self.give_back(guard).await;
            if self.rest(REST).await.is_some_and(|command| self.ends(command)) {
                return;
            }
        }
    }

    async fn acquire(&mut self) -> Option<Guard> {
        let lock = self.world.leases.lock(LOCK).ttl(TTL).label(label(self.id)).wait_forever();
        let mut acquired = std::pin::pin!(lock.acquire());
        loop {
            let command = tokio::select! {
                biased;
                command = self.commands.recv() => command,
                guard = &mut acquired => return guard.ok(),
            };
            match command {
                Some(Command::Pause(pause)) => {
                    self.pause(pause).await;
                    self.become_state(WorkerState::Waiting, None);
                }
                Some(command) => {
                    self.ends(command);
                    return None;
                }
                None => return None,
            }
        }
    }

    /// Writes under the fence. `None` if the worker is over.
    async fn work(&mut self, guard: Guard) -> Option<Guard> {
        let fence = guard.fence().get();
        self.log(LogKind::Acquired, Some(fence), &format!("has the lock under fence {fence}"));
        self.become_state(WorkerState::Holding, Some(guard.lease()));
        for _ in 0..WRITES {
            match self.rest(WRITE_EVERY).await {
                Some(Command::Crash) => {
                    // Nobody gives it back: it ends with its ttl.
                    drop(guard.detach());
                    self.ends(Command::Crash);
                    return None;
                }
                Some(Command::Stop) => {
                    self.give_back(guard).await;
                    self.ends(Command::Stop);
                    return None;
                }
                Some(Command::Pause(pause)) => {
                    self.pause(pause).await;
                    self.become_state(WorkerState::Holding, Some(guard.lease()));
                }
                None => {}
            }
            if !self.world.write(self.id, fence, self.wall_ms()) || guard.extend().await.is_err() {
                self.log(LogKind::Lost, Some(fence), "learns that its lease had ended");
                return Some(guard);
            }
        }
        Some(guard)
    }

    async fn give_back(&self, guard: Guard) {
        let (fence, was_held) = (guard.fence().get(), guard.is_held());
        if guard.release().await.is_ok() && was_held {
            self.log(LogKind::Released, Some(fence), "gives the lock back");
        }
        self.become_state(WorkerState::Waiting, None);
    }

    /// Waits, unless somebody commands something.
    async fn rest(&mut self, time: Duration) -> Option<Command> {
        tokio::time::timeout(time, self.commands.recv()).await.ok().flatten()
    }

    async fn pause(&self, pause: Duration) {
        self.log(LogKind::Paused, None, &format!("is paused for {:.0} s", pause.as_secs_f64()));
        let until = self.wall_ms() + u64::try_from(pause.as_millis()).unwrap_or(0);
        self.world.change(self.id, |worker| {
            (worker.state, worker.paused_until_ms) = (WorkerState::Paused, until);
        });
        tokio::time::sleep(pause).await;
        self.log(LogKind::Resumed, None, "goes on, and knows nothing of the pause");
    }

    /// Notes an end; true if it is one.
    fn ends(&self, command: Command) -> bool {
        match command {
            Command::Crash => {
                self.log(LogKind::Crashed, None, "crashed and gives nothing back");
                self.become_state(WorkerState::Crashed, None);
            }
            Command::Stop => self.become_state(WorkerState::Stopped, None),
            Command::Pause(_) => return false,
        }
        true
    }

    fn become_state(&self, state: WorkerState, lease: Option<Lease>) {
        self.world.change(self.id, |worker| {
            (worker.state, worker.lease, worker.paused_until_ms) = (state, lease, 0);
        });
    }

    fn log(&self, kind: LogKind, fence: Option<u64>, what: &str) {
        let text = format!("worker {} {what}", self.id);
        self.world.log(LogRow { seq: 0, at_ms: self.wall_ms(), worker: self.id, kind, fence, text });
    }

    fn wall_ms(&self) -> u64 {
        self.clock.wall_us() / 1000
    }
}
