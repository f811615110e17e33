//! Subscriptions of a connection: where it hears wake-ups.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
};

use tokio::sync::OnceCell;

use super::{Connection, Node, State};
use crate::{clock::Until, engine::EngineError};

impl Node {
    /// Makes sure that this connection hears wake-ups; answers when the server confirmed it.
    pub(in super::super) async fn subscribe(
        &self,
        connection: &Connection,
        until: Until,
    ) -> Result<(), EngineError> {
        let began = self.options.clock.now();
        let subscribed = connection
            .subscribed
            .get_or_try_init(|| async { connection.inner.clone().subscribe(self.channel()).await });
        // Also while somebody else subscribes.
        match self.options.clock.bounded(until, subscribed).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.failed(connection, &error)),
            None => Err(self.unanswered(connection, began)),
        }
    }

    /// The same for one slot of a cluster, whose wake-ups come on a channel of its own.
    pub(in super::super) async fn subscribe_slot(
        &self,
        connection: &Connection,
        (slot, channel): (u16, &str),
        asking: bool,
        until: Until,
    ) -> Result<(), EngineError> {
        let cell = connection.slots().entry(slot).or_default().clone();
        let subscribed = cell.get_or_try_init(|| async {
            let mut cmd = redis::cmd("SSUBSCRIBE");
            cmd.arg(channel);
            let sent = if asking {
                self.send_asking(connection, &cmd, until).await
            } else {
                self.send(connection, &cmd, until).await
            };
            sent.map(drop)
        });
        // Also while somebody else subscribes.
        self.options
            .clock
            .bounded(until, subscribed)
            .await
            .unwrap_or_else(|| Err(EngineError::no_answer()))?;
        Ok(())
    }

    /// Whether the present connection hears the wake-ups of a slot.
    pub(in super::super) fn hears_slot(&self, slot: u16) -> bool {
        match &*self.state() {
            State::Up(connection) if !connection.broken.load(Ordering::Acquire) => {
                connection.slots().get(&slot).is_some_and(|cell| cell.initialized())
            }
            _ => false,
        }
    }
}

impl Connection {
    fn slots(&self) -> MutexGuard<'_, HashMap<u16, Arc<OnceCell<()>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
