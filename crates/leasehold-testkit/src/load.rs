//! Many tasks that acquire, hold and release a few locks, and record events.
//!
//! A test starts the [`Load`], injects faults, reads its progress, stops it, and checks the history:
//!
//! ```no_run
//! # use leasehold::Leasehold;
//! use leasehold_testkit::{Recorder, history::{History, check}, load::Load};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let leases = Leasehold::connect("memory:load").await?;
//! let file = tempfile::NamedTempFile::new()?;
//! let load = Load { tasks: 4, names: 2, ..Load::default() };
//! let tally = load.run(&[leases], Recorder::open(file.path())?, 100).await;
//! let history = History::from_files([file.path()])?;
//! assert!(check(&history).is_empty() && history.granted() >= 100, "{tally:?}");
//! # Ok(())
//! # }
//! ```

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{Error, Guard, Leasehold};
use tokio::task::JoinSet;

use crate::{Recorder, Register, history::Event, now};

/// How many grants a test needs: `short`, or the value of `LEASEHOLD_LOAD_GRANTS`, for long runs.
///
/// # Panics
/// When the variable is set and is no number.
pub fn grants(short: u64) -> u64 {
    match env::var("LEASEHOLD_LOAD_GRANTS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("LEASEHOLD_LOAD_GRANTS is no number: {text:?}")),
        Err(_) => short,
    }
}

/// What the tasks do.
#[derive(Debug, Clone)]
pub struct Load {
    /// The prefix of the names.
    pub prefix: String,
    /// The name of the process in the history: unique among the processes whose events are checked together.
    pub process: String,
    /// The number of names.
    pub names: usize,
    /// Tasks of each client.
    pub tasks: usize,
    /// How long a lease lasts.
    pub ttl: Duration,
    /// How long a task waits for a lock.
    pub wait: Duration,
    /// Longest time that a lock is held; shorter ones are mixed in.
    pub hold: Duration,
    /// Longest pause of a task between two locks; without a pause, hardly any lock is ever free.
    pub rest: Duration,
    /// How many of ten leases are kept alive.
    pub kept_of_ten: u64,
    /// The resource of each name, if there is one; see [`Load::registers`].
    pub registers: Vec<Register>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            prefix: "load".into(),
            process: "c".into(),
            names: 4,
            tasks: 16,
            ttl: Duration::from_secs(2),
            wait: Duration::from_secs(10),
            hold: Duration::from_millis(2),
            rest: Duration::ZERO,
            kept_of_ten: 5,
            registers: Vec::new(),
        }
    }
}

/// The outcomes of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Locks that were granted.
    pub granted: u64,
    /// Attempts that timed out.
    pub timed_out: u64,
    /// Attempts whose outcome is unknown.
    pub unreachable: u64,
    /// Leases that were lost while they were held.
    pub lost: u64,
    /// Writes that the resource refused, because a later holder had written.
    pub writes_refused: u64,
    /// Every other error, as text; at most 20.
    pub errors: Vec<String>,
}

impl Load {
    /// A fence-checking resource for every name, in `folder`.
    pub fn registers(mut self, folder: &std::path::Path) -> std::io::Result<Self> {
        let open = |number| {
            let name = self.name(number);
            Register::open(&folder.join(&name), &name, crate::Admission::AtLeastHighest)
        };
        self.registers = (0..self.names).map(open).collect::<std::io::Result<_>>()?;
        Ok(self)
    }

    /// Every verdict of the resources, as events for a [`History`](crate::history::History).
    pub fn writes(&self) -> std::io::Result<Vec<Event>> {
        let logs = self.registers.iter().map(Register::log).collect::<std::io::Result<Vec<_>>>()?;
        Ok(logs.into_iter().flatten().collect())
    }

    /// The name of that number.
    pub fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    /// Runs until this many locks were granted.
    pub async fn run(&self, clients: &[Leasehold], recorder: Recorder, grants: u64) -> Tally {
        let running = self.start(clients, recorder);
        while running.granted() < grants {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.stop().await
    }

    /// Starts the tasks on this runtime.
    pub fn start(&self, clients: &[Leasehold], recorder: Recorder) -> Running {
        let shared = Arc::new(Shared {
            load: self.clone(),
            recorder,
            attempts: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            over: AtomicBool::new(false),
            tally: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for (number, leases) in clients.iter().enumerate() {
            for task in 0..self.tasks {
                let (shared, leases) = (shared.clone(), leases.clone());
                tasks.spawn(shared.work(leases, format!("{}{number}", self.process), task % self.names));
            }
        }
        Running { shared, tasks }
    }
}

/// A running load; dropping it aborts its tasks.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Running {
    /// Locks granted so far.
    pub fn granted(&self) -> u64 {
        self.shared.granted.load(Ordering::Relaxed)
    }

    /// The outcomes so far.
    pub fn tally(&self) -> Tally {
        self.shared.tally()
    }

    /// Lets every task finish its current lock, and returns the outcomes.
    ///
    /// # Panics
    /// When a task has panicked.
    pub async fn stop(self) -> Tally {
        self.shared.over.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        self.shared.tally()
    }
}

#[derive(Debug)]
struct Shared {
    load: Load,
    recorder: Recorder,
    attempts: AtomicU64,
    granted: AtomicU64,
    over: AtomicBool,
    tally: Mutex<Tally>,
}

/// Pause after an error: a store that is down fails fast, and retries would become a busy loop.
const PAUSE: Duration = Duration::from_millis(20);

impl Shared {
    async fn work(self: Arc<Self>, leases: Leasehold, process: String, name: usize) {
        while !self.over.load(Ordering::Relaxed) {
            let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
            self.tenure(&leases, &process, attempt, name).await;
            self.rest(attempt).await;
        }
    }

    async fn rest(&self, attempt: u64) {
        let done_at = tokio::time::Instant::now() + self.load.rest.mul_f64(share(attempt, 3));
        while !self.over.load(Ordering::Relaxed) && tokio::time::Instant::now() < done_at {
            let look_again_at = tokio::time::Instant::now() + self.load.ttl / 4;
            tokio::time::sleep_until(done_at.min(look_again_at)).await;
        }
    }

    async fn tenure(&self, leases: &Leasehold, process: &str, attempt: u64, number: usize) {
        let (load, name) = (&self.load, self.load.name(number));
        let process = process.to_owned();
        self.recorder.record(&Event::Invoked {
            process: process.clone(),
            attempt,
            name: name.clone(),
            at: now(),
        });
        let lock = leases.lock(&name).ttl(load.ttl).wait(load.wait);
        let lock = if attempt % 10 < load.kept_of_ten { lock.keep_alive() } else { lock };
        match lock.acquire().await {
            Ok(guard) => self.hold(guard, process, attempt, number).await,
            Err(Error::TimedOut { .. }) => {
                self.recorder.record(&Event::Failed { process, attempt });
                self.note(|tally| tally.timed_out += 1);
            }
            Err(error) => {
                self.failed(error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn hold(&self, guard: Guard, process: String, attempt: u64, number: usize) {
        let (fence, at) = (guard.fence().get(), now());
        self.recorder.record(&Event::Granted {
            process: process.clone(),
            attempt,
            fence,
            at,
            valid_until: validity_from(at, &guard),
        });
        self.granted.fetch_add(1, Ordering::Relaxed);
        self.write(number, fence, &process);
        let done_at = tokio::time::Instant::now() + self.load.hold.mul_f64(share(attempt, 7));
        let mut over = false;
        while !over {
            let look_again_at = tokio::time::Instant::now() + self.load.ttl / 4;
            over = done_at <= look_again_at || self.over.load(Ordering::Relaxed);
            tokio::select! {
                () = tokio::time::sleep_until(done_at.min(look_again_at)) => {}
                () = guard.lost() => {
                    self.note(|tally| tally.lost += 1);
                    // As a holder that has not noticed the loss: the resource must refuse it.
                    self.write(number, fence, &process);
                    over = true;
                }
            }
            let at = now();
            if guard.is_held() {
                let valid_until = validity_from(at, &guard);
                self.recorder.record(&Event::Renewed { process: process.clone(), attempt, valid_until });
            }
        }
        self.recorder.record(&Event::Released { process, attempt, at: now() });
        if let Err(error) = guard.release().await {
            self.failed(error);
        }
    }

    fn write(&self, number: usize, fence: u64, process: &str) {
        if let Some(register) = self.load.registers.get(number)
            && !register.write(fence, process).expect("a register can be written")
        {
            self.note(|tally| tally.writes_refused += 1);
        }
    }

    fn failed(&self, error: Error) {
        self.note(|tally| match error {
            Error::StoreUnreachable { .. } => tally.unreachable += 1,
            other if tally.errors.len() < 20 => tally.errors.push(other.to_string()),
            _ => {}
        });
    }

    fn note(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn tally(&self) -> Tally {
        let granted = self.granted.load(Ordering::Relaxed);
        Tally { granted, ..self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }
}

/// Spreads attempts over the whole range without a random number, so that a run can be repeated.
fn share(attempt: u64, step: u64) -> f64 {
    (attempt * step % 10) as f64 / 10.0
}

/// Until when `guard` is valid. `at` was read before: a process that was stopped in between must not appear to rely on
/// it for longer.
fn validity_from(at: u64, guard: &Guard) -> u64 {
    at + guard.remaining().as_nanos() as u64
}
