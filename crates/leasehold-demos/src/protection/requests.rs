//! Requests that are executed once, or every time with `--unsafe`.

use leasehold::{IdempotencyKey, Leasehold, idempotency};

use super::Protection;
use crate::Result;

/// Whether a request is to be executed.
pub(crate) enum Begun {
    Yours(Execution),
    /// It was executed before.
    Done,
    /// Another holder is working on it, or was until it died recently.
    Busy,
}

/// A request that is being executed; dropped, it is given back in the background.
pub(crate) struct Execution(Option<Box<idempotency::Execution<()>>>);

impl Protection {
    /// Begins the execution of a request; without coordination every request is a new one.
    pub(crate) async fn begin(
        &self,
        key: impl FnOnce(&Leasehold) -> leasehold::Result<IdempotencyKey>,
    ) -> Result<Begun> {
        let Some(leases) = self.leases() else { return Ok(Begun::Yours(Execution(None))) };
        Ok(match key(leases)?.begin::<()>().await? {
            idempotency::Begun::Yours(execution) => Begun::Yours(Execution(Some(Box::new(execution)))),
            idempotency::Begun::Completed(()) | idempotency::Begun::DoneElsewhere => Begun::Done,
            idempotency::Begun::InProgress { .. } => Begun::Busy,
            other => return Err(format!("this request must not be executed: {other:?}").into()),
        })
    }
}

impl Execution {
    /// Records that it was executed, so that it is not executed again.
    pub(crate) async fn complete(self) -> Result<()> {
        if let Some(execution) = self.0 {
            execution.complete(&()).await?;
        }
        Ok(())
    }

    /// Records that it was not executed, so that the next attempt may execute it.
    pub(crate) async fn give_back(self) -> Result<()> {
        if let Some(execution) = self.0 {
            execution.fail("not executed").await?;
        }
        Ok(())
    }
}
