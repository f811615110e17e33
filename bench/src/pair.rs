//! Two clients that hand one lock to each other.

use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold};
use tokio::sync::oneshot;

use crate::Failure;

/// Time for a waiter to settle before anything is sent: one that has just queued still sets its timer.
pub(crate) const REST: Duration = Duration::from_millis(1);

pub(crate) struct Pair {
    clients: [Leasehold; 2],
    holder: Option<Guard>,
    next: usize,
}

impl Pair {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let clients = [Leasehold::connect(url).await?, Leasehold::connect(url).await?];
        let holder = clients[0].lock("bench:handover").acquire().await?;
        Ok(Self { clients, holder: Some(holder), next: 1 })
    }

    /// From just before the release to the next holder's `acquire` returning.
    pub(crate) async fn hand_over(&mut self) -> Result<Duration, Failure> {
        let (queued, is_queued) = oneshot::channel();
        let queued = std::sync::Mutex::new(Some(queued));
        let waiting = self.clients[self.next].lock("bench:handover").on_wait(move |_| {
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
        holder.release().await?;
        let (guard, arrived) = waiter.await??;
        self.holder = Some(guard);
        self.next = 1 - self.next;
        Ok(arrived - began)
    }

    pub(crate) async fn close(mut self) -> Result<(), Failure> {
        if let Some(holder) = self.holder.take() {
            holder.release().await?;
        }
        for client in &self.clients {
            client.close().await?;
        }
        Ok(())
    }
}
