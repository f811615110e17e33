//! rslock, the peer in Rust: without fences and without a queue.

use std::{sync::Arc, time::Duration};

use rslock::{LockGuard, LockManager};

use super::{Library, Lock, TTL};
use crate::{Failure, bare};

#[derive(Clone)]
pub(crate) struct Rslock {
    manager: LockManager,
    ttl: Duration,
}

impl Rslock {
    /// It connects with the first lock.
    pub(crate) fn open(urls: &[&str]) -> Result<Self, Failure> {
        let clients = urls.iter().map(|url| bare::client(url)).collect::<Result<_, _>>()?;
        Ok(Self { manager: LockManager::from_clients(clients), ttl: TTL })
    }

    pub(crate) fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }
}

impl Library for Rslock {
    type Lock = RslockLock;

    fn lock(&self, name: &str) -> RslockLock {
        RslockLock { library: self.clone(), name: name.into() }
    }
}

pub(crate) struct RslockLock {
    library: Rslock,
    name: Arc<str>,
}

impl Lock for RslockLock {
    type Guard = LockGuard;

    async fn acquire(&mut self) -> Result<LockGuard, Failure> {
        Ok(self.library.manager.acquire(&*self.name, self.library.ttl).await?)
    }

    async fn release(&mut self, guard: LockGuard) -> Result<(), Failure> {
        guard.release().await;
        Ok(())
    }
}
