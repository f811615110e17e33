//! One worker process of a demo: its configuration, and how it starts and ends.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use leasehold::{Builder, Config, Leasehold, Policies};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::{Result, database, find, options::Options, policy, protection::Protection, workers::JUDGE};

/// The environment variable that makes a copy of the program a worker.
const WORKER: &str = "LEASEHOLD_DEMO_WORKER";
const CONNECT_AGAIN: Duration = Duration::from_millis(200);
/// Nodes of a quorum that forgot their votes vote again after this time.
pub(crate) const QUORUM_TTL_MAX: Duration = Duration::from_secs(2);

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
    /// Tells the keys of this run from all others.
    pub(crate) run: String,
    /// The policies of this run, as a file would have them.
    pub(crate) policies: String,
    pub(crate) options: Options,
}

impl Worker {
    /// The demo's database.
    pub(crate) fn database(&self) -> Result<Connection> {
        database::open(&self.folder.join("app.db"))
    }

    /// Its name among all workers.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.role, self.number)
    }

    /// A client of the store, unless coordination is switched off. Waits for a store that is unreachable: workers are also
    /// started while it is down.
    pub(crate) async fn protection(&self) -> Result<Protection> {
        Ok(Protection::new(if self.options.r#unsafe { None } else { Some(self.connect().await?) }))
    }

    /// The same without waiting for the store: every call finds out for itself whether it is there.
    pub(crate) fn protection_at_once(&self, set: impl Fn(Builder) -> Builder) -> Result<Protection> {
        let leases =
            || Ok::<_, Box<dyn std::error::Error + Send + Sync>>(set(self.client()?).connect_lazy()?);
        Ok(Protection::new(if self.options.r#unsafe { None } else { Some(leases()?) }))
    }

    /// A client of the store; waits for it.
    pub(crate) async fn connect(&self) -> Result<Leasehold> {
        loop {
            match self.client()?.connect().await {
                Err(error) if error.is_retryable() => tokio::time::sleep(CONNECT_AGAIN).await,
                connected => return Ok(connected?),
            }
        }
    }

    /// A client with the settings and policies of this run.
    fn client(&self) -> Result<Builder> {
        let policies = Policies::parse(&self.policies, "the policies of this run")?;
        let is_quorum = self.store.starts_with("redlock");
        Ok(Leasehold::builder(&self.store).policies(policies).configure(|config| {
            config.label = self.name();
            config.ttl = policy::faster(Config::default().ttl);
            if is_quorum {
                config.max_ttl = QUORUM_TTL_MAX;
            }
        }))
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
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _entered = runtime.enter();
    if worker.role == JUDGE {
        let verdict = (demo.judge)(&worker)?;
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
        return Ok(());
    }
    runtime.spawn(end_with_the_supervisor());
    runtime.block_on((demo.work)(worker))
}

/// Exits when the supervisor does: it holds the other end of our standard input.
async fn end_with_the_supervisor() {
    let mut nothing = Vec::new();
    let _ended = tokio::io::stdin().read_to_end(&mut nothing).await;
    std::process::exit(0);
}
