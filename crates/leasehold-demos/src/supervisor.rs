//! The first process of a demo: starts the workers, kills some, and reports progress.

use std::time::{Duration, Instant};

use leasehold::Leasehold;
use rand::rngs::StdRng;
use rusqlite::Connection;

use crate::{Result, options::Options, outage::Switch, show::Show, stage::Stage, workers::Workers};

/// How often the supervisor polls the progress of the workers.
const POLL_EVERY: Duration = Duration::from_millis(40);
/// After this time without progress the demo itself is broken.
const PATIENCE: Duration = Duration::from_secs(90);

/// The state of a run.
pub(crate) struct Supervisor {
    pub(crate) options: Options,
    pub(crate) workers: Workers,
    pub(crate) switch: Switch,
    pub(crate) show: Show,
    /// To see what killed workers hold; `None` with `--unsafe`.
    pub(crate) client: Option<Leasehold>,
    /// Servers that were started for this run.
    pub(crate) stage: Option<Stage>,
    pub(crate) rng: StdRng,
    pub(crate) kills: u32,
}

impl Supervisor {
    /// Prints a line to stderr.
    pub(crate) fn print(&self, words: impl AsRef<str>) {
        self.show.print(words);
    }

    /// One more client of the store that the workers use.
    pub(crate) async fn new_client(&self) -> Result<Leasehold> {
        tokio::time::timeout(PATIENCE, self.workers.template().connect()).await?
    }

    /// The demo's database.
    pub(crate) fn database(&self) -> Result<Connection> {
        self.workers.template().database()
    }

    /// Starts processes of a role, and prints their pids.
    pub(crate) fn start(&mut self, role: &str, count: usize) -> Result<()> {
        let pids: Vec<_> = (0..count).map(|_| self.workers.start(role)).collect::<Result<_>>()?;
        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
        self.print(format!("{count} × {role}: pid {}", pids.join(", ")));
        Ok(())
    }

    /// Waits until instances of a service have told their ports, and prints where their metrics are.
    pub(crate) async fn print_metrics(
        &self,
        count: usize,
        ports: impl Fn() -> Result<Vec<u16>>,
    ) -> Result<()> {
        self.until(|| Ok(ports()?.len() == count)).await?;
        if !self.options.r#unsafe {
            let each = ports()?.into_iter().map(|port| format!("http://127.0.0.1:{port}/metrics"));
            self.print(format!("metrics: {}", each.collect::<Vec<_>>().join(" ")));
        }
        Ok(())
    }

    /// Waits until all work is done, as `done` tells, and kills workers meanwhile.
    pub(crate) async fn until_done(
        &mut self,
        total: u64,
        victims: &str,
        done: impl Fn() -> Result<u64>,
    ) -> Result<()> {
        self.until_reached(total, total, victims, done).await
    }

    /// The same, until `goal` of the work is done.
    pub(crate) async fn until_reached(
        &mut self,
        total: u64,
        goal: u64,
        victims: &str,
        done: impl Fn() -> Result<u64>,
    ) -> Result<()> {
        self.show.progress_of(total);
        let (mut last, mut moved_at) = (0, Instant::now());
        loop {
            let now = done()?;
            self.show.bar.set_position(now);
            if now >= goal {
                break;
            }
            if now > last {
                (last, moved_at) = (now, Instant::now());
            }
            if moved_at.elapsed() > PATIENCE {
                return Err(format!("{now} of {total} done, and no progress for {PATIENCE:?}").into());
            }
            self.workers.check()?;
            self.play_stage(now, total);
            // Kills are spread over all of the work.
            let due = now * u64::from(self.options.kills + 1) / total;
            if u64::from(self.kills) < due.min(u64::from(self.options.kills)) {
                self.kill(victims).await?;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        while goal == total && self.kills < self.options.kills {
            self.kill(victims).await?;
        }
        Ok(())
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, is_true: impl Fn() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !is_true()? {
            if began.elapsed() > PATIENCE {
                return Err(format!("not finished after {PATIENCE:?}").into());
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(())
    }
}
