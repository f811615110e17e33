//! The processes of the load, and the faults that hit them.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use leasehold_testkit::{Helper, load::Kind};

use crate::{Failure, load::TTL};

const NUMBER: usize = 3;
/// A worker ends when all its attempts have ended, and each waits a few ttls at most; the machine may be busy.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct Workers {
    config: Arc<RunConfig>,
    /// How many were started; each has a name of its own, so that none continues another's history.
    started: usize,
    running: Vec<Helper>,
}

/// What every client of a run needs.
pub(crate) struct RunConfig {
    pub(crate) url: String,
    pub(crate) kind: Kind,
    pub(crate) stem: String,
    pub(crate) folder: PathBuf,
    pub(crate) max_ttl: Duration,
}

impl Workers {
    pub(crate) fn start(config: Arc<RunConfig>) -> Self {
        let mut workers = Self { config, started: 0, running: Vec::new() };
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
        let RunConfig { url, kind, stem, folder, max_ttl } = &*self.config;
        let folder = folder.to_str().expect("a temporary folder has a printable name");
        let (name, max_ttl_ms) = (format!("w{}", self.started), max_ttl.as_millis().to_string());
        let args =
            [("--url", url.as_str()), ("--kind", kind.name()), ("--folder", folder), ("--name", &name)];
        let args = args.into_iter().chain([("--stem", stem.as_str()), ("--max-ttl-ms", &max_ttl_ms)]);
        let words: Vec<_> =
            ["worker"].into_iter().chain(args.flat_map(|(key, value)| [key, value])).collect();
        Helper::spawn_self(&words)
    }

    /// SIGKILL; another worker replaces it.
    pub(crate) fn kill(&mut self, dice: u64) {
        let index = self.choose(dice);
        self.running[index].kill9();
        self.running[index] = self.spawn();
    }

    /// SIGSTOP until every lease that it held has expired, then SIGCONT.
    pub(crate) fn stop_past_ttl(&mut self, dice: u64) {
        let worker = &self.running[self.choose(dice)];
        worker.stop();
        thread::sleep(TTL.mul_f64(1.5));
        worker.cont();
    }

    fn choose(&self, dice: u64) -> usize {
        dice as usize % self.running.len()
    }

    /// Lets the workers finish. A worker that failed fails the run: its part of the history is missing.
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
