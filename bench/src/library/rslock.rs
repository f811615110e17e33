//! rslock, the peer in Rust: without fences and without a queue.

use std::sync::Arc;

use rslock::{LockGuard, LockManager};

use super::{Library, Lock, TTL};
use crate::{Failure, bare};

#[derive(Clone)]
pub(crate) struct Rslock(LockManager);

impl Rslock {
    /// It connects with the first lock.
    pub(crate) fn open(urls: &[&str]) -> Result<Self, Failure> {
        let clients = urls.iter().map(|url| bare::client(url)).collect::<Result<_, _>>()?;
        Ok(Self(LockManager::from_clients(clients)))
    }
}

impl Library for Rslock {
    type Lock = RslockLock;

    fn lock(&self, name: &str) -> RslockLock {
        RslockLock { manager: self.0.clone(), name: name.into() }
    }
}

pub(crate) struct RslockLock {
    manager: LockManager,
    name: Arc<str>,
}

impl Lock for RslockLock {
    type Guard = LockGuard;

    async fn acquire(&mut self) -> Result<LockGuard, Failure> {
        Ok(self.manager.acquire(&*self.name, TTL).await?)
    }

    async fn release(&mut self, guard: LockGuard) -> Result<(), Failure> {
        guard.release().await;
        Ok(())
    }
}
