//! leasehold.

use std::{sync::Arc, time::Duration};

use leasehold::{Guard, Leasehold};

use super::{Library, Lock, TTL};
use crate::Failure;

#[derive(Clone)]
pub(crate) struct Ours {
    leases: Leasehold,
    ttl: Duration,
    keep_alive: bool,
    kind: Kind,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Exclusive,
    /// Readers.
    Shared,
    /// One of so many permits.
    Permits(u32),
}

impl Ours {
    /// One server, or the admitted nodes of a quorum.
    pub(crate) async fn connect(urls: &[&str]) -> Result<Self, Failure> {
        let hosts = |url: &&str| url.strip_prefix("redis://").map(str::to_owned).ok_or("not a redis:// URL");
        let url = match urls {
            [one] => (*one).to_owned(),
            nodes => {
                format!("redlock://{}", nodes.iter().map(hosts).collect::<Result<Vec<_>, _>>()?.join(","))
            }
        };
        let leases = Leasehold::connect(url).await?;
        Ok(Self { leases, ttl: TTL, keep_alive: false, kind: Kind::Exclusive })
    }

    pub(crate) fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    pub(crate) fn keep_alive(self) -> Self {
        Self { keep_alive: true, ..self }
    }

    pub(crate) fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }
}

impl Library for Ours {
    type Lock = OurLock;

    fn lock(&self, name: &str) -> OurLock {
        OurLock { library: self.clone(), name: name.into() }
    }
}

pub(crate) struct OurLock {
    library: Ours,
    name: Arc<str>,
}

impl Lock for OurLock {
    type Guard = Guard;

    async fn acquire(&mut self) -> Result<Guard, Failure> {
        let Ours { leases, ttl, keep_alive, kind } = &self.library;
        let lock = match kind {
            Kind::Exclusive => leases.lock(&self.name),
            Kind::Shared => leases.read_lock(&self.name),
            Kind::Permits(limit) => leases.semaphore(&self.name, *limit),
        };
        let lock = lock.ttl(*ttl).wait_forever();
        let lock = if *keep_alive { lock.keep_alive() } else { lock };
        Ok(lock.acquire().await?)
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }

    async fn release(&mut self, guard: Guard) -> Result<(), Failure> {
        let _ = guard.release().await?;
        Ok(())
    }
}
