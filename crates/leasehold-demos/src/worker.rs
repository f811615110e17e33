//! One worker process of a demo: its configuration, and how it starts and ends.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use leasehold::{Builder, Leasehold};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::{Result, database, find, protection::Protection, supervisor::Options, workers::JUDGE};

/// The environment variable that makes a copy of the program a worker.
const WORKER: &str = "LEASEHOLD_DEMO_WORKER";
const CONNECT_AGAIN: Duration = Duration::from_millis(200);

/// The configuration of a worker.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Worker {
    pub(crate) demo: String,
    pub(crate) role: String,
    /// Its number among the workers of that role.
    pub(crate) number: usize,
    /// How often it was restarted.
    pub(crate) life: u32,
    pub(crate) folder: PathBuf,
    pub(crate) store: String,
    pub(crate) options: Options,
}

impl Worker {
    /// The demo's database.
    pub(crate) fn database(&self) -> Result<Connection> {
        database::open(&self.folder.join("app.db"))
    }

    /// A client of the store, unless coordination is switched off.
    pub(crate) async fn protection(&self) -> Result<Protection> {
        self.protection_with(|builder| builder).await
    }

    /// The same with other settings.
    pub(crate) async fn protection_with(&self, set: impl Fn(Builder) -> Builder) -> Result<Protection> {
        let leases = if self.options.r#unsafe { None } else { Some(self.leases_with(set).await?) };
        Ok(Protection::new(leases))
    }

    /// A client of the store. Waits for a store that is unreachable: workers are also started while it is down.
    pub(crate) async fn leases_with(&self, set: impl Fn(Builder) -> Builder) -> Result<Leasehold> {
        let label = format!("{} {}", self.role, self.number);
        loop {
            let builder = Leasehold::builder(&self.store).configure(|config| config.label.clone_from(&label));
            match set(builder).connect().await {
                Err(error) if error.is_retryable() => tokio::time::sleep(CONNECT_AGAIN).await,
                connected => return Ok(connected?),
            }
        }
    }

    pub(crate) fn to_env(&self) -> Result<(&'static str, String)> {
        Ok((WORKER, serde_json::to_string(self)?))
    }
}

/// Runs a worker if this process was started as one; call it before anything else.
pub fn run_worker() -> Option<ExitCode> {
    let worker = std::env::var(WORKER).ok()?;
    Some(match run(&worker) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Goes into the log of this process.
            let _nobody_reads = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    })
}

fn run(worker: &str) -> Result<()> {
    let worker: Worker = serde_json::from_str(worker)?;
    let demo = find(&worker.demo).ok_or("no such demo")?;
    if worker.role == JUDGE {
        let verdict = (demo.judge)(&worker.database()?, &worker.options)?;
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.spawn(end_with_the_supervisor());
    runtime.block_on((demo.work)(worker))
}

/// Exits when the supervisor does: it holds the other end of our standard input.
async fn end_with_the_supervisor() {
    let mut nothing = Vec::new();
    let _ended = tokio::io::stdin().read_to_end(&mut nothing).await;
    std::process::exit(0);
}
