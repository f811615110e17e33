//! The one place where `--unsafe` takes effect: coordination calls, or nothing in their place.

mod requests;
mod timeouts;

use leasehold::{
    Attempt, Guard, Leasehold, Lock, Marker, Protection as Protected,
    marker::{MarkerGuard, MarkerId},
};

pub(crate) use requests::Begun;
pub(crate) use timeouts::{Late, Plan, TABLE as TIMEOUTS_TABLE, Timeouts};

use crate::Result;

/// The client, unless coordination is switched off.
#[derive(Clone)]
pub(crate) struct Protection(Option<Leasehold>);

/// Permission to continue: a lock, or nothing because nothing protects this run.
pub(crate) struct Pass(Option<Guard>);

/// What a write shows to be refused once the lock has been lost.
#[derive(Clone)]
pub(crate) struct Held {
    /// For a database that knows nothing of locks. Without a lock it is the highest, which no check refuses.
    pub(crate) fence: i64,
    /// For the database that the lock is in: the statement fails unless the lock is held.
    pub(crate) assert_sql: Option<String>,
}

impl Protection {
    pub(crate) fn new(leases: Option<Leasehold>) -> Self {
        Self(leases)
    }

    /// The client; `None` with `--unsafe`.
    pub(crate) fn leases(&self) -> Option<&Leasehold> {
        self.0.as_ref()
    }

    /// Waits for a lock.
    pub(crate) async fn lock(
        &self,
        lock: impl FnOnce(&Leasehold) -> leasehold::Result<Lock>,
    ) -> leasehold::Result<Pass> {
        match &self.0 {
            Some(leases) => Ok(Pass(Some(lock(leases)?.acquire().await?))),
            None => Ok(Pass(None)),
        }
    }

    /// Tries once to acquire a lock; `None` if another holder has it.
    pub(crate) async fn try_lock(
        &self,
        lock: impl FnOnce(&Leasehold) -> leasehold::Result<Lock>,
    ) -> leasehold::Result<Option<Pass>> {
        let Some(leases) = &self.0 else { return Ok(Some(Pass(None))) };
        Ok(match lock(leases)?.try_acquire().await? {
            Attempt::Held(guard) => Some(Pass(Some(guard))),
            Attempt::Busy { .. } => None,
        })
    }
}

/// A run under a lock, or without one because of an outage.
pub(crate) enum Run {
    Held(Box<Guard>),
    Unprotected,
    /// With `--unsafe`.
    Off,
}

/// A mark that was set here, or by another process.
pub(crate) enum Mark {
    Mine(Box<MarkerGuard>),
    Taken,
    /// With `--unsafe`, or without a store.
    Off,
}

impl Protection {
    /// Waits for a lock; continues without it in an outage if the lock allows that.
    pub(crate) async fn run(
        &self,
        lock: impl FnOnce(&Leasehold) -> leasehold::Result<Lock>,
    ) -> leasehold::Result<Run> {
        let Some(leases) = &self.0 else { return Ok(Run::Off) };
        Ok(match lock(leases)?.acquire_or_proceed().await? {
            Protected::Held(guard) => Run::Held(Box::new(guard)),
            Protected::Unprotected { .. } => Run::Unprotected,
        })
    }

    /// Marks something as in progress.
    pub(crate) async fn mark(
        &self,
        marker: impl FnOnce(&Leasehold) -> leasehold::Result<Marker>,
        id: impl MarkerId,
    ) -> leasehold::Result<Mark> {
        let Some(leases) = &self.0 else { return Ok(Mark::Off) };
        Ok(match marker(leases)?.guard(id).await? {
            Attempt::Held(guard) => Mark::Mine(Box::new(guard)),
            Attempt::Busy { .. } => Mark::Taken,
        })
    }
}

impl Run {
    pub(crate) fn is_unprotected(&self) -> bool {
        matches!(self, Self::Unprotected)
    }

    /// The fence to write with; a run without a lock has none.
    pub(crate) fn fence(&self) -> Option<i64> {
        match self {
            Self::Held(guard) => Some(guard.fence().get().cast_signed()),
            Self::Unprotected | Self::Off => None,
        }
    }

    /// Releases the lock; one that cannot be released now expires with its ttl.
    pub(crate) async fn end(self) {
        if let Self::Held(guard) = self {
            drop(guard.release().await);
        }
    }
}

impl Mark {
    /// Clears the mark; one that cannot be cleared now expires with its lease.
    pub(crate) async fn end(self) {
        if let Self::Mine(guard) = self {
            drop(guard.finish().await);
        }
    }
}

impl Pass {
    /// The fence to write with. Without a lock it is the highest, which no check refuses.
    pub(crate) fn fence(&self) -> i64 {
        self.0.as_ref().map_or(i64::MAX, |guard| guard.fence().get().cast_signed())
    }

    /// What to write with.
    pub(crate) fn held(&self) -> Held {
        Held { fence: self.fence(), assert_sql: self.0.as_ref().map(Guard::assert_held_sql) }
    }

    /// Whether the lock can be trusted at this moment.
    pub(crate) fn is_held(&self) -> bool {
        self.0.as_ref().is_none_or(|guard| guard.is_held())
    }

    /// Runs a future while the lock is held; `None` if the lock was lost first, and then the future was cancelled.
    pub(crate) async fn while_held<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let Some(guard) = &self.0 else { return Some(work.await) };
        tokio::select! {
            biased;
            () = guard.lost() => None,
            done = work => Some(done),
        }
    }

    /// Releases the lock.
    pub(crate) async fn release(self) -> Result<()> {
        if let Some(guard) = self.0 {
            let _ = guard.release().await?;
        }
        Ok(())
    }
}
