//! Many tasks that acquire, hold and release a few locks of some [`Kind`], and record events.
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

mod kind;
mod operator;
mod tenure;

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{Error, Leasehold, Refusal, engine::Capabilities};
use tokio::task::JoinSet;

pub use kind::Kind;
use tenure::Attempt;

use crate::{Recorder, Register, history::Event};

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
    /// What they compete for.
    pub kind: Kind,
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
    /// How many of ten leases are kept alive; a leader's always is.
    pub kept_of_ten: u64,
    /// Whether the limits of semaphores change all the time. Of several processes one does that.
    pub operates: bool,
    /// The resource of each name, if there is one; see [`Load::registers`].
    pub registers: Vec<Register>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            kind: Kind::Exclusive,
            prefix: "load".into(),
            process: "c".into(),
            names: 4,
            tasks: 16,
            ttl: Duration::from_secs(2),
            wait: Duration::from_secs(10),
            hold: Duration::from_millis(2),
            rest: Duration::ZERO,
            kept_of_ten: 5,
            operates: true,
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
    /// Calls that the store refused because its memory was full.
    pub out_of_memory: u64,
    /// Leases that were lost while they were held.
    pub lost: u64,
    /// Writes that the resource refused, because a later holder had written.
    pub writes_refused: u64,
    /// Every other error, as text; at most 20.
    pub errors: Vec<String>,
}

impl Load {
    /// The same for each kind that a store has. Half of the tasks want exclusive locks.
    pub fn of_each_kind(&self, store: &Capabilities) -> Vec<Self> {
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.lack(store).is_none());
        kinds.map(|kind| self.of_kind(kind)).collect()
    }

    /// One of them, with names of its own.
    pub fn of_kind(&self, kind: Kind) -> Self {
        let few = |all: usize| if kind == Kind::Exclusive { all } else { all.div_ceil(3) };
        Self {
            kind,
            prefix: format!("{}-{kind}", self.prefix),
            process: format!("{}-{kind}-", self.process),
            names: few(self.names),
            tasks: few(self.tasks),
            ..self.clone()
        }
    }

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
        if self.kind == Kind::Permits && self.operates {
            let operator = shared.clone().operate(clients[0].clone(), format!("{}operator", self.process));
            tasks.spawn(operator);
        }
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

impl Shared {
    async fn work(self: Arc<Self>, leases: Leasehold, process: String, number: usize) {
        while !self.is_over() {
            let (attempt, process) = (self.next_attempt(), process.clone());
            Attempt { shared: &self, leases: &leases, process, attempt, number }.run().await;
            self.rest(attempt).await;
        }
    }

    async fn rest(&self, attempt: u64) {
        let done_at = tokio::time::Instant::now() + self.load.rest.mul_f64(share(attempt, 3));
        while !self.is_over() && tokio::time::Instant::now() < done_at {
            let look_again_at = tokio::time::Instant::now() + self.load.ttl / 4;
            tokio::time::sleep_until(done_at.min(look_again_at)).await;
        }
    }

    fn next_attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn granted(&self) {
        self.granted.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, error: Error) {
        self.note(|tally| match error {
            Error::StoreUnreachable { .. } => tally.unreachable += 1,
            Error::StoreRefused { refusal: Refusal::OutOfMemory, .. } => tally.out_of_memory += 1,
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
