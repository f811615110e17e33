//! A bounded set of connections to one database.
//!
//! A call has a connection for itself until it is answered: a claim may wait for the row of its name, and nothing else
//! should wait behind it. Some connections are kept for what keeps or ends a lease, so that a crowd of claims costs no
//! lease. A caller that goes away leaves its statement running, which waits for rows no longer than its caller would have;
//! the connection returns once the server has answered. Nothing is cancelled: a request for that needs another connection,
//! may hit the next statement, and makes pgbouncer 1.18 abort.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_postgres::{Client, Row, types::ToSql, types::Type};

use super::{Result, reply, statements::Statements, url::Target};
use leasehold_core::{
    clock::{BootInstant, Clock, Until},
    engine::{EngineError, EngineOptions, Fault, LinkChange, WakeSink, registry::send_noted},
};

/// Connections that claims and other questions never take.
const RESERVED: usize = 2;
/// How long a connection whose caller went away may take to answer before it is closed.
const RECOVERED_WITHIN: Duration = Duration::from_secs(10);
/// First and longest time without a dial after one that failed.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To ask for something.
    Ask,
    /// To keep or to end something: never behind a crowd that asks.
    Keep,
}

pub(super) struct Pool {
    target: Target,
    clock: Clock,
    all: Arc<Semaphore>,
    asking: Arc<Semaphore>,
    idle: Mutex<Vec<Link>>,
    failed: Mutex<Option<FailedDial>>,
    command_timeout: Duration,
    next_link: AtomicU64,
    is_up: AtomicBool,
    sink: OnceLock<Weak<dyn WakeSink>>,
    pub(super) size: usize,
    pub(super) round_trips: AtomicU64,
    answered: AtomicU64,
}

/// A connection. Its number is never used again.
struct Link {
    number: u64,
    client: Client,
    statements: Statements,
}

struct FailedDial {
    again_at: BootInstant,
    pause: Duration,
    error: EngineError,
}

impl Pool {
    pub(super) fn new(target: Target, size: usize, options: &EngineOptions) -> Arc<Self> {
        Arc::new(Self {
            target,
            clock: options.clock.clone(),
            all: Arc::new(Semaphore::new(size)),
            asking: Arc::new(Semaphore::new(size - RESERVED.min(size / 2))),
            idle: Mutex::default(),
            failed: Mutex::default(),
            command_timeout: options.command_timeout,
            next_link: AtomicU64::new(1),
            is_up: AtomicBool::new(false),
            sink: OnceLock::new(),
            size,
            round_trips: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        })
    }

    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    /// Closes what is idle; a later call dials again.
    pub(super) fn close(&self) {
        locked(&self.idle).clear();
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.target.is_encrypted()
    }

    /// How long a function may wait for a row lock: a little less than the caller's time, so that the reason reaches it.
    pub(super) fn patience_ms(&self, until: Until) -> i64 {
        let left = until.since(self.clock.now());
        let patience = left - (left / 10).min(Duration::from_millis(100));
        i64::try_from(patience.as_millis()).unwrap_or(i64::MAX).clamp(1, 2_000_000_000)
    }

    /// One statement over any connection.
    pub(super) async fn query(
        self: &Arc<Self>,
        until: Until,
        purpose: Purpose,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        self.checkout(until, purpose).await?.query(until, sql, params, || ()).await
    }

    /// A connection for one call.
    pub(super) async fn checkout(self: &Arc<Self>, until: Until, purpose: Purpose) -> Result<Checkout> {
        let permits = async {
            let asking = match purpose {
                Purpose::Ask => Some(self.asking.clone().acquire_owned().await),
                Purpose::Keep => None,
            };
            (asking, self.all.clone().acquire_owned().await)
        };
        // For at most three quarters of the time: the rest is for the statement.
        let (now, answered) = (self.clock.now(), self.answered.load(Ordering::Relaxed));
        let turn = self.clock.bounded(now + until.since(now) / 4 * 3, permits).await;
        let (asking, all) = turn.ok_or_else(|| {
            let why = format!("all {} connections of the pool are in use", self.size);
            // A client that is busy does not report its server as unreachable.
            let is_served = self.answered.load(Ordering::Relaxed) > answered;
            EngineError::new(if is_served { Fault::Busy } else { Fault::Unreachable }, why)
        })?;
        let permits = Permits { _asking: asking.and_then(Result::ok), _all: all.ok() };
        let idle = std::iter::from_fn(|| locked(&self.idle).pop()).find(|link| !link.client.is_closed());
        if let Some(link) = idle {
            return Ok(self.checked_out(link, permits));
        }
        if let Some(failed) = &*locked(&self.failed)
            && self.clock.now() < failed.again_at
        {
            return Err(failed.error.clone());
        }
        // A task of its own: a connection that comes up too late for this caller is there for the next.
        let (dialled, answer) = oneshot::channel();
        let pool = self.clone();
        tokio::spawn(async move {
            let link = pool.dial().await.map(|link| pool.checked_out(link, permits));
            // Nobody may be waiting any more; then it becomes idle.
            let _ = dialled.send(link);
        });
        match self.clock.bounded(until, answer).await {
            Some(Ok(dialled)) => dialled,
            Some(Err(_)) => Err(EngineError::new(Fault::Unreachable, "the runtime is shutting down")),
            None => Err(EngineError::new(Fault::Unreachable, "the connection was not established in time")),
        }
    }

    fn checked_out(self: &Arc<Self>, link: Link, permits: Permits) -> Checkout {
        Checkout { pool: self.clone(), link: Some(link), permits: Some(permits), is_unanswered: false }
    }

    async fn dial(self: &Arc<Self>) -> Result<Link> {
        let until = self.clock.now() + self.command_timeout.max(Duration::from_secs(2));
        let no_answer = || EngineError::new(Fault::Unreachable, "the server does not answer");
        let dialled = match self.clock.bounded(until, self.target.connect()).await {
            Some(dialled) => dialled.map_err(|error| reply::dial_error(&error)),
            None => Err(no_answer()),
        };
        let (client, connection) = match dialled {
            Ok(dialled) => dialled,
            Err(error) => {
                let mut failed = locked(&self.failed);
                let pause = failed.as_ref().map_or(PAUSE_MIN, |failed| (failed.pause * 2).min(PAUSE_MAX));
                *failed =
                    Some(FailedDial { again_at: self.clock.now() + pause, pause, error: error.clone() });
                return Err(error);
            }
        };
        *locked(&self.failed) = None;
        if !self.is_up.swap(true, Ordering::AcqRel) {
            self.report(LinkChange::Connected);
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            let ended = connection.await;
            if let (Err(error), Some(pool)) = (ended, pool.upgrade())
                && pool.is_up.swap(false, Ordering::AcqRel)
            {
                pool.report(LinkChange::Disconnected { why: reply::words(&error) });
            }
        });
        let statements = self.clock.bounded(until, Statements::of(&client)).await.ok_or_else(no_answer)?;
        Ok(Link { number: self.next_link.fetch_add(1, Ordering::Relaxed), client, statements })
    }

    fn report(&self, change: LinkChange) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            sink.link(change);
        }
    }

    /// Waits until the statement of a caller that went away is over: what comes after it is answered after it.
    async fn recover(&self, link: Link) -> Option<Link> {
        let until = self.clock.now() + RECOVERED_WITHIN;
        let answered = self.clock.bounded(until, link.client.simple_query("")).await;
        matches!(answered, Some(Ok(_))).then_some(link)
    }
}

struct Permits {
    _asking: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

/// A connection that one call has for itself.
pub(super) struct Checkout {
    pool: Arc<Pool>,
    link: Option<Link>,
    permits: Option<Permits>,
    is_unanswered: bool,
}

impl Checkout {
    fn link(&self) -> &Link {
        self.link.as_ref().expect("a connection is given back when it is dropped")
    }

    /// The number of the connection.
    pub(super) fn number(&self) -> u64 {
        self.link().number
    }

    /// Sends a statement and waits for its answer; `left` is called once it is on its way. A transaction that the server
    /// ended because of another one did nothing, and is sent again.
    pub(super) async fn query(
        &mut self,
        until: Until,
        sql: &str,
        params: &[Param<'_>],
        left: impl Fn(),
    ) -> Result<Vec<Row>> {
        loop {
            self.is_unanswered = true;
            self.pool.round_trips.fetch_add(1, Ordering::Relaxed);
            let Link { client, statements, .. } = self.link();
            let asked = async {
                statements.name(client, sql, params).await?;
                send_noted(statements.run(client, sql, params), &left).await
            };
            let Some(answer) = self.pool.clock.bounded(until, asked).await else {
                return Err(EngineError::no_answer());
            };
            self.is_unanswered = false;
            self.pool.answered.fetch_add(1, Ordering::Relaxed);
            match answer {
                Err(error) if reply::may_be_repeated(&error) && self.pool.clock.now() < until => {}
                Err(error) if reply::is_unnamed(&error) && self.pool.clock.now() < until => {
                    self.link().statements.give_up();
                }
                answer => return answer.map_err(|error| reply::error(&error)),
            }
        }
    }

    /// Several statements without parameters.
    pub(super) async fn batch(&mut self, until: Until, sql: &str) -> Result<()> {
        self.is_unanswered = true;
        let asked = self.link().client.batch_execute(sql);
        let Some(answer) = self.pool.clock.bounded(until, asked).await else {
            return Err(EngineError::no_answer());
        };
        self.is_unanswered = false;
        answer.map_err(|error| reply::error(&error))
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let (Some(link), permits) = (self.link.take(), self.permits.take()) else { return };
        if link.client.is_closed() {
            return;
        }
        if !self.is_unanswered {
            return locked(&self.pool.idle).push(link);
        }
        // Without a runtime the connection is closed.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let pool = self.pool.clone();
            runtime.spawn(async move {
                if let Some(link) = pool.recover(link).await {
                    locked(&pool.idle).push(link);
                }
                drop(permits);
            });
        }
    }
}

/// What is behind a mutex never stays half changed, so a panic elsewhere does no harm.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
