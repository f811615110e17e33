//! The one place where `--unsafe` takes effect: coordination calls, or nothing in their place.

use leasehold::{Attempt, Guard, IdempotencyKey, Leasehold, Lock, idempotency};

use crate::Result;

/// The client, unless coordination is switched off.
#[derive(Clone)]
pub(crate) struct Protection(Option<Leasehold>);

/// What a caller got before it goes on: a lock, or nothing because nothing protects this run.
pub(crate) struct Pass(Option<Guard>);

/// Whether a request is to be executed.
pub(crate) enum Begun {
    Yours(Execution),
    /// It was executed before.
    Done,
    /// Somebody else is at it, or was and died not long ago.
    Busy,
}

/// A request that is being executed; dropped, it is given back for another try.
pub(crate) struct Execution(Option<idempotency::Execution<()>>);

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

    /// Waits for a lock that may be wrongly named.
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

    /// Begins the execution of a request; without coordination every request is a new one.
    pub(crate) async fn begin(
        &self,
        key: impl FnOnce(&Leasehold) -> leasehold::Result<IdempotencyKey>,
    ) -> Result<Begun> {
        let Some(leases) = &self.0 else { return Ok(Begun::Yours(Execution(None))) };
        Ok(match key(leases)?.begin::<()>().await? {
            idempotency::Begun::Yours(execution) => Begun::Yours(Execution(Some(execution))),
            idempotency::Begun::Completed(()) | idempotency::Begun::DoneElsewhere => Begun::Done,
            idempotency::Begun::InProgress { .. } => Begun::Busy,
            other => return Err(format!("this request is not to be executed: {other:?}").into()),
        })
    }
}

impl Pass {
    /// The fence to write with. Without a lock it is one that no check refuses.
    pub(crate) fn fence(&self) -> i64 {
        self.0.as_ref().map_or(i64::MAX, |guard| guard.fence().get().cast_signed())
    }

    /// Whether the lock can still be trusted.
    pub(crate) fn is_held(&self) -> bool {
        self.0.as_ref().is_none_or(|guard| guard.is_held())
    }

    /// Gives the lock back.
    pub(crate) async fn release(self) -> Result<()> {
        if let Some(guard) = self.0 {
            guard.release().await?;
        }
        Ok(())
    }
}

impl Execution {
    /// Tells that it was executed: nobody shall do it again.
    pub(crate) async fn complete(self) -> Result<()> {
        if let Some(execution) = self.0 {
            execution.complete(&()).await?;
        }
        Ok(())
    }

    /// Tells that it was not executed: the next one may.
    pub(crate) async fn give_back(self) -> Result<()> {
        if let Some(execution) = self.0 {
            execution.fail("not executed").await?;
        }
        Ok(())
    }
}
