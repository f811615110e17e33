//! A connection while it is up.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};

use super::{ConnectionOptions, subscriptions::Subscriptions};
use crate::{Result, info::command, reply, script::Script, topology::outcome};
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
    /// What wake-ups come over it.
    pub(super) subscriptions: Mutex<Subscriptions>,
    pub(super) timeouts: AtomicU32,
    pub(super) signals: Arc<Signals>,
}

/// What the driver's own task reports, from the first byte on.
pub(super) struct Signals {
    pub(super) options: Arc<ConnectionOptions>,
    pub(super) number: u64,
    /// When and why the link broke.
    pub(super) end: OnceLock<(BootInstant, String)>,
    /// Replies can no longer be told apart.
    pub(super) shifted: AtomicBool,
}

impl Signals {
    pub(super) fn broke(&self, why: &str) {
        if self.end.set((self.options.clock.now(), why.to_owned())).is_ok() {
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

    /// Sends one command and waits for its reply.
    pub(crate) async fn send(&self, cmd: &Cmd, until: Until) -> Result<Value> {
        let mut inner = self.inner.clone();
        self.answered(inner.send_packed_command(cmd), until).await
    }

    /// Sends one command, to a node that is about to get its slot if `asking`: then both commands leave together, and
    /// nothing gets in between.
    pub(crate) async fn send_to(&self, asking: bool, cmd: &Cmd, until: Until) -> Result<Value> {
        if !asking {
            return self.send(cmd, until).await;
        }
        let mut both = self.send_all(vec![command(&["ASKING"]), cmd.clone()], until).await;
        both.pop().unwrap_or_else(|| Err(EngineError::no_answer()))
    }

    /// Sends commands in one write; one reply each.
    pub(crate) async fn send_all(&self, cmds: Vec<Cmd>, until: Until) -> Vec<Result<Value>> {
        let mut inner = self.inner.clone();
        let count = cmds.len();
        let mut all = redis::Pipeline::with_capacity(count);
        for cmd in cmds {
            all.add_command(cmd);
        }
        let values = async { inner.send_packed_commands(&all, 0, count).await.map(Value::Array) };
        match self.answered(values, until).await {
            Ok(Value::Array(values)) if values.len() == count => {
                values.into_iter().map(|value| self.unless_error(value)).collect()
            }
            Ok(other) => vec![Err(reply::unexpected(&other)); count],
            Err(error) => vec![Err(error); count],
        }
    }

    /// Sends a script by its hash, and its text when the server does not know it (any more).
    pub(crate) async fn run_script(
        &self,
        asking: bool,
        script: &Script,
        build: impl Fn(&Script, bool) -> Cmd,
        until: Until,
    ) -> Result<Value> {
        match self.send_to(asking, &build(script, true), until).await {
            Err(error) if outcome::is_unknown_script(&error) => {
                self.send_to(asking, &build(script, false), until).await
            }
            answer => answer,
        }
    }

    async fn answered(
        &self,
        answer: impl Future<Output = RedisResult<Value>>,
        until: Until,
    ) -> Result<Value> {
        let options = &self.signals.options;
        let began = options.clock.now();
        if let Some(listener) = options.listener() {
            listener.asked();
        }
        let answer = options.clock.bounded(until, answer).await;
        if answer.is_some() && self.signals.shifted.load(Ordering::Acquire) {
            return Err(EngineError::new(Fault::NoAnswer, "the connection was replaced"));
        }
        match answer {
            Some(Ok(value)) => self.unless_error(value),
            Some(Err(error)) => Err(self.failed(&error)),
            None => Err(self.unanswered(began)),
        }
    }

    fn unless_error(&self, value: Value) -> Result<Value> {
        if let Value::ServerError(error) = value {
            return Err(self.failed(&error.into()));
        }
        self.timeouts.store(0, Ordering::Relaxed);
        Ok(value)
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
    pub(crate) fn believed(&self, replies: Vec<Value>) -> Result<Vec<Value>> {
        match replies.iter().find_map(reply::read_only) {
            Some(error) => Err(self.refused(error)),
            None => Ok(replies),
        }
    }

    fn unanswered(&self, began: BootInstant) -> EngineError {
        let options = &self.signals.options;
        let counts = options.clock.now().since(began) >= TIMEOUT_COUNTS_FROM.min(options.command_timeout);
        if counts && self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.broke("the server stopped answering");
        }
        EngineError::no_answer()
    }
}
