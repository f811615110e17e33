//! Executions under an idempotency key that are in progress. The service keeps their leases alive for as long as their clients
//! ask it to.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold::{clock::BootInstant, idempotency::Execution};

use crate::problem::{Problem, Result};

#[derive(Debug)]
pub(crate) struct Executions {
    running: Mutex<HashMap<String, Running>>,
    most: usize,
}

/// An execution that a client works on.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) execution: Execution<serde_json::Value>,
    pub(crate) ttl: Duration,
    pub(crate) until: BootInstant,
}

impl Executions {
    pub(crate) fn new(most: usize) -> Self {
        Self { running: Mutex::default(), most }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn check_room(&self) -> Result<()> {
        if self.len() >= self.most {
            return Err(Problem::overloaded(format!("{} executions are in progress, the limit", self.most)));
        }
        Ok(())
    }

    pub(crate) fn add(&self, secret: String, running: Running) {
        self.running().insert(secret, running);
    }

    /// Takes an execution out, to settle it.
    pub(crate) fn take(&self, secret: &str, key: &str) -> Result<Running> {
        let mut running = self.running();
        let is_of_key = running.get(secret).is_some_and(|running| running.execution.name().as_str() == key);
        if !is_of_key {
            return Err(over(key));
        }
        running.remove(secret).ok_or_else(|| over(key))
    }

    /// Lets a client work on; returns the fence and the ttl.
    pub(crate) fn extend(
        &self,
        secret: &str,
        key: &str,
        now: BootInstant,
    ) -> Result<(u64, Duration, Duration)> {
        let mut all = self.running();
        let running = all.get_mut(secret).filter(|running| running.execution.name().as_str() == key);
        let running = running.filter(|running| running.execution.is_held()).ok_or_else(|| over(key))?;
        running.until = now + running.ttl;
        let valid_for = running.execution.remaining().min(running.ttl);
        Ok((running.execution.fence().get(), running.ttl, valid_for))
    }

    pub(crate) fn len(&self) -> usize {
        self.running().len()
    }

    /// Leaves those to their leases whose clients are silent: they may still be at work.
    pub(crate) fn sweep(&self, now: BootInstant) {
        let silent: Vec<_> = self.running().extract_if(|_, running| running.until <= now).collect();
        for (_, running) in silent {
            tracing::info!(key = %running.execution.name(), "the client of an execution is silent");
            running.execution.leave();
        }
    }

    /// Leaves all of them to their leases.
    pub(crate) fn leave_all(&self) {
        self.running().drain().for_each(|(_, running)| running.execution.leave());
    }
}

fn over(key: &str) -> Problem {
    let detail = format!(
        "no such execution of \"{key}\" is in progress here: it was settled, was not extended in time, or another service \
         began it"
    );
    Problem::gone(detail).about(key)
}
