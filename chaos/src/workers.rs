//! The processes of the load, and what is done to them.

use std::{path::PathBuf, thread, time::Duration};

use leasehold_testkit::Helper;

use crate::{Failure, load::TTL, worker::Orders};

const NUMBER: usize = 3;
/// A worker ends when all its attempts have, and each waits a few ttls at most; the machine may be busy.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Workers {
    url: String,
    stem: String,
    folder: PathBuf,
    /// How many were started; each has a name of its own, so that none continues another's history.
    started: usize,
    running: Vec<Helper>,
}

impl Workers {
    pub(crate) fn start(url: String, stem: String, folder: PathBuf) -> Self {
        let mut workers = Self { url, stem, folder, started: 0, running: Vec::new() };
        for _ in 0..NUMBER {
            let worker = workers.spawn();
            workers.running.push(worker);
        }
        workers
    }

    pub(crate) fn started(&self) -> usize {
        self.started
    }

    fn spawn(&mut self) -> Helper {
        self.started += 1;
        let name = format!("w{}", self.started);
        Helper::spawn_self(&Orders::words(&self.url, &self.folder, &name, &self.stem))
    }

    /// SIGKILL; another one takes its place.
    pub(crate) fn kill(&mut self, dice: u64) {
        let index = self.choose(dice);
        self.running[index].kill9();
        self.running[index] = self.spawn();
    }

    /// SIGSTOP until every lease that it had is over, then SIGCONT.
    pub(crate) fn stop_past_ttl(&mut self, dice: u64) {
        let worker = &self.running[self.choose(dice)];
        worker.stop();
        thread::sleep(TTL.mul_f64(1.5));
        worker.cont();
    }

    fn choose(&self, dice: u64) -> usize {
        dice as usize % self.running.len()
    }

    /// Lets them finish. A worker that failed fails the run: its part of the history is missing.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.running.iter().for_each(Helper::term);
        for worker in &self.running {
            let status = worker.wait(ENDS_WITHIN);
            if !status.success() {
                return Err(format!("a worker failed ({status}):\n{}", worker.stderr()).into());
            }
        }
        Ok(())
    }
}
