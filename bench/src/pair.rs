//! Two clients that hand one lock to each other, and two connections that pass a bare message.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Guard, Leasehold};
use redis::{AsyncConnectionConfig, PushInfo, PushKind, aio::MultiplexedConnection};
use tokio::sync::{mpsc, oneshot};

use crate::{Failure, bare};

/// Time for a waiter to settle before anything is sent: one that has just queued still sets its timer.
pub(crate) const REST: Duration = Duration::from_millis(1);

pub(crate) struct Pair {
    name: Arc<str>,
    clients: [Leasehold; 2],
    holder: Option<Guard>,
    next: usize,
}

impl Pair {
    pub(crate) async fn connect(url: &str, name: &str) -> Result<Self, Failure> {
        let clients = [Leasehold::connect(url).await?, Leasehold::connect(url).await?];
        let holder = clients[0].lock(name).acquire().await?;
        Ok(Self { name: name.into(), clients, holder: Some(holder), next: 1 })
    }

    /// From just before the release to the next holder's `acquire` returning.
    pub(crate) async fn hand_over(&mut self) -> Result<Duration, Failure> {
        let (queued, is_queued) = oneshot::channel();
        let queued = std::sync::Mutex::new(Some(queued));
        let waiting = self.clients[self.next].lock(&self.name).on_wait(move |_| {
            if let Some(queued) = queued.lock().ok().and_then(|mut queued| queued.take()) {
                let _ = queued.send(());
            }
        });
        let waiter =
            tokio::spawn(async move { waiting.acquire().await.map(|guard| (guard, Instant::now())) });
        is_queued.await?;
        tokio::time::sleep(REST).await;
        let holder = self.holder.take().ok_or("nobody holds the lock")?;
        let began = Instant::now();
        let _ = holder.release().await?;
        let (guard, arrived) = waiter.await??;
        self.holder = Some(guard);
        self.next = 1 - self.next;
        Ok(arrived - began)
    }

    pub(crate) async fn close(mut self) -> Result<(), Failure> {
        if let Some(holder) = self.holder.take() {
            let _ = holder.release().await?;
        }
        for client in &self.clients {
            client.close().await?;
        }
        Ok(())
    }
}

/// A message from one connection to another, without the library.
pub(crate) struct Publisher {
    channel: Arc<str>,
    publisher: MultiplexedConnection,
    _subscriber: MultiplexedConnection,
    messages: Option<mpsc::UnboundedReceiver<()>>,
}

impl Publisher {
    pub(crate) async fn connect(url: &str, channel: &str) -> Result<Self, Failure> {
        let (heard, messages) = mpsc::unbounded_channel();
        let push = move |push: PushInfo| {
            if push.kind == PushKind::Message {
                let _ = heard.send(());
            }
            Ok::<(), redis::aio::SendError>(())
        };
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(push);
        let mut subscriber = bare::connection_with(url, &config).await?;
        subscriber.subscribe(channel).await?;
        let publisher = bare::connection(url).await?;
        Ok(Self { channel: channel.into(), publisher, _subscriber: subscriber, messages: Some(messages) })
    }

    pub(crate) async fn publish(&mut self) -> Result<Duration, Failure> {
        let mut messages = self.messages.take().ok_or("nobody listens")?;
        let waiter = tokio::spawn(async move {
            messages.recv().await.map(|()| (messages, Instant::now())).ok_or("the subscription ended")
        });
        tokio::time::sleep(REST).await;
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&*self.channel).arg("0123456789abcdef0123456789abcdef 1700000000000000");
        let began = Instant::now();
        self.publisher.send_packed_command(&publish).await?;
        let (messages, arrived) = waiter.await??;
        self.messages = Some(messages);
        Ok(arrived - began)
    }
}
