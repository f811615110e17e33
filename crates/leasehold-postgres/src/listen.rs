//! Hints from the database: "claim now, it may be your turn".
//!
//! A client listens on one channel of its own, over a connection of its own, once somebody may have to wait. What comes is a
//! list of attempts. A hint proves nothing and may be lost: waiters poll as well. A pooler that lends server connections
//! to one transaction at a time loses all of them, which the first hint shows, because it is one that the client sends to
//! itself.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};

use tokio::{sync::watch, task::JoinHandle};
use tokio_postgres::{AsyncMessage, types::Type};

use super::{
    pool::{Param, Pool, Purpose, locked},
    reply,
    url::{Connection, Target},
};
use leasehold_core::{
    clock::{Clock, Until},
    engine::{EngineOptions, Wake, WakeSink},
    owner::OwnerId,
};

/// The random part of an attempt, in hexadecimal digits.
const ID_BYTES: usize = 32;
/// What a client sends to itself.
const PROBE: &str = "probe";
/// A probe that takes longer was lost.
const PROBED_WITHIN: Duration = Duration::from_secs(5);
/// How long a first claim waits for the connection, so that its hint is not missed.
const READY_WITHIN: Duration = Duration::from_millis(500);
/// Between two checks of a connection over which nothing comes.
const CHECK_EVERY: Duration = Duration::from_secs(30);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not connected, or not yet known to hear anything.
    Starting,
    Hears,
    /// Hints are lost on the way: nobody sends any.
    Deaf,
}

pub(super) struct Listener {
    channel: String,
    target: Target,
    pool: Weak<Pool>,
    clock: Clock,
    sink: OnceLock<Weak<dyn WakeSink>>,
    state: watch::Sender<State>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    pub(super) fn new(target: Target, pool: Weak<Pool>, options: &EngineOptions) -> Arc<Self> {
        Arc::new(Self {
            channel: format!("leasehold_{:032x}", rand::random::<u128>()),
            target,
            pool,
            clock: options.clock.clone(),
            sink: OnceLock::new(),
            state: watch::Sender::new(State::Starting),
            task: Mutex::default(),
        })
    }

    pub(super) fn set_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    /// Where hints for a waiter go; `None` if they would be lost. The first call connects.
    pub(super) async fn channel(self: &Arc<Self>, until: Until) -> Option<&str> {
        self.sink.get()?;
        self.start();
        let mut state = self.state.subscribe();
        let ready_until = until.min(self.clock.now() + READY_WITHIN);
        let known = self.clock.bounded(ready_until, state.wait_for(|state| *state != State::Starting)).await;
        let is_deaf = matches!(known, Some(Ok(state)) if *state == State::Deaf);
        (!is_deaf).then_some(&self.channel)
    }

    fn start(self: &Arc<Self>) {
        let mut task = locked(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) && *self.state.borrow() != State::Deaf {
            let listener = Arc::downgrade(self);
            *task = Some(tokio::spawn(listen(listener)));
        }
    }

    /// Stops listening until somebody waits again.
    pub(super) fn close(&self) {
        if let Some(task) = locked(&self.task).take() {
            task.abort();
        }
        self.state.send_replace(State::Starting);
    }

    pub(super) fn state_in_words(&self) -> &'static str {
        match *self.state.borrow() {
            State::Starting => "not needed yet, or not connected",
            State::Hears => "arrive",
            State::Deaf => "do not arrive: waiters poll",
        }
    }

    fn wake(&self, wake: Wake) {
        if let Some(sink) = self.sink.get().and_then(Weak::upgrade) {
            sink.wake(wake);
        }
    }

    fn hear(&self, payload: &str) {
        let ids = payload.as_bytes().chunks(ID_BYTES).filter_map(|id| std::str::from_utf8(id).ok());
        for owner in ids.filter_map(OwnerId::parse) {
            self.wake(Wake::LookAgain { owner });
        }
    }

    /// Sends this client a hint over another connection.
    async fn probe(&self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let until = self.clock.now() + PROBED_WITHIN;
        let params: [Param<'_>; 2] = [(&self.channel, Type::TEXT), (&PROBE, Type::TEXT)];
        if let Err(error) = pool.query(until, Purpose::Keep, "SELECT 1 FROM pg_notify($1, $2)", &params).await
        {
            tracing::debug!(%error, "no notification was sent");
        }
    }

    /// Listens over one connection until it ends. `false` if nothing is ever heard over it.
    async fn listen_once(&self, is_first: bool) -> Result<bool, tokio_postgres::Error> {
        let (client, mut connection) = self.target.connect().await?;
        let sql = format!("LISTEN \"{}\"", self.channel);
        let work: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async {
            client.batch_execute(&sql).await?;
            self.probe().await;
            loop {
                self.clock.sleep_until(self.clock.now() + CHECK_EVERY).await;
                client.simple_query("").await?;
            }
        });
        let heard = async {
            let by = self.clock.now() + PROBED_WITHIN + PROBED_WITHIN;
            let mut has_heard = false;
            loop {
                let message = next(&mut connection);
                let message = if has_heard {
                    message.await
                } else {
                    match self.clock.bounded(by, message).await {
                        Some(message) => message,
                        None => return Ok(false),
                    }
                };
                let Some(message) = message else { return Ok(true) };
                let AsyncMessage::Notification(hint) = message? else { continue };
                if hint.channel() != self.channel {
                    continue;
                }
                if !has_heard {
                    has_heard = true;
                    self.state.send_replace(State::Hears);
                    if !is_first {
                        // Hints may have been missed meanwhile.
                        self.wake(Wake::LookAgainAll);
                    }
                }
                if hint.payload() != PROBE {
                    self.hear(hint.payload());
                }
            }
        };
        tokio::select! {
            failed = work => failed,
            ended = heard => ended,
        }
    }
}

/// Listens as long as anybody wants to know.
async fn listen(listener: Weak<Listener>) {
    let (mut pause, mut is_first) = (PAUSE_MIN, true);
    while let Some(listener) = listener.upgrade() {
        match listener.listen_once(is_first).await {
            Ok(false) => {
                tracing::warn!(
                    server = %listener.target.shown,
                    "notifications do not arrive, probably because of a pooler in transaction mode: waiters only poll; \
                     name the database itself with listen=HOST:PORT in the store URL"
                );
                listener.state.send_replace(State::Deaf);
                return;
            }
            Ok(true) => {}
            Err(error) => tracing::debug!(error = %reply::words(&error), "no notifications at the moment"),
        }
        if listener.state.send_replace(State::Starting) == State::Hears {
            (pause, is_first) = (PAUSE_MIN, false);
        }
        listener.clock.sleep_until(listener.clock.now() + pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn next(connection: &mut Connection) -> Option<Result<AsyncMessage, tokio_postgres::Error>> {
    poll_fn(|context| connection.poll_message(context)).await
}
