//! Checks recovery: acquires the lock of every name anew.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{Error, Leasehold, Mode};
use leasehold_testkit::{Recorder, history::Event, now};
use tokio::task::JoinSet;

use crate::{
    Failure,
    load::{self, TTL},
    workers::RunConfig,
};

const PROCESS: &str = "probe";
/// Pause after an error: a store that is down fails fast, and retries would become a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// A separate client whose grants are part of the history.
#[derive(Clone)]
pub(crate) struct Probe {
    leases: Leasehold,
    mode: Mode,
    names: Vec<String>,
    recorder: Arc<Recorder>,
    attempts: Arc<AtomicU64>,
}

impl Probe {
    pub(crate) fn new(config: &RunConfig) -> Result<Self, Failure> {
        let (folder, kind) = (&config.folder, config.kind);
        let quick = load::quick(&config.stem, PROCESS);
        let leases = load::connect(&config.url, config.max_ttl)?;
        if let Some(why) = kind.lack(leases.capabilities()) {
            return Err(format!("this topology has no {kind}: {why}").into());
        }
        Ok(Self {
            leases,
            mode: kind.mode(0),
            names: (0..quick.names).map(|number| quick.name(number)).collect(),
            recorder: Arc::new(Recorder::open(&folder.join(format!("{PROCESS}.events")))?),
            attempts: Arc::default(),
        })
    }

    /// Whether every name could be locked within this time.
    pub(crate) async fn all_granted(&self, within: Duration) -> bool {
        let mut asking = JoinSet::new();
        for name in self.names.clone() {
            let probe = self.clone();
            asking.spawn(async move { while !probe.is_granted(&name).await {} });
        }
        tokio::time::timeout(within, asking.join_all()).await.is_ok()
    }

    async fn is_granted(&self, name: &str) -> bool {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let process = || PROCESS.to_owned();
        self.recorder.record(&Event::Invoked {
            process: process(),
            attempt,
            name: name.to_owned(),
            at: now(),
        });
        self.recorder.record(&Event::Asked { process: process(), attempt, mode: self.mode });
        match self.leases.lock(name).mode(self.mode).ttl(TTL).wait(3 * TTL).acquire().await {
            Ok(guard) => {
                let at = now();
                self.recorder.record(&Event::Granted {
                    process: process(),
                    attempt,
                    fence: guard.fence().get(),
                    at,
                    valid_until: at + guard.remaining().as_nanos() as u64,
                });
                self.recorder.record(&Event::Released { process: process(), attempt, at: now() });
                // Best effort: another fault may follow, and the lock expires with its ttl.
                let _ = guard.release().await;
                true
            }
            Err(Error::TimedOut { .. }) => {
                self.recorder.record(&Event::Failed { process: process(), attempt });
                false
            }
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                false
            }
        }
    }
}
