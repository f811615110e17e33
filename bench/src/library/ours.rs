//! leasehold.

use std::sync::Arc;

use leasehold::{Guard, Leasehold};

use super::{Library, Lock, TTL};
use crate::Failure;

#[derive(Clone)]
pub(crate) struct Ours(pub(crate) Leasehold);

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
        Ok(Self(Leasehold::connect(url).await?))
    }
}

impl Library for Ours {
    type Lock = OurLock;

    fn lock(&self, name: &str) -> OurLock {
        OurLock { leases: self.0.clone(), name: name.into() }
    }
}

pub(crate) struct OurLock {
    leases: Leasehold,
    name: Arc<str>,
}

impl Lock for OurLock {
    type Guard = Guard;

    async fn acquire(&mut self) -> Result<Guard, Failure> {
        Ok(self.leases.lock(&self.name).ttl(TTL).wait_forever().acquire().await?)
    }

    async fn release(&mut self, guard: Guard) -> Result<(), Failure> {
        guard.release().await?;
        Ok(())
    }
}
