//! The one background thread, and waiting for what it does.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};

/// Lives as long as the process: locks that were dropped are given back even after the last client is gone.
static RUNTIME: Mutex<Option<Arc<Runtime>>> = Mutex::new(None);

/// Waits for a future; only where waiting is allowed.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(for_waiting()?.block_on(future))
}

/// The runtime, if this thread may wait for it.
pub(super) fn for_waiting() -> Result<Arc<Runtime>> {
    if Handle::try_current().is_ok() {
        return Err(Error::unsupported(
            "a blocking call in async code",
            "it would stop all tasks of this thread; use leasehold::Leasehold and await it",
        ));
    }
    shared()
}

fn shared() -> Result<Arc<Runtime>> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*slot {
        return Ok(runtime.clone());
    }
    let built = Builder::new_multi_thread().worker_threads(1).thread_name("leasehold").enable_all().build();
    let runtime = Arc::new(built.map_err(|error| {
        Error::unsupported("a blocking call", format!("cannot start the background thread: {error}"))
    })?);
    *slot = Some(runtime.clone());
    Ok(runtime)
}
