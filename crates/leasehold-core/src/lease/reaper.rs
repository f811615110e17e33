//! Gives back what was dropped: releases of guards, abandons of attempts and ends of executions whose caller went away.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::task::TaskTracker;

use crate::{
    clock::{BootInstant, Clock},
    engine::{Claim, Engine, EngineError, Fault, Hold, latches, records::Settle},
    fence::Fence,
};

/// Something that must still be sent to the store.
pub(crate) enum Cleanup {
    Release(Hold),
    Abandon(Claim),
    Settle(Settle),
    /// A participant leaves a latch, and the lease that it has there. Boxed: every acquire carries a cleanup.
    Leave(Box<(latches::Request, Hold)>),
}

/// Most cleanups at a time; the ttl settles what comes on top of them.
const CLEANUPS_MAX: usize = 16_384;
/// Calls under way at the same time for one shard of the store, so that a stopped shard delays no other.
const CALLS_PER_SHARD: usize = 256;
/// First pause after a failure.
const PAUSE: Duration = Duration::from_millis(50);
/// A queue entry lapses by itself after this long, so an abandon is not tried for longer.
const ENTRY_LAPSES: Duration = Duration::from_secs(15);

/// Takes cleanups. Never blocks, never panics, also without a runtime: then the ttl does it.
#[derive(Clone)]
pub(crate) struct Reaper {
    engine: Arc<dyn Engine>,
    clock: Clock,
    command_timeout: Duration,
    /// Of each shard.
    turns: Arc<Mutex<HashMap<u64, Arc<Semaphore>>>>,
    /// Where the client was made: guards may be dropped outside of any runtime.
    runtime: Handle,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
}

impl Reaper {
    /// Needs a runtime.
    pub(crate) fn new(engine: Arc<dyn Engine>, clock: Clock, command_timeout: Duration) -> Self {
        let (turns, room) = (Arc::default(), Arc::new(Semaphore::new(CLEANUPS_MAX)));
        let (runtime, tasks) = (Handle::current(), TaskTracker::new());
        Self { engine, clock, command_timeout, turns, runtime, tasks, room }
    }

    /// Sends it in the background.
    pub(crate) fn spawn(&self, cleanup: Cleanup) {
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            let name = &cleanup.hold().name;
            tracing::error!(%name, "{CLEANUPS_MAX} locks are being given back already; this one ends with its ttl");
            return;
        };
        let (reaper, since) = (self.clone(), self.clock.now());
        let sent = async move {
            reaper.send(&cleanup, since).await;
            drop(room);
        };
        self.tasks.spawn_on(sent, &self.runtime);
    }

    /// Waits until everything was sent or given up.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Tries until the store has answered or the lease that began before `since` is over.
    async fn send(&self, cleanup: &Cleanup, since: BootInstant) {
        let hold = cleanup.hold();
        let lapses_in = match cleanup {
            Cleanup::Abandon(_) => (hold.ttl + hold.lock_delay).max(ENTRY_LAPSES),
            _ => hold.ttl + hold.lock_delay,
        };
        let mut pause = PAUSE;
        while let Err(error) = self.try_once(cleanup, &hold).await {
            let is_final = matches!(
                error.fault,
                Fault::WrongType | Fault::Corrupt | Fault::Unsupported | Fault::Ended | Fault::OtherMode
            );
            if is_final || self.clock.now() + pause >= since + lapses_in {
                tracing::error!(name = %hold.name, %error, "could not give it back; it ends with its ttl");
                return;
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Tries when it is its turn, which ends with the try.
    async fn try_once(&self, cleanup: &Cleanup, hold: &Hold) -> Result<(), EngineError> {
        let leases = self.engine.leases();
        let turns = {
            let mut shards = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(CALLS_PER_SHARD));
            shards.entry(leases.shard_of(hold)).or_insert_with(new).clone()
        };
        let _turn = turns.acquire().await;
        let until = self.clock.now() + self.command_timeout;
        match cleanup {
            Cleanup::Release(hold) => leases.give_back(hold, until).await.map(drop),
            Cleanup::Abandon(claim) => leases.abandon(claim, until).await,
            Cleanup::Settle(settle) => match self.engine.records() {
                Ok(records) => records.settle(settle, until).await.map(drop),
                Err(why) => Err(EngineError::new(Fault::Unsupported, why)),
            },
            Cleanup::Leave(leave) => match self.engine.latches() {
                Ok(latches) => latches.ask(&leave.0, until).await.map(drop),
                Err(why) => Err(EngineError::new(Fault::Unsupported, why)),
            },
        }
    }
}

impl Cleanup {
    /// What it is about. The fence of an attempt that ended is not known.
    fn hold(&self) -> Hold {
        match self {
            Self::Release(hold) => hold.clone(),
            Self::Abandon(claim) => claim.hold(Fence::new(0)),
            Self::Settle(settle) => settle.hold.clone(),
            Self::Leave(leave) => leave.1.clone(),
        }
    }
}
