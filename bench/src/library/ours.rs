//! leasehold.

use std::{sync::Arc, time::Duration};

use leasehold::{Guard, Leasehold};

use super::{Library, Lock, TTL};
use crate::Failure;

#[derive(Clone)]
pub(crate) struct Ours {
    leases: Leasehold,
    keep_alive: Option<Duration>,
}

impl Ours {
    /// One server, or the admitted nodes of a quorum. Locks are kept alive if there is a ttl for that.
    pub(crate) async fn connect(urls: &[&str], keep_alive: Option<Duration>) -> Result<Self, Failure> {
        let hosts = |url: &&str| url.strip_prefix("redis://").map(str::to_owned).ok_or("not a redis:// URL");
        let url = match urls {
            [one] => (*one).to_owned(),
            nodes => {
                format!("redlock://{}", nodes.iter().map(hosts).collect::<Result<Vec<_>, _>>()?.join(","))
            }
        };
        Ok(Self { leases: Leasehold::connect(url).await?, keep_alive })
    }
}

impl Library for Ours {
    type Lock = OurLock;

    fn lock(&self, name: &str) -> OurLock {
        OurLock { leases: self.leases.clone(), name: name.into(), keep_alive: self.keep_alive }
    }
}

pub(crate) struct OurLock {
    leases: Leasehold,
    name: Arc<str>,
    keep_alive: Option<Duration>,
}

impl Lock for OurLock {
    type Guard = Guard;

    async fn acquire(&mut self) -> Result<Guard, Failure> {
        let lock = self.leases.lock(&self.name).wait_forever();
        let lock = match self.keep_alive {
            Some(ttl) => lock.ttl(ttl).keep_alive(),
            None => lock.ttl(TTL),
        };
        Ok(lock.acquire().await?)
    }

    fn is_held(guard: &Guard) -> bool {
        guard.is_held()
    }

    async fn release(&mut self, guard: Guard) -> Result<(), Failure> {
        guard.release().await?;
        Ok(())
    }
}
