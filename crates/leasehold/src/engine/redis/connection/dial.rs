//! Dials: one at a time, in a task of its own, and what comes over a link afterwards without being asked for.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::{OnceCell, watch};

use super::{Connection, ConnectionOptions, Link, State, link::Signals};
use crate::engine::{
    EngineError, Fault,
    redis::{answer, target},
};

/// More commands than a client has under way over one connection.
const QUEUE_MAX: usize = 1 << 20;

/// Numbers of links, unique in this process: what was learnt over one says nothing about another server's.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Connection {
    pub(super) fn start_dial(self: &Arc<Self>, state: &mut State, pause: Duration) -> watch::Receiver<()> {
        let (over, dial) = watch::channel(());
        *state = State::Dialling(dial.clone());
        let connection = self.clone();
        let task = async move {
            // In a task of its own: a driver that panics must not leave everybody waiting for a dial that is over.
            let dialled = tokio::spawn(dial_once(connection.options.clone()));
            let outcome = dialled.await.unwrap_or_else(|_| {
                Err(EngineError::new(Fault::Unreachable, "the connection could not be set up"))
            });
            let connected = outcome.is_ok();
            {
                let mut state = connection.state();
                if !matches!(*state, State::Closed) {
                    *state = match outcome {
                        Ok(link) => State::Up { link: Arc::new(link), pause },
                        Err(why) => State::failed(connection.options.clock.now(), pause, why),
                    };
                }
            }
            drop(over);
            if connected && let Some(listener) = connection.options.listener() {
                listener.connected();
            }
        };
        drop(self.options.tasks.spawn(task));
        dial
    }
}

async fn dial_once(options: Arc<ConnectionOptions>) -> Result<Link, EngineError> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
    let signals = Arc::new(Signals {
        options: options.clone(),
        number,
        end: OnceLock::new(),
        shifted: AtomicBool::new(false),
    });
    let push = {
        let signals = signals.clone();
        move |push: PushInfo| -> Result<(), redis::aio::SendError> {
            signals.pushed(&push);
            Ok(())
        }
    };
    // The driver's own time limits are off: the one around the whole dial is ours, and says what it waited for.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        // A command that was polled once is in the queue, and what is sent later arrives later: see `Registry::remains`.
        .set_pipeline_buffer_size(QUEUE_MAX)
        .set_push_sender(push);
    let moves = options.target.moves();
    let until = options.clock.now() + options.command_timeout;
    let mut towards = String::new();
    let dialled = async {
        let client = options.target.client().await?;
        if options.target.sentinels().is_some() {
            towards = format!(" to the primary {}", client.get_connection_info().addr());
        }
        let tls = target::speaks_tls(&client);
        let mut inner = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| options.target.explain(&client, answer::of_dial(&error, tls)))?;
        if !options.client_name.is_empty() {
            // A name is a comfort for operators: a user without that right can still lock.
            let mut name = redis::cmd("CLIENT");
            name.arg("SETNAME").arg(&options.client_name);
            let _ = inner.send_packed_command(&name).await;
        }
        options.target.check(&mut inner, &client).await?;
        let identity = if options.identify { Some(target::identity(&mut inner).await?) } else { None };
        options.target.arrive(&mut inner, identity.as_deref()).await?;
        Ok((inner, identity))
    };
    let dialled = options.clock.bounded(until, dialled).await;
    let (inner, identity) = dialled.unwrap_or_else(|| {
        let words = format!("no connection{towards} within {:?}", options.command_timeout);
        Err(EngineError::new(Fault::Unreachable, words))
    })?;
    Ok(Link {
        inner,
        number,
        identity,
        since: options.clock.now(),
        moves,
        subscribed: OnceCell::new(),
        slots: Mutex::default(),
        timeouts: AtomicU32::new(0),
        signals,
    })
}

impl Signals {
    /// Called by the driver's own task.
    fn pushed(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let (Some(listener), Some(Value::BulkString(payload))) =
                    (self.options.listener(), push.data.last())
                {
                    listener.message(self.number, payload);
                }
            }
            // We never ask for it: the slot went to another node. The driver takes it for the reply to whatever was sent
            // first, and every later reply for that of another command. It tells us before it hands out any of them.
            PushKind::SUnsubscribe => {
                self.shifted.store(true, Ordering::Release);
                self.broke("wake-ups of a slot have moved to another node");
            }
            PushKind::Disconnection => self.broke("the connection was closed"),
            _ => {}
        }
    }
}
