//! Gives back what was dropped: releases of guards, abandons of attempts and ends of executions whose caller went away.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::{
    clock::{BootInstant, Clock},
    engine::{Claim, Engine, EngineError, Fault, Hold, records::Settle},
};

/// Something the store must still be told.
#[derive(Debug)]
enum Debt {
    Release(Hold),
    /// The lock stays closed for the hold's ttl and is then free.
    Shorten(Hold),
    Abandon(Claim),
    Settle(Settle),
    /// Answers once everything before it was settled or given up.
    Drain(oneshot::Sender<()>),
}

/// Where debts are left. Never blocks, never panics, also without a runtime: then the ttl settles the debt.
#[derive(Clone)]
pub(crate) struct Reaper {
    debts: mpsc::UnboundedSender<(Debt, BootInstant)>,
    clock: Clock,
}

/// Debts settled at the same time; more wait their turn.
const AT_ONCE: usize = 256;
/// First pause after a failure.
const PAUSE: Duration = Duration::from_millis(50);
/// A queue entry lapses by itself after this long, so an abandon is not tried for longer.
const ENTRY_LAPSES: Duration = Duration::from_secs(15);

impl Reaper {
    /// Starts the task. It ends when every `Reaper` is gone and the debts are settled.
    pub(crate) fn start(engine: Arc<dyn Engine>, clock: Clock, command_timeout: Duration) -> Self {
        let (debts, mut owed) = mpsc::unbounded_channel();
        let reaper = Self { debts, clock: clock.clone() };
        tokio::spawn(async move {
            let tracker = TaskTracker::new();
            let turns = Arc::new(Semaphore::new(AT_ONCE));
            let settler = Arc::new(Settler { engine, clock, command_timeout });
            while let Some((debt, since)) = owed.recv().await {
                if let Debt::Drain(done) = debt {
                    tracker.close();
                    tracker.wait().await;
                    tracker.reopen();
                    let _ = done.send(());
                    continue;
                }
                let Ok(turn) = turns.clone().acquire_owned().await else { return };
                let settler = settler.clone();
                tracker.spawn(async move {
                    settler.settle(debt, since).await;
                    drop(turn);
                });
            }
        });
        reaper
    }

    /// Leaves a debt; it counts from now, however long it waits for its turn.
    fn owe(&self, debt: Debt) -> bool {
        self.debts.send((debt, self.clock.now())).is_ok()
    }

    /// Gives a lease back in the background.
    pub(crate) fn release(&self, hold: Hold) {
        self.owe(Debt::Release(hold));
    }

    /// Lets a lease run out after the hold's ttl, in the background.
    pub(crate) fn shorten(&self, hold: Hold) {
        self.owe(Debt::Shorten(hold));
    }

    /// Ends an attempt in the background.
    pub(crate) fn abandon(&self, claim: Claim) {
        self.owe(Debt::Abandon(claim));
    }

    /// Ends an execution in the background.
    pub(crate) fn settle(&self, settle: Settle) {
        self.owe(Debt::Settle(settle));
    }

    /// Waits until all debts so far are settled.
    pub(crate) async fn drained(&self) {
        let (done, all_settled) = oneshot::channel();
        if self.owe(Debt::Drain(done)) {
            let _ = all_settled.await;
        }
    }
}

struct Settler {
    engine: Arc<dyn Engine>,
    clock: Clock,
    command_timeout: Duration,
}

impl Settler {
    async fn settle(&self, debt: Debt, since: BootInstant) {
        let (name, lapses_in) = match &debt {
            Debt::Release(hold) | Debt::Shorten(hold) => (hold.name.clone(), hold.ttl + hold.lock_delay),
            Debt::Abandon(claim) => (claim.name.clone(), (claim.ttl + claim.lock_delay).max(ENTRY_LAPSES)),
            Debt::Settle(settle) => (settle.hold.name.clone(), settle.hold.ttl),
            Debt::Drain(_) => return,
        };
        let give_up = since + lapses_in;
        let mut pause = PAUSE;
        loop {
            let until = self.clock.now() + self.command_timeout;
            match self.try_once(&debt, until).await {
                Ok(()) => return,
                Err(error) if !worth_repeating(&error) || self.clock.now() + pause >= give_up => {
                    tracing::error!(%name, %error, "could not give it back; it ends with its ttl");
                    return;
                }
                Err(_) => {}
            }
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    async fn try_once(&self, debt: &Debt, until: BootInstant) -> Result<(), EngineError> {
        match debt {
            Debt::Release(hold) => self.engine.leases().release(hold, until).await.map(drop),
            Debt::Shorten(hold) => {
                let mut answers = self.engine.leases().renew(std::slice::from_ref(hold), until).await?;
                answers.pop().unwrap_or_else(|| Err(EngineError::no_answer())).map(drop)
            }
            Debt::Abandon(claim) => self.engine.leases().abandon(claim, until).await,
            Debt::Settle(settle) => match self.engine.records() {
                Ok(records) => records.settle(settle, until).await.map(drop),
                Err(why) => Err(EngineError::new(Fault::Unsupported, why)),
            },
            Debt::Drain(_) => Ok(()),
        }
    }
}

fn worth_repeating(error: &EngineError) -> bool {
    match error.fault {
        Fault::Unreachable | Fault::NoAnswer | Fault::Overloaded | Fault::Refused(_) => true,
        Fault::WrongType | Fault::Corrupt | Fault::Unsupported | Fault::Ended => false,
    }
}
