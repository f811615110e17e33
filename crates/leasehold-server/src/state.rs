//! What all requests share.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold::{Clock, Leasehold};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    attempts::Attempts,
    audit::Audit,
    auth::{Caller, Tokens},
    events::Events,
    executions::Executions,
    history::History,
    limits::Limits,
    metrics::Metrics,
    playground::Playground,
    problem::{Problem, Result},
    sessions::Sessions,
};

pub(crate) type App = Arc<Service>;

/// How often the service forgets what is over.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// What the service was told to do.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) limits: Limits,
    pub(crate) read_only: bool,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) pools: Vec<String>,
    pub(crate) poll_every: Duration,
}

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) leases: Leasehold,
    pub(crate) options: Options,
    pub(crate) listens_on: SocketAddr,
    pub(crate) clock: Clock,
    pub(crate) started_at_ms: u64,
    pub(crate) attempts: Attempts,
    pub(crate) sessions: Sessions,
    pub(crate) executions: Executions,
    pub(crate) history: History,
    pub(crate) events: Events,
    pub(crate) audit: Audit,
    pub(crate) metrics: Metrics,
    pub(crate) playground: Playground,
    /// Pools and elections that somebody asked about.
    pub(crate) pools: Asked,
    pub(crate) elections: Asked,
    pub(crate) connections: AtomicUsize,
    pub(crate) anonymous: Caller,
    /// When somebody last looked at what the history shows.
    pub(crate) watched_at_ms: AtomicU64,
    pub(crate) look_now: Notify,
    /// Cancelled when the service is to stop.
    pub(crate) draining: CancellationToken,
}

impl Service {
    pub(crate) fn new(leases: Leasehold, options: Options, listens_on: SocketAddr) -> App {
        let clock = Clock::system();
        let limits = &options.limits;
        Arc::new(Self {
            started_at_ms: clock.wall_us() / 1000,
            attempts: Attempts::new(limits.attempts),
            sessions: Sessions::new(limits.sessions, limits.locks_per_session),
            executions: Executions::new(limits.executions),
            history: History::new(clock.wall_us() / 1000),
            events: Events::new(limits.event_clients),
            audit: Audit::default(),
            metrics: Metrics::default(),
            playground: Playground::default(),
            pools: Asked::of(&options.pools),
            elections: Asked::default(),
            connections: AtomicUsize::new(0),
            anonymous: Caller::anonymous(),
            watched_at_ms: AtomicU64::new(0),
            look_now: Notify::new(),
            draining: CancellationToken::new(),
            leases,
            options,
            listens_on,
            clock,
        })
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        self.clock.wall_us() / 1000
    }

    pub(crate) fn connected(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// What comes first: the result, or the end of the service.
    pub(crate) async fn unless_draining<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            () = self.draining.cancelled() => Err(Problem::draining()),
            done = work => Ok(done),
        }
    }

    /// Forgets what is over, until the service stops.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let mut every = tokio::time::interval(SWEEP_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.unless_draining(every.tick()).await.is_ok() {
            let now = self.clock.now();
            let ended = self.sessions.sweep(now);
            self.metrics.sessions_ended.fetch_add(ended as u64, Ordering::Relaxed);
            self.attempts.sweep(now);
            self.executions.sweep(now);
            self.playground.sweep(now);
        }
    }
}

/// Names that somebody asked about; so many and no more are remembered.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<BTreeSet<String>>);

const ASKED_MAX: usize = 1_000;

impl Asked {
    fn of(names: &[String]) -> Self {
        Self(Mutex::new(names.iter().cloned().collect()))
    }

    pub(crate) fn note(&self, name: &str) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < ASKED_MAX && !names.contains(name) {
            names.insert(name.to_owned());
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Random text that nobody guesses.
pub(crate) fn secret() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        let detail = format!("the system gave no random bytes: {error}");
        Problem::overloaded(detail)
    })?;
    Ok(crate::views::hex(&random))
}
