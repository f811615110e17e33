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
        // Without the lock: a runtime that ends drops the task, and with it what may start another.
        let runtime = self.runtime()?;
        Some(runtime.spawn(task))
    }

    fn runtime(&self) -> Option<Handle> {
        let mut home = locked(&self.0);
        if home.as_ref().is_none_or(|home| home.alive.is_finished()) {
            let runtime = Handle::try_current().ok()?;
            let alive = runtime.spawn(std::future::pending::<()>()).abort_handle();
            *home = Some(Home { runtime, alive });
        }
        home.as_ref().map(|home| home.runtime.clone())
    }

    /// Takes the runtime of the caller, if there is one.
    pub(crate) fn here() -> Arc<Self> {
        let tasks = Arc::<Self>::default();
        drop(tasks.spawn(std::future::ready(())));
        tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts another one when it is dropped, as what carries operations does.
    struct Again(Arc<Tasks>, usize);

    impl Drop for Again {
        fn drop(&mut self) {
            if self.1 > 0 {
                let again = Self(self.0.clone(), self.1 - 1);
                drop(self.0.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(again);
                }));
            }
        }
    }

    #[test]
    fn a_task_that_ends_with_its_runtime_may_start_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let tasks = Tasks::here();
            drop(Again(tasks.clone(), 3));
            tokio::task::yield_now().await;
        });
        let (over, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(runtime);
            over.send(()).unwrap();
        });
        ended.recv_timeout(std::time::Duration::from_secs(60)).expect("the runtime ends");
    }
}
