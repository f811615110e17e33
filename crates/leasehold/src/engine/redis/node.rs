//! One connection to one server: dialled once for all who wait for it, failing fast between dials, replaced when it
//! stops answering.

mod dial;
mod hearing;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, Value, aio::MultiplexedConnection};
use tokio::sync::{OnceCell, watch};

use super::{answer, place::Place, script::Script};
use crate::{
    clock::{BootInstant, Clock, Until},
    engine::{EngineError, Fault},
};

/// Receives what comes over a connection besides answers. It must not block.
pub(super) trait Listener: Send + Sync {
    /// A message on the wake channel, over the connection of that number.
    fn message(&self, connection: u64, payload: &[u8]);
    /// A connection is up.
    fn connected(&self);
    /// A connection broke.
    fn disconnected(&self, why: &str);
    /// Something was sent whose answer is waited for.
    fn asked(&self) {}
}

/// Commands without an answer after which a connection is replaced.
const TIMEOUTS_MAX: u32 = 2;
/// A command given less time than this says nothing about the connection.
const TIMEOUT_COUNTS_FROM: Duration = Duration::from_millis(200);
const MOVED: &str = "the primary is another server now";
const DIAL_PAUSE_MIN: Duration = Duration::from_millis(20);

/// What a connection is to be.
pub(super) struct NodeOptions {
    /// Where to dial.
    pub(super) place: Place,
    /// How this client calls itself to the server.
    pub(super) client_name: String,
    /// Where waiters of this connection are woken.
    pub(super) channel: String,
    pub(super) clock: Clock,
    pub(super) command_timeout: Duration,
    /// Whether to ask the server which run of it this is.
    pub(super) identify: bool,
}

pub(super) struct Node {
    options: NodeOptions,
    state: Mutex<State>,
    listener: OnceLock<Weak<dyn Listener>>,
}

enum State {
    /// Not connected; no dial before `next_dial`.
    Down {
        next_dial: BootInstant,
        pause: Duration,
        why: EngineError,
    },
    /// Being dialled; the channel closes when that is over.
    Dialling(watch::Receiver<()>),
    Up(Arc<Connection>),
    /// Not connected, because its place moved; dialled when somebody needs it.
    Left,
    Closed,
}

/// A connection that is up.
pub(super) struct Connection {
    inner: MultiplexedConnection,
    /// Tells connections apart: what was learnt over one means nothing on the next.
    pub(super) number: u64,
    /// This run of the server and its data set, if it was asked for: a connection cannot outlive either.
    pub(super) identity: Option<String>,
    subscribed: OnceCell<()>,
    /// Slots of a cluster whose wake-ups it hears.
    slots: Mutex<HashMap<u16, Arc<OnceCell<()>>>>,
    timeouts: AtomicU32,
    broken: Arc<AtomicBool>,
    shifted: Arc<AtomicBool>,
    /// How often the place had moved when it was dialled.
    moves: u64,
}

impl Node {
    pub(super) fn new(options: NodeOptions) -> Arc<Self> {
        let why = EngineError::new(Fault::Unreachable, "not connected yet");
        let state = State::Down { next_dial: BootInstant::from_nanos(0), pause: DIAL_PAUSE_MIN, why };
        Arc::new(Self { options, state: Mutex::new(state), listener: OnceLock::new() })
    }

    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        let _first = self.listener.set(listener);
    }

    /// The channel on which waiters of this connection are woken.
    pub(super) fn channel(&self) -> &str {
        &self.options.channel
    }

    pub(super) fn place(&self) -> &Place {
        &self.options.place
    }

    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.get().and_then(Weak::upgrade)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection; dials if there is none. All who wait share one dial, which goes on if they do not.
    pub(super) async fn connection(self: &Arc<Self>, until: Until) -> Result<Arc<Connection>, EngineError> {
        loop {
            let mut dial = {
                let mut state = self.state();
                match &mut *state {
                    State::Up(connection) if !connection.broken.load(Ordering::Acquire) => {
                        let connection = connection.clone();
                        drop(state);
                        if connection.moves == self.options.place.moves() {
                            return Ok(connection);
                        }
                        self.broke(&connection.broken, MOVED);
                        continue;
                    }
                    State::Up(_) => self.start_dial(&mut state, DIAL_PAUSE_MIN),
                    State::Down { next_dial, why, .. } if self.options.clock.now() < *next_dial => {
                        return Err(why.clone());
                    }
                    State::Down { pause, .. } => {
                        let pause = *pause;
                        self.start_dial(&mut state, pause)
                    }
                    State::Dialling(dial) if dial.has_changed().is_ok() => dial.clone(),
                    // The former is over without an outcome: its runtime has ended.
                    State::Dialling(_) | State::Left => self.start_dial(&mut state, DIAL_PAUSE_MIN),
                    State::Closed => {
                        return Err(EngineError::new(Fault::Unreachable, "the client was closed"));
                    }
                }
            };
            // The sender is dropped when the dial is over, which is an error here and all we want to know.
            if self.options.clock.bounded(until, dial.changed()).await.is_none() {
                return Err(EngineError::new(Fault::Unreachable, "no connection in time"));
            }
            if let State::Down { why, .. } = &*self.state() {
                return Err(why.clone());
            }
        }
    }

    /// Makes sure that the next call takes a new connection, because what is known of the server is no longer true.
    pub(super) fn replace(&self, connection: &Connection, why: &str) {
        self.broke(&connection.broken, why);
    }

    /// Sends one command and waits for its answer.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        cmd: &Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        let mut inner = connection.inner.clone();
        self.answered(connection, inner.send_packed_command(cmd), until).await
    }

    /// Sends commands in one write; one answer each.
    pub(super) async fn send_all(
        &self,
        connection: &Connection,
        cmds: Vec<Cmd>,
        until: Until,
    ) -> Vec<Result<Value, EngineError>> {
        let mut inner = connection.inner.clone();
        let count = cmds.len();
        let mut all = redis::Pipeline::with_capacity(count);
        for cmd in cmds {
            all.add_command(cmd);
        }
        let values = async { inner.send_packed_commands(&all, 0, count).await.map(Value::Array) };
        match self.answered(connection, values, until).await {
            Ok(Value::Array(values)) if values.len() == count => {
                let one = |value| match value {
                    Value::ServerError(error) => Err(self.failed(connection, &error.into())),
                    value => Ok(value),
                };
                values.into_iter().map(one).collect()
            }
            Ok(other) => vec![Err(answer::unexpected(&other)); count],
            Err(error) => vec![Err(error); count],
        }
    }

    /// Sends one command to a node that is about to get its slot. Both commands leave together: nothing gets in between.
    pub(super) async fn send_asking(
        &self,
        connection: &Connection,
        cmd: &Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        let mut inner = connection.inner.clone();
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(cmd.clone());
        let last = async {
            let answers = inner.send_packed_commands(&both, 0, 2).await?;
            Ok(answers.into_iter().next_back().unwrap_or(Value::Nil))
        };
        self.answered(connection, last, until).await
    }

    async fn answered(
        &self,
        connection: &Connection,
        answer: impl Future<Output = Result<Value, RedisError>>,
        until: Until,
    ) -> Result<Value, EngineError> {
        let began = self.options.clock.now();
        if let Some(listener) = self.listener() {
            listener.asked();
        }
        let answer = self.options.clock.bounded(until, answer).await;
        if answer.is_some() && connection.shifted.load(Ordering::Acquire) {
            return Err(EngineError::new(Fault::NoAnswer, "the connection was replaced"));
        }
        match answer {
            Some(Ok(Value::ServerError(error))) => Err(self.failed(connection, &error.into())),
            Some(Ok(value)) => {
                connection.timeouts.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Some(Err(error)) => Err(self.failed(connection, &error)),
            None => Err(self.unanswered(connection, began)),
        }
    }

    fn failed(&self, connection: &Connection, error: &RedisError) -> EngineError {
        if error.is_io_error() || error.is_unrecoverable_error() {
            self.broke(&connection.broken, &error.to_string());
            return answer::of_command(error);
        }
        connection.timeouts.store(0, Ordering::Relaxed);
        self.refused(connection, answer::of_command(error))
    }

    /// A refusal by a server that is no primary (any more), or that has other data than at the dial, means that the primary
    /// is elsewhere: nothing happened, and the next dial looks for it.
    pub(super) fn refused(&self, connection: &Connection, error: EngineError) -> EngineError {
        let elsewhere = ["READONLY ", "ERA "].iter().any(|code| error.why.starts_with(code));
        if self.options.place.follows() && elsewhere {
            self.broke(&connection.broken, &error.why);
            return EngineError { fault: Fault::Unreachable, ..error };
        }
        error
    }

    /// The place moved: a connection to the old one is closed, and a dial need not wait any longer.
    pub(super) fn look_again(&self) {
        let before = {
            let mut state = self.state();
            match &mut *state {
                State::Up(connection) if connection.moves != self.options.place.moves() => {
                    std::mem::replace(&mut *state, State::Left)
                }
                State::Down { next_dial, pause, .. } => {
                    (*next_dial, *pause) = (BootInstant::from_nanos(0), DIAL_PAUSE_MIN);
                    return;
                }
                _ => return,
            }
        };
        if let State::Up(connection) = before {
            self.broke(&connection.broken, MOVED);
        }
    }

    /// The replies of one call, unless the server is no primary (any more).
    pub(super) fn believed(
        &self,
        connection: &Connection,
        replies: Vec<Value>,
    ) -> Result<Vec<Value>, EngineError> {
        if self.options.place.follows()
            && let Some(error) = replies.iter().find_map(answer::read_only)
        {
            return Err(self.refused(connection, error));
        }
        Ok(replies)
    }

    fn unanswered(&self, connection: &Connection, began: BootInstant) -> EngineError {
        let counts =
            self.options.clock.now().since(began) >= TIMEOUT_COUNTS_FROM.min(self.options.command_timeout);
        if counts && connection.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.broke(&connection.broken, "the server stopped answering");
        }
        EngineError::no_answer()
    }

    /// Sends a script by its hash, and its text when the server does not know it (any more).
    pub(super) async fn run_script(
        &self,
        connection: &Connection,
        script: &Script,
        build: impl Fn(&Script, bool) -> Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        match self.send(connection, &build(script, true), until).await {
            Err(error) if error.why.starts_with("NOSCRIPT") => {
                self.send(connection, &build(script, false), until).await
            }
            answer => answer,
        }
    }

    /// The same at a node that is about to get the slot.
    pub(super) async fn run_script_asking(
        &self,
        connection: &Connection,
        script: &Script,
        build: impl Fn(&Script, bool) -> Cmd,
        until: Until,
    ) -> Result<Value, EngineError> {
        match self.send_asking(connection, &build(script, true), until).await {
            Err(error) if error.why.starts_with("NOSCRIPT") => {
                self.send_asking(connection, &build(script, false), until).await
            }
            answer => answer,
        }
    }

    /// Whether there is a connection at present.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state(), State::Up(connection) if !connection.broken.load(Ordering::Acquire))
    }

    pub(super) fn close(&self) {
        *self.state() = State::Closed;
    }
}
