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

/// What a caller got before it goes on: a lock, or nothing because nothing protects this run.
pub(crate) struct Pass(Option<Guard>);

impl Protection {
    pub(crate) fn new(leases: Option<Leasehold>) -> Self {
        Self(leases)
    }

    /// The client; `None` with `--unsafe`.
    pub(crate) fn leases(&self) -> Option<&Leasehold> {
        self.0.as_ref()
    }

    /// Waits for a lock.
    pub(crate) async fn lock(&self, lock: impl FnOnce(&Leasehold) -> Lock) -> leasehold::Result<Pass> {
        self.lock_of_policy(|leases| Ok(lock(leases))).await
    }

    /// Waits for a lock whose policy may not exist.
    pub(crate) async fn lock_of_policy(
        &self,
        lock: impl FnOnce(&Leasehold) -> leasehold::Result<Lock>,
    ) -> leasehold::Result<Pass> {
        match &self.0 {
            Some(leases) => Ok(Pass(Some(lock(leases)?.acquire().await?))),
            None => Ok(Pass(None)),
        }
    }

    /// Asks once for a lock; `None` if somebody else has it.
    pub(crate) async fn try_lock(
        &self,
        lock: impl FnOnce(&Leasehold) -> Lock,
    ) -> leasehold::Result<Option<Pass>> {
        let Some(leases) = &self.0 else { return Ok(Some(Pass(None))) };
        Ok(match lock(leases).try_acquire().await? {
            Attempt::Held(guard) => Some(Pass(Some(guard))),
            Attempt::Busy { .. } => None,
        })
    }
}

/// A run under a lock, or one that an outage left without.
pub(crate) enum Run {
    Held(Box<Guard>),
    Unprotected,
    /// With `--unsafe`.
    Off,
}

/// A mark of one's own, or somebody else's.
pub(crate) enum Mark {
    Mine(Box<MarkerGuard>),
    Taken,
    /// With `--unsafe`, or without a store.
    Off,
}

impl Protection {
    /// Waits for a lock; goes on without it in an outage if the lock says so.
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

    /// Marks something as being worked on.
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

    /// Whether its lock, if it has one, can be trusted at this moment.
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Held(guard) => guard.is_held(),
            Self::Unprotected | Self::Off => true,
        }
    }

    /// Gives the lock back; one that cannot be given back now ends with its ttl.
    pub(crate) async fn end(self) {
        if let Self::Held(guard) = self {
            drop(guard.release().await);
        }
    }
}

impl Mark {
    /// Clears the mark; one that cannot be cleared now ends with its lease.
    pub(crate) async fn end(self) {
        if let Self::Mine(guard) = self {
            drop(guard.finish().await);
        }
    }
}

impl Pass {
    /// The fence to write with. Without a lock it is one that no check refuses.
    pub(crate) fn fence(&self) -> i64 {
        self.0.as_ref().map_or(i64::MAX, |guard| guard.fence().get().cast_signed())
    }

    /// Whether the lock can be trusted at this moment.
    pub(crate) fn is_held(&self) -> bool {
        self.0.as_ref().is_none_or(|guard| guard.is_held())
    }

    /// Does something while the lock lasts; `None` if it was lost before the end, and then it is not done to the end.
    pub(crate) async fn while_held<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let Some(guard) = &self.0 else { return Some(work.await) };
        tokio::select! {
            biased;
            () = guard.lost() => None,
            done = work => Some(done),
        }
    }

    /// Gives the lock back.
    pub(crate) async fn release(self) -> Result<()> {
        if let Some(guard) = self.0 {
            guard.release().await?;
        }
        Ok(())
    }
}
