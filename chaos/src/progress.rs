//! One line on the terminal during a run.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use crate::worker;

const EVERY: Duration = Duration::from_millis(250);

/// Shows what happens now; prints nothing unless stderr is a terminal.
pub(crate) struct Progress {
    shown: Arc<Mutex<Shown>>,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shown {
    faults: usize,
    now: &'static str,
}

impl Progress {
    pub(crate) fn start(seconds: u64, folder: PathBuf) -> Self {
        let shown = Arc::<Mutex<Shown>>::default();
        let task = std::io::stderr().is_terminal().then(|| {
            let shown = shown.clone();
            tokio::spawn(async move {
                let started = Instant::now();
                loop {
                    let line = {
                        let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                        let granted = worker::read_tallies(&folder).map_or(0, |tally| tally.granted);
                        let elapsed = started.elapsed().as_secs();
                        let (faults, now) = (shown.faults, shown.now);
                        format!("{elapsed} s of {seconds} s · {granted} grants · {faults} faults · {now}")
                    };
                    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
                    tokio::time::sleep(EVERY).await;
                }
            })
        });
        Self { shown, task }
    }

    pub(crate) fn show(&self, now: &'static str) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).now = now;
    }

    pub(crate) fn counts(&self, faults: usize) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).faults = faults;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
