//! Connections that claims wait on, one each.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use futures_util::future::MaybeDone;
use redis::{Cmd, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::{
    connection::{Connection, ConnectionOptions, Link, closed},
    script::Scripts,
};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Fault},
};

/// Claims of one client that can wait for replicas of one server at the same time, and connections that they have for it.
const CONNECTIONS_MAX: usize = 16;
/// How long a WAIT whose answer nobody needs may take before its connection is given up instead.
const WAIT_IGNORED_MAX: Duration = Duration::from_millis(100);

pub(super) type Asked = Pin<Box<dyn Future<Output = Result<Value, EngineError>> + Send>>;

/// Connections to one server for claims that wait for replicas.
pub(in super::super) struct Pool {
    connection: ConnectionOptions,
    pub(super) clock: Clock,
    pub(super) scripts: &'static Scripts,
    pub(super) grace: Option<Duration>,
    idle: Mutex<Vec<Arc<Connection>>>,
    permits: Arc<Semaphore>,
    /// The most replicas that the server was seen with: one that is down is still a copy.
    pub(super) seen: AtomicU32,
}

impl Pool {
    /// An empty pool; nobody is woken over its connections.
    pub(in super::super) fn new(connection: ConnectionOptions, by_slot: bool) -> Arc<Self> {
        Arc::new(Self {
            clock: connection.clock.clone(),
            scripts: Scripts::of(by_slot, connection.target.grace().is_some()),
            grace: connection.target.grace(),
            connection: ConnectionOptions { listener: None, ..connection },
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            seen: AtomicU32::new(0),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that nobody else uses, when this claim gets a permit.
    pub(super) async fn take(self: &Arc<Self>, until: Until) -> Result<DedicatedConnection, EngineError> {
        match self.clock.bounded(until, self.permits.clone().acquire_owned()).await {
            Some(Ok(permit)) => self.connect(permit, until).await,
            Some(Err(_)) => Err(closed()),
            None => {
                let why = format!("{CONNECTIONS_MAX} claims wait for replicas already");
                Err(EngineError::new(Fault::Overloaded, why))
            }
        }
    }

    async fn connect(
        self: &Arc<Self>,
        permit: Permit,
        until: Until,
    ) -> Result<DedicatedConnection, EngineError> {
        let connection = {
            let mut idle = self.idle();
            if self.permits.is_closed() {
                return Err(closed());
            }
            idle.pop().unwrap_or_else(|| Connection::new(self.connection.clone()))
        };
        // Before it is dialled: a dial that failed says when to dial again, and one that nobody waits for any more goes
        // on for the next claim.
        let checkout = Checkout { pool: self.clone(), connection, busy: false, permit: Some(permit) };
        let link = checkout.connection.link(until).await?;
        Ok(DedicatedConnection { link, known: None, checkout })
    }

    pub(in super::super) fn close(&self) {
        let mut idle = self.idle();
        self.permits.close();
        idle.drain(..).for_each(|connection| connection.close());
    }
}

/// The right to one of these connections.
type Permit = OwnedSemaphorePermit;

/// A connection that one claim has to itself.
pub(super) struct DedicatedConnection {
    /// Dropped before what it was taken with, so that it is closed before the next claim gets a permit.
    pub(super) link: Arc<Link>,
    /// How many replicas there are, where others than the server keep count.
    pub(super) known: Option<u32>,
    pub(super) checkout: Checkout,
}

/// What was taken out of the pool. Dropped while a claim is unanswered, it is closed: whoever came next would wait behind
/// that.
pub(super) struct Checkout {
    pub(super) pool: Arc<Pool>,
    pub(super) connection: Arc<Connection>,
    pub(super) busy: bool,
    permit: Option<Permit>,
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let mut idle = self.pool.idle();
        if self.busy || self.pool.permits.is_closed() {
            self.connection.close();
        } else {
            idle.push(self.connection.clone());
        }
    }
}

impl DedicatedConnection {
    /// Sends a command when it is polled first.
    pub(super) fn ask(&self, cmd: Cmd, until: Until) -> Asked {
        let link = self.link.clone();
        Box::pin(async move { link.send(&cmd, until).await })
    }

    /// Nothing is outstanding on this connection, unless the answer did not come.
    pub(super) fn answered<T>(&mut self, answer: &Result<T, EngineError>) {
        self.checkout.busy = matches!(answer, Err(error) if error.fault == Fault::NoAnswer);
    }

    /// Leaves the connection to its WAIT, whose answer nobody needs.
    pub(super) fn ignore(self, waited: MaybeDone<Asked>) {
        let connection = self.checkout.connection.clone();
        drop(connection.tasks().spawn(self.outlast(waited)));
    }

    /// A connection for the same claim, which has to be sent again. It keeps its permit: waiting for another, it would be
    /// behind claims that came later, and two connections would be taken for it meanwhile.
    pub(super) async fn again(mut self, waited: MaybeDone<Asked>, until: Until) -> Result<Self, EngineError> {
        let (pool, permit) = (self.checkout.pool.clone(), self.checkout.permit.take());
        self.outlast(waited).await;
        match permit {
            Some(permit) => pool.connect(permit, until).await,
            None => pool.take(until).await,
        }
    }

    /// Gives the connection back once its WAIT was answered, or up if a new one is cheaper.
    async fn outlast(mut self, mut waited: MaybeDone<Asked>) {
        let clock = self.checkout.pool.clock.clone();
        if clock.bounded(clock.now() + WAIT_IGNORED_MAX, Pin::new(&mut waited)).await.is_some()
            && let Some(answer) = Pin::new(&mut waited).take_output()
        {
            self.answered(&answer);
        }
    }
}
