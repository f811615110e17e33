//! The one background thread, and waiting for what it does.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::{Error, Result};

/// Waits for a future; only where waiting is allowed.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    Ok(for_waiting()?.block_on(future))
}

/// The runtime, if this thread may wait for it. It lives as long as the process: locks that were dropped are given back even
/// after the last client is gone.
pub(super) fn for_waiting() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if Handle::try_current().is_ok() {
        return Err(Error::unsupported(
            "a blocking call in async code",
            "it would stop all tasks of this thread; use leasehold::Leasehold and await it",
        ));
    }
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let built = Builder::new_multi_thread().worker_threads(1).thread_name("leasehold").enable_all().build();
    let built = built.map_err(|error| {
        Error::unsupported("a blocking call", format!("cannot start the background thread: {error}"))
    })?;
    // Of two that were started at once one is dropped.
    Ok(RUNTIME.get_or_init(|| built))
}
