//! The first process of a demo: starts the workers, kills some, reports progress, and shows the verdict.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Error, Leasehold, engine::Reach};
use rand::{SeedableRng, rngs::StdRng};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use tokio::signal::unix::{SignalKind, signal};

use crate::{Demo, Result, database, outage::Switch, worker::Worker, workers::Workers};

/// How a demo is run.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
pub struct Options {
    /// Where the locks are; by default in a file that only this demo uses.
    #[arg(skip)]
    pub store: Option<String>,
    /// Print the verdict as JSON.
    #[arg(skip)]
    pub json: bool,
    /// Switch coordination off, and see what breaks
    #[arg(long)]
    pub r#unsafe: bool,
    /// Amount of work, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub scale: u32,
    /// Number of workers to kill and restart before the work is done
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub kills: u32,
    /// Make the choice of victims repeatable
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Keep the database and the logs of all processes in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Variant of the demo; the page of the demo lists them
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
}

impl Options {
    /// An amount of work, scaled.
    pub(crate) fn scaled(&self, amount: u64) -> u64 {
        (amount * u64::from(self.scale) / 100).max(1)
    }
}

/// How often the supervisor polls the progress of the workers.
const POLL_EVERY: Duration = Duration::from_millis(40);
/// After this time without progress the demo itself is broken.
const PATIENCE: Duration = Duration::from_secs(90);

/// The state of a run.
pub(crate) struct Supervisor {
    pub(crate) options: Options,
    pub(crate) workers: Workers,
    pub(crate) database: Connection,
    pub(crate) switch: Switch,
    bar: ProgressBar,
    rng: StdRng,
    kills: u32,
}

impl Supervisor {
    /// Prints a line to stderr.
    pub(crate) fn print(&self, words: impl AsRef<str>) {
        let words = words.as_ref();
        self.bar.suspend(|| {
            let _closed = writeln!(anstream::stderr(), "  {words}");
        });
    }

    /// A client of the store that the workers use.
    pub(crate) async fn client(&self) -> Result<Leasehold> {
        let connecting = self.workers.template().leases_with(|builder| builder);
        tokio::time::timeout(PATIENCE, connecting).await?
    }

    /// Starts processes of a role, and prints their pids.
    pub(crate) fn start(&mut self, role: &str, count: usize) -> Result<()> {
        let pids: Vec<_> = (0..count).map(|_| self.workers.start(role)).collect::<Result<_>>()?;
        let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
        self.print(format!("{count} × {role}: pid {}", pids.join(", ")));
        Ok(())
    }

    /// Waits until all work is done, as `done` reads it from the database, and kills workers meanwhile.
    pub(crate) async fn until_done(
        &mut self,
        total: u64,
        victims: &str,
        done: impl Fn(&Connection) -> Result<u64>,
    ) -> Result<()> {
        self.until_reached(total, total, victims, done).await
    }

    /// The same, until `goal` of the work is done.
    pub(crate) async fn until_reached(
        &mut self,
        total: u64,
        goal: u64,
        victims: &str,
        done: impl Fn(&Connection) -> Result<u64>,
    ) -> Result<()> {
        self.bar.set_length(total);
        let (mut last, mut moved_at) = (0, Instant::now());
        loop {
            let now = done(&self.database)?;
            self.bar.set_position(now);
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
            // Kills are spread over all of the work.
            let due = now * u64::from(self.options.kills + 1) / total;
            if u64::from(self.kills) < due.min(u64::from(self.options.kills)) {
                self.kill(victims)?;
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        while goal == total && self.kills < self.options.kills {
            self.kill(victims)?;
        }
        Ok(())
    }

    /// Waits until a condition on the database holds.
    pub(crate) async fn until(&self, is_true: impl Fn(&Connection) -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        while !is_true(&self.database)? {
            if began.elapsed() > PATIENCE {
                return Err(format!("not finished after {PATIENCE:?}").into());
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(())
    }

    fn kill(&mut self, victims: &str) -> Result<()> {
        if let Some((killed, started)) = self.workers.kill_one(victims, &mut self.rng)? {
            self.bar.set_message(format!("kill -9 {killed}, {victims} again as {started}"));
        }
        self.kills += 1;
        Ok(())
    }
}

/// Runs a demo and prints its verdict. Returns the exit code: 0 if the invariant held, 1 if it broke, 64 for an unknown
/// variant, 70 if the demo could not finish.
pub fn run(demo: &Demo, options: &Options) -> u8 {
    if let Err(error) = demo.check_variant(options) {
        let _closed = writeln!(anstream::stderr(), "error: {error}");
        return USAGE;
    }
    match run_demo(demo, options) {
        Ok(held) => u8::from(!held),
        Err(error) => {
            let _closed = writeln!(anstream::stderr(), "the demo {} failed: {error}", demo.name);
            NOT_FINISHED
        }
    }
}

impl Demo {
    /// An unknown variant would otherwise run as the default one, with a misleading verdict.
    fn check_variant(&self, options: &Options) -> Result<()> {
        match (options.variant.as_deref(), self.variants) {
            (Some(variant), []) => Err(format!("no variant \"{variant}\": this demo has none").into()),
            (Some(variant), all) if !all.contains(&variant) => {
                Err(format!("no variant \"{variant}\": expected {}", all.join(" or ")).into())
            }
            _ => Ok(()),
        }
    }
}

/// The exit code of wrong usage.
const USAGE: u8 = 64;
/// The exit code of a demo that could not finish.
const NOT_FINISHED: u8 = 70;

fn run_demo(demo: &Demo, options: &Options) -> Result<bool> {
    let temporary = tempfile::tempdir()?;
    let folder = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("app.db");
    if file.exists() {
        return Err(format!("{} exists: choose an empty folder", file.display()).into());
    }
    let mut database = database::open(&file)?;
    (demo.set_up)(&mut database, options)?;
    let embedded = folder.join("locks.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let store = options.store.clone().unwrap_or_else(|| format!("sqlite:{}", embedded.display()));
    if !options.r#unsafe {
        runtime.block_on(try_out(&store, demo))?;
    }
    let (switch, store) = if demo.has_outage {
        runtime.block_on(Switch::before(&store, &embedded))?
    } else {
        (Switch::None, store)
    };
    let worker = Worker {
        demo: demo.name.into(),
        role: String::new(),
        number: 0,
        life: 0,
        store,
        folder,
        options: options.clone(),
    };
    let seed = options.seed.unwrap_or_else(rand::random);
    let mut supervisor = Supervisor {
        options: options.clone(),
        workers: Workers::new(worker),
        database,
        switch,
        bar: bar(),
        rng: StdRng::seed_from_u64(seed),
        kills: 0,
    };
    let mode = if options.r#unsafe { "without coordination" } else { "with coordination" };
    supervisor.print(format!("{}: {} ({mode}, seed {seed})", demo.name, demo.line));
    let began = Instant::now();
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            () = interrupted() => Err("interrupted".into()),
            outcome = (demo.supervise)(&mut supervisor) => outcome,
        }
    });
    supervisor.bar.finish_and_clear();
    supervisor.workers.kill_all()?;
    outcome?;
    let (verdict, judge) = supervisor.workers.judge()?;
    supervisor.print(format!(
        "finished in {:.1} s; {} workers killed with -9; judged from the database by pid {judge}:",
        began.elapsed().as_secs_f64(),
        supervisor.kills
    ));
    let mut out = anstream::stdout();
    if options.json {
        writeln!(out, "{}", verdict.to_json(demo.name)?)?;
        return Ok(verdict.held());
    }
    write!(out, "{}", verdict.show())?;
    if verdict.held() {
        writeln!(out, "\n  the invariant held")?;
    } else {
        writeln!(out, "\n  THE INVARIANT BROKE: {}", demo.without)?;
    }
    Ok(verdict.held())
}

/// Checks that the store is suitable and reachable. Workers do not: they wait for a store that is unreachable.
async fn try_out(store: &str, demo: &Demo) -> Result<()> {
    let leases = Leasehold::builder(store).connect_lazy()?;
    if leases.capabilities().reach == Reach::Process {
        return Err("this store is visible to one process only, and a demo has several".into());
    }
    if demo.has_records
        && let Err(error @ Error::Unsupported { .. }) = leases.idempotency("demo").key("demo").get().await
    {
        return Err(error.into());
    }
    Leasehold::connect(store).await?.close().await?;
    Ok(leases.close().await?)
}

/// Completes on SIGINT or SIGTERM, so that the processes and the folder of the demo are cleaned up.
async fn interrupted() {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return std::future::pending().await };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn bar() -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("  {bar:40} {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::with_draw_target(None, target);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
