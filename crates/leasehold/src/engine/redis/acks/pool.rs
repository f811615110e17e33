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
    node::{Connection, Node},
    script::Scripts,
};
use crate::{
    clock::{Clock, Until},
    engine::{EngineError, Fault},
};

/// Claims of one client that can wait for replicas of one server at the same time, and connections that they have for it.
const CONNECTIONS_MAX: usize = 16;
/// How long the WAIT behind a claim that was not granted may take before its connection is given up instead.
const LINGER: Duration = Duration::from_millis(100);

/// The right to one of these connections.
type Turn = OwnedSemaphorePermit;

/// Connections to one server for claims that wait for replicas.
pub(in super::super) struct Pool {
    open: Box<dyn Fn() -> Arc<Node> + Send + Sync>,
    pub(super) clock: Clock,
    pub(super) scripts: &'static Scripts,
    idle: Mutex<Vec<Arc<Node>>>,
    turns: Arc<Semaphore>,
    /// The most replicas that the server was seen with: one that is down is still a copy.
    pub(super) seen: AtomicU32,
}

impl Pool {
    /// An empty pool; `open` makes a connection that is not dialled yet.
    pub(in super::super) fn new(
        clock: Clock,
        with_grace: bool,
        by_slot: bool,
        open: impl Fn() -> Arc<Node> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            open: Box::new(open),
            clock,
            scripts: Scripts::of(by_slot, with_grace),
            idle: Mutex::default(),
            turns: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            seen: AtomicU32::new(0),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that nobody else uses, when it is this claim's turn.
    pub(super) async fn take(self: &Arc<Self>, until: Until) -> Result<Own, EngineError> {
        match self.clock.bounded(until, self.turns.clone().acquire_owned()).await {
            Some(Ok(turn)) => self.connect(Arc::new(turn), until).await,
            Some(Err(_)) => Err(closed()),
            None => {
                let why = format!("{CONNECTIONS_MAX} claims wait for replicas already");
                Err(EngineError::new(Fault::Overloaded, why))
            }
        }
    }

    async fn connect(self: &Arc<Self>, turn: Arc<Turn>, until: Until) -> Result<Own, EngineError> {
        let node = {
            let mut idle = self.idle();
            if self.turns.is_closed() {
                return Err(closed());
            }
            idle.pop().unwrap_or_else(|| (self.open)())
        };
        // Before it is dialled: a dial that failed says when to dial again, and one that nobody waits for any more goes
        // on for the next claim.
        let taken = Taken { pool: self.clone(), node, busy: false, turn };
        let connection = taken.node.connection(until).await?;
        Ok(Own { connection, known: None, taken })
    }

    fn give_back(&self, node: Arc<Node>) {
        let mut idle = self.idle();
        if self.turns.is_closed() {
            node.close();
        } else {
            idle.push(node);
        }
    }

    pub(in super::super) fn close(&self) {
        let mut idle = self.idle();
        self.turns.close();
        idle.drain(..).for_each(|node| node.close());
    }
}

fn closed() -> EngineError {
    EngineError::new(Fault::Unreachable, "the client was closed")
}

/// A connection that one claim has to itself.
pub(super) struct Own {
    /// Dropped before what it was taken with, so that it is closed before the next one's turn.
    pub(super) connection: Arc<Connection>,
    /// How many replicas there are, where others than the server keep count.
    pub(super) known: Option<u32>,
    pub(super) taken: Taken,
}

/// What was taken out of the pool. Dropped before everything was answered, it is closed: whoever came next would wait
/// behind that.
pub(super) struct Taken {
    pub(super) pool: Arc<Pool>,
    pub(super) node: Arc<Node>,
    pub(super) busy: bool,
    turn: Arc<Turn>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.busy {
            self.node.close();
        } else {
            self.pool.give_back(self.node.clone());
        }
    }
}

pub(super) type Asked = Pin<Box<dyn Future<Output = Result<Value, EngineError>> + Send>>;

impl Own {
    /// Sends a command when it is polled first.
    pub(super) fn ask(&self, cmd: Cmd, until: Until) -> Asked {
        let (node, connection) = (self.taken.node.clone(), self.connection.clone());
        Box::pin(async move { node.send(&connection, &cmd, until).await })
    }

    /// Nothing is outstanding on this connection, unless the answer did not come.
    pub(super) fn answered<T>(&mut self, answer: &Result<T, EngineError>) {
        self.taken.busy = matches!(answer, Err(error) if error.fault == Fault::NoAnswer);
    }

    /// Leaves the connection to its WAIT.
    pub(super) fn linger(mut self, waited: MaybeDone<Asked>) {
        tokio::spawn(async move { self.outlast(waited).await });
    }

    /// A connection for the same claim, which has to be sent again. It keeps its turn: waiting for another, it would be
    /// behind claims that came later, and two connections would be taken for it meanwhile.
    pub(super) async fn again(mut self, waited: MaybeDone<Asked>, until: Until) -> Result<Self, EngineError> {
        self.outlast(waited).await;
        let (pool, turn) = (self.taken.pool.clone(), self.taken.turn.clone());
        drop(self);
        pool.connect(turn, until).await
    }

    /// Waits for a WAIT, of which nobody wants to know the answer, for as long as that is cheaper than a new connection.
    async fn outlast(&mut self, mut waited: MaybeDone<Asked>) {
        let clock = self.taken.pool.clock.clone();
        if clock.bounded(clock.now() + LINGER, Pin::new(&mut waited)).await.is_some()
            && let Some(answer) = Pin::new(&mut waited).take_output()
        {
            self.answered(&answer);
        }
    }
}
