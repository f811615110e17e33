//! A connection while it is up.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, Value, aio::MultiplexedConnection};

use super::{ConnectionOptions, subscriptions::Subscription};
use crate::{info::command, reply, topology::outcome};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{EngineError, Fault},
};

/// Commands without a reply after which a link is given up.
const TIMEOUTS_MAX: u32 = 2;
/// A command given less time than this says nothing about the link.
const TIMEOUT_COUNTS_FROM: Duration = Duration::from_millis(200);

/// A connection that is up. It is never repaired: what was learnt over it means nothing on the next.
pub(crate) struct Link {
    pub(super) inner: MultiplexedConnection,
    /// Tells links apart.
    pub(crate) number: u64,
    /// This run of the server and its data set, if it was asked for: a link cannot outlive either.
    pub(crate) identity: Option<String>,
    pub(super) since: BootInstant,
    /// How often the target had moved when it was dialled.
    pub(super) moves: u64,
    /// What wake-ups come over it, by slot.
    pub(super) subscriptions: Mutex<HashMap<u16, Arc<Subscription>>>,
    pub(super) timeouts: AtomicU32,
    pub(super) signals: Arc<Signals>,
}

/// What the driver's own task reports, from the first byte on.
pub(super) struct Signals {
    pub(super) options: Arc<ConnectionOptions>,
    pub(super) number: u64,
    pub(super) end: OnceLock<End>,
    /// Replies can no longer be told apart.
    pub(super) shifted: AtomicBool,
}

/// When and why a link broke.
pub(super) struct End {
    pub(super) at: BootInstant,
    pub(super) why: String,
}

impl Signals {
    pub(super) fn broke(&self, why: &str) {
        let end = End { at: self.options.clock.now(), why: why.to_owned() };
        if self.end.set(end).is_ok() {
            tracing::debug!(why, "replacing the connection");
            if let Some(listener) = self.options.listener() {
                listener.disconnected(self.number, why);
            }
        }
    }
}

impl Link {
    /// Makes sure that the next call takes a new link.
    pub(crate) fn broke(&self, why: &str) {
        self.signals.broke(why);
    }

    pub(super) fn broken(&self) -> Option<&End> {
        self.signals.end.get()
    }

    pub(super) fn options(&self) -> &ConnectionOptions {
        &self.signals.options
    }

    /// Sends one command and waits for its reply.
    pub(crate) async fn send(&self, cmd: &Cmd, until: Until) -> Result<Value, EngineError> {
        let mut inner = self.inner.clone();
        self.answered(inner.send_packed_command(cmd), until).await
    }

    /// Sends one command, to a node that is about to get its slot if `asking`: then both commands leave together, and
    /// nothing gets in between.
    pub(crate) async fn send_to(&self, asking: bool, cmd: &Cmd, until: Until) -> Result<Value, EngineError> {
        if !asking {
            return self.send(cmd, until).await;
        }
        let mut both = self.send_all(vec![command(&["ASKING"]), cmd.clone()], until).await;
        both.pop().unwrap_or_else(|| Err(EngineError::no_answer()))
    }

    /// Sends commands in one write; one reply each.
    pub(crate) async fn send_all(&self, cmds: Vec<Cmd>, until: Until) -> Vec<Result<Value, EngineError>> {
        let mut inner = self.inner.clone();
        let count = cmds.len();
        let mut all = redis::Pipeline::with_capacity(count);
        for cmd in cmds {
            all.add_command(cmd);
        }
        let values = async { inner.send_packed_commands(&all, 0, count).await.map(Value::Array) };
        match self.answered(values, until).await {
            Ok(Value::Array(values)) if values.len() == count => {
                let one = |value| match value {
                    Value::ServerError(error) => Err(self.failed(&error.into())),
                    value => Ok(value),
                };
                values.into_iter().map(one).collect()
            }
            Ok(other) => vec![Err(reply::unexpected(&other)); count],
            Err(error) => vec![Err(error); count],
        }
    }

    /// Sends a script by its hash, and its text when the server does not know it (any more).
    pub(crate) async fn run_script(
        &self,
        asking: bool,
        build: impl Fn(bool) -> Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        match self.send_to(asking, &build(true), until).await {
            Err(error) if outcome::is_unknown_script(&error) => {
                self.send_to(asking, &build(false), until).await
            }
            answer => answer,
        }
    }

    async fn answered(
        &self,
        answer: impl Future<Output = Result<Value, RedisError>>,
        until: Until,
    ) -> Result<Value, EngineError> {
        let options = self.options();
        let began = options.clock.now();
        if let Some(listener) = options.listener() {
            listener.asked();
        }
        let answer = options.clock.bounded(until, answer).await;
        if answer.is_some() && self.signals.shifted.load(Ordering::Acquire) {
            return Err(EngineError::new(Fault::NoAnswer, "the connection was replaced"));
        }
        match answer {
            Some(Ok(Value::ServerError(error))) => Err(self.failed(&error.into())),
            Some(Ok(value)) => {
                self.timeouts.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Some(Err(error)) => Err(self.failed(&error)),
            None => Err(self.unanswered(began)),
        }
    }

    fn failed(&self, error: &RedisError) -> EngineError {
        if error.is_io_error() || error.is_unrecoverable_error() {
            self.broke(&error.to_string());
            return reply::of_command(error);
        }
        self.timeouts.store(0, Ordering::Relaxed);
        self.refused(reply::of_command(error))
    }

    /// A refusal by a server that takes no writes, or that has other data than at the dial, means that this link leads to
    /// the wrong server: nothing happened, and the next dial looks for the right one.
    pub(crate) fn refused(&self, error: EngineError) -> EngineError {
        if outcome::is_wrong_server(&error) {
            self.broke(&error.why);
            return EngineError { fault: Fault::Unreachable, ..error };
        }
        error
    }

    /// The replies of one call, unless the server takes no writes.
    pub(crate) fn believed(&self, replies: Vec<Value>) -> Result<Vec<Value>, EngineError> {
        match replies.iter().find_map(reply::read_only) {
            Some(error) => Err(self.refused(error)),
            None => Ok(replies),
        }
    }

    fn unanswered(&self, began: BootInstant) -> EngineError {
        let options = self.options();
        let counts = options.clock.now().since(began) >= TIMEOUT_COUNTS_FROM.min(options.command_timeout);
        if counts && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.broke("the server stopped answering");
        }
        EngineError::no_answer()
    }
}
