//! Where the tasks of one client run.

use std::sync::{Arc, Mutex};

use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinHandle},
};

use crate::locked;

/// The runtime on which a client was made runs all tasks of its engine, whichever runtime calls: a short-lived one takes
/// no link and no gathered call with it. Once it has ended, the runtime of the next caller takes its place.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Option<Home>>);

struct Home {
    runtime: Handle,
    /// A task that does nothing but end with its runtime.
    alive: AbortHandle,
}

impl Drop for Home {
    fn drop(&mut self) {
        self.alive.abort();
    }
}

impl Tasks {
    /// Starts a task. It may be dropped without having run, if its runtime ends.
    pub(crate) fn spawn<T>(&self, task: T) -> Option<JoinHandle<T::Output>>
    where
        T: Future<Output: Send> + Send + 'static,
    {
        let mut home = locked(&self.0);
        if home.as_ref().is_none_or(|home| home.alive.is_finished()) {
            let runtime = Handle::try_current().ok()?;
            let alive = runtime.spawn(std::future::pending::<()>()).abort_handle();
            *home = Some(Home { runtime, alive });
        }
        home.as_ref().map(|home| home.runtime.spawn(task))
    }

    /// Takes the runtime of the caller, if there is one.
    pub(crate) fn here() -> Arc<Self> {
        let tasks = Arc::<Self>::default();
        drop(tasks.spawn(std::future::ready(())));
        tasks
    }
}
