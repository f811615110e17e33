//! Dials: one at a time, in a task of its own, and what comes over a link afterwards without being asked for.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Client, PushInfo, PushKind, Value, aio::MultiplexedConnection};
use tokio::sync::{OnceCell, watch};

use super::{Connection, ConnectionOptions, Dial, Link, State, link::Signals, native::Native};
use crate::{
    Result,
    driver::{self, asked},
    info::{Info, command},
    locked, reply, script,
    topology::not_sent,
    unreachable,
};
use leasehold_core::{clock::BootInstant, engine::EngineError};

/// Numbers of links, unique in this process: what was learnt over one says nothing about another server's.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Connection {
    pub(super) fn start_dial(self: &Arc<Self>, state: &mut State, at: BootInstant, pause: Duration) -> Dial {
        let (over, dial) = watch::channel(());
        *state = State::Dialling(dial.clone());
        let connection = self.clone();
        let task = async move {
            connection.options.clock.sleep_until(at).await;
            // In a task of its own: a driver that panics must not leave everybody waiting for a dial that is over.
            let dialled = tokio::spawn(dial_once(connection.options.clone()));
            let broke_off = |_| Err(unreachable("the connection could not be set up"));
            let (after, listener) = match dialled.await.unwrap_or_else(broke_off) {
                Ok(link) => (State::Up { link: Arc::new(link), pause }, connection.options.listener()),
                Err(why) => (State::failed(connection.options.clock.now(), pause, why), None),
            };
            if let state @ State::Dialling(_) = &mut *locked(&connection.state) {
                *state = after;
            }
            drop(over);
            listener.into_iter().for_each(|listener| listener.connected());
        };
        drop(self.options.tasks.spawn(task));
        dial
    }
}

async fn dial_once(options: Arc<ConnectionOptions>) -> Result<Link> {
    let moves = options.moves();
    let until = options.clock.now() + options.command_timeout;
    let mut named = None;
    let dialled = async {
        let client = options.server().await?;
        named = options.sentinels.as_ref().map(|_| client.get_connection_info().addr().clone());
        set_up(&client, &options, moves).await
    };
    let late = || Err(unreachable(format!("no connection within {:?}", options.command_timeout)));
    let dialled = options.clock.bounded(until, dialled).await.unwrap_or_else(late);
    dialled.map_err(not_sent).map_err(|error| match named {
        None => error,
        // People do not see this address in the URL.
        Some(addr) => {
            let why = format!("the sentinels name {addr} as the primary, and it cannot be used: {error}");
            EngineError { why, ..error }
        }
    })
}

/// A link over which nothing has been sent yet that could have an effect.
async fn set_up(client: &Client, options: &Arc<ConnectionOptions>, moves: u64) -> Result<Link> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
    let (end, shifted) = (OnceLock::new(), AtomicBool::new(false));
    let signals = Arc::new(Signals { options: options.clone(), number, end, shifted });
    let pushed = signals.clone();
    let mut inner = driver::dial(client, move |push| pushed.pushed(push)).await?;
    // A name is a comfort for operators: a user without that right can still lock.
    let mut greeting = redis::pipe();
    greeting.cmd("CLIENT").arg("SETNAME").arg(&options.client_name).cmd("HELLO");
    let greeted = inner.send_packed_commands(&greeting, 0, 2).await.unwrap_or_default();
    let native = Native::of(greeted.last());
    if options.sentinels.is_some() {
        match asked(&mut inner, &command(&["ROLE"])).await? {
            Value::Array(parts) if parts.first().and_then(reply::text) == Some("master") => {}
            _ => return Err(unreachable("it is no primary")),
        }
    }
    let identity = if options.identify { Some(identity(&mut inner).await?) } else { None };
    // A server that is another one than before begins a grace, before anything else is sent.
    if let (Some(grace), Some(identity)) = (options.grace(), &identity)
        && asked(&mut inner, &script::arrival(identity, grace)).await? == Value::Int(1)
    {
        tracing::info!(?grace, "the primary is new: nothing is granted for a while");
    }
    let (since, timeouts) = (options.clock.now(), AtomicU32::new(0));
    let (subscribed, subscriptions, channels) = (OnceCell::new(), Mutex::default(), Mutex::default());
    let tracked = OnceCell::new();
    Ok(Link {
        inner,
        number,
        identity,
        since,
        moves,
        subscribed,
        subscriptions,
        channels,
        timeouts,
        native,
        tracked,
        signals,
    })
}

/// This run of the server and its data set: after a restart, a promotion or a full copy from another server it differs.
async fn identity(connection: &mut MultiplexedConnection) -> Result<String> {
    let value = asked(connection, &command(&["INFO", "server", "replication"])).await?;
    let info = Info::parse(&value);
    match (info.get("run_id"), info.get("master_replid")) {
        (Some(run), Some(data)) => Ok(format!("{run}-{data}")),
        _ => Err(reply::unexpected(&value)),
    }
}

impl Signals {
    /// Called by the driver's own task.
    fn pushed(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let (Some(listener), [Value::BulkString(channel), Value::BulkString(payload)]) =
                    (self.options.listener(), &push.data[..])
                {
                    listener.message(self.number, channel, payload);
                }
            }
            // We never ask for it: the slot went to another node. The driver takes it for the reply to whatever was sent
            // first, and every later reply for that of another command. It reports this before it hands out any of them.
            PushKind::SUnsubscribe => {
                self.shifted.store(true, Ordering::Release);
                self.broke("wake-ups of a slot have moved to another node");
            }
            PushKind::Invalidate => self.invalidated(push),
            PushKind::Disconnection => self.broke("the connection was closed"),
            _ => {}
        }
    }
}
