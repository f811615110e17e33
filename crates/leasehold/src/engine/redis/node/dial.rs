//! Dials: one at a time, in a task of its own, and what comes over the connection afterwards without being asked for.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::{OnceCell, watch};

use super::{
    super::{answer, place},
    Connection, Node, State,
};
use crate::engine::{EngineError, Fault};

/// More commands than a client has under way over one connection.
const QUEUE_MAX: usize = 1 << 20;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Numbers of connections, unique in this process: what was learnt over one says nothing about another server's.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl Node {
    pub(super) fn start_dial(self: &Arc<Self>, state: &mut State, pause: Duration) -> watch::Receiver<()> {
        let (over, dial) = watch::channel(());
        *state = State::Dialling(dial.clone());
        let node = self.clone();
        tokio::spawn(async move {
            // In a task of its own: a driver that panics must not leave everybody waiting for a dial that is over.
            let dialled = tokio::spawn({
                let node = node.clone();
                async move { node.dial().await }
            });
            let outcome = dialled.await.unwrap_or_else(|_| {
                Err(EngineError::new(Fault::Unreachable, "the connection could not be set up"))
            });
            let connected = outcome.is_ok();
            {
                let mut state = node.state();
                if !matches!(*state, State::Closed) {
                    *state = match outcome {
                        Ok(connection) => State::Up(Arc::new(connection)),
                        Err(why) => State::Down {
                            next_dial: node.options.clock.now() + pause,
                            pause: (pause * 2).min(PAUSE_MAX),
                            why,
                        },
                    };
                }
            }
            drop(over);
            if connected && let Some(listener) = node.listener() {
                listener.connected();
            }
        });
        dial
    }

    async fn dial(self: &Arc<Self>) -> Result<Connection, EngineError> {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
        let (broken, shifted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let push = {
            let (node, broken, shifted) = (Arc::downgrade(self), broken.clone(), shifted.clone());
            move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                // The driver takes it for the answer to whatever was sent first, and every later answer for that of
                // another command. It tells us before it hands out any of them.
                if push.kind == PushKind::SUnsubscribe {
                    shifted.store(true, Ordering::Release);
                }
                if let Some(node) = node.upgrade() {
                    node.pushed(number, &broken, &push);
                }
                Ok(())
            }
        };
        // The driver's own time limits are off: the one around the whole dial is ours, and says what it waited for.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            // A command that was polled once is in the queue, and what is sent later arrives later: see `Attempts::remains`.
            .set_pipeline_buffer_size(QUEUE_MAX)
            .set_push_sender(push);
        let options = &self.options;
        let moves = options.place.moves();
        let until = options.clock.now() + options.command_timeout;
        let mut towards = String::new();
        let dialled = async {
            let client = options.place.client().await?;
            if options.place.follows() {
                towards = format!(" to the primary {}", client.get_connection_info().addr());
            }
            let tls = place::speaks_tls(&client);
            let mut inner = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| options.place.explain(&client, answer::of_dial(&error, tls)))?;
            if !options.client_name.is_empty() {
                // A name is a comfort for operators: a user without that right can still lock.
                let mut name = redis::cmd("CLIENT");
                name.arg("SETNAME").arg(&options.client_name);
                let _ = inner.send_packed_command(&name).await;
            }
            options.place.check(&mut inner, &client).await?;
            let identity = if options.identify { Some(place::identity(&mut inner).await?) } else { None };
            options.place.arrive(&mut inner, identity.as_deref()).await?;
            Ok((inner, identity))
        };
        let dialled = options.clock.bounded(until, dialled).await;
        let (inner, identity) = dialled.unwrap_or_else(|| {
            let words = format!("no connection{towards} within {:?}", options.command_timeout);
            Err(EngineError::new(Fault::Unreachable, words))
        })?;
        Ok(Connection {
            inner,
            number,
            identity,
            subscribed: OnceCell::new(),
            slots: Mutex::default(),
            timeouts: AtomicU32::new(0),
            broken,
            shifted,
            moves,
        })
    }

    /// Called by the driver's own task.
    fn pushed(&self, number: u64, broken: &AtomicBool, push: &PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                if let (Some(listener), Some(Value::BulkString(payload))) =
                    (self.listener(), push.data.last())
                {
                    listener.message(number, payload);
                }
            }
            // We never ask for it: the slot went to another node.
            PushKind::SUnsubscribe => self.broke(broken, "wake-ups of a slot have moved to another node"),
            PushKind::Disconnection => self.broke(broken, "the connection was closed"),
            _ => {}
        }
    }

    pub(super) fn broke(&self, broken: &AtomicBool, why: &str) {
        if !broken.swap(true, Ordering::AcqRel) {
            tracing::debug!(why, "replacing the connection");
            if let Some(listener) = self.listener() {
                listener.disconnected(why);
            }
        }
    }
}
