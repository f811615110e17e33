//! Removes what a program that is over has left in a shared store, on every server of it.

use std::sync::{Arc, Weak};

use redis::Value;

use super::{
    Result,
    connection::Link,
    keys::scan_pattern,
    reply,
    topology::Topology,
    url::{CLUSTER, SENTINEL, StoreUrl},
    wake::Attempts,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, EngineOptions, Fault},
    error::Error,
};

const KEYS_PER_SCAN: u32 = 1000;
/// What the server had received of killed clients may still have been executed during the first pass.
const PASSES_MAX: usize = 10;
/// The counters of fences, of a server and of the slots of a cluster. They belong to all programs.
const COUNTERS: &str = "leasehold:fence";
/// KEYS counter · ARGV how many keys the database has if it has nothing but counters
const REMOVE_COUNTER: &str =
    "if redis.call('dbsize') > tonumber(ARGV[1]) then return 0 end return redis.call('del', KEYS[1])";

/// All servers that have data of one store, for one program that is about to begin or is over.
pub struct Servers {
    each: Vec<Arc<Topology>>,
    options: EngineOptions,
}

impl Servers {
    /// Prepares; nothing is dialled.
    pub fn open(url: &str, options: &EngineOptions) -> Result<Self, Error> {
        let mut url = StoreUrl::parse(url)?;
        let knows_others = [CLUSTER, SENTINEL].contains(&url.engine());
        let hosts = if knows_others {
            vec![url.hosts.clone()]
        } else {
            url.hosts.drain(..).map(|host| vec![host]).collect()
        };
        let open = |hosts| {
            url.hosts = hosts;
            Topology::open(&url, options, Weak::<Attempts>::new())
        };
        Ok(Self { each: hosts.into_iter().map(open).collect::<Result<_, _>>()?, options: options.clone() })
    }

    /// Whether no server has any key.
    pub async fn are_empty(&self) -> Result<bool> {
        for link in self.links().await {
            let count = link?.send(&redis::cmd("DBSIZE"), self.until()).await?;
            if count != Value::Int(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes every key with `text` in it; returns how many there were. With `counters`, which is for servers that were
    /// empty before, also the counters of fences where nothing else is left. A server that is down does not keep the others
    /// from being swept, and is an error at the end.
    pub async fn sweep(&self, text: &str, counters: bool) -> Result<u64> {
        if text.is_empty() {
            return Err(EngineError::new(
                Fault::Unsupported,
                "every key has an empty text in it: name a part of the keys",
            ));
        }
        let mut removed = Ok(0);
        for link in self.links().await {
            let swept = match link {
                Ok(link) => self.sweep_one(&link, text, counters).await,
                Err(error) => Err(error),
            };
            removed = removed.and_then(|before| swept.map(|more| before + more));
        }
        removed
    }

    async fn sweep_one(&self, link: &Link, text: &str, counters: bool) -> Result<u64> {
        let mut removed = 0;
        for _ in 0..PASSES_MAX {
            let keys = self.keys(link, &format!("*{}", scan_pattern(text))).await?;
            if keys.is_empty() {
                break;
            }
            removed += keys.len() as u64;
            // One by one: in a cluster each may have a slot of its own.
            let unlink = |key: &Vec<u8>| redis::cmd("UNLINK").arg(key).to_owned();
            let answers = link.send_all(keys.iter().map(unlink).collect(), self.until()).await;
            answers.into_iter().collect::<Result<Vec<_>>>()?;
        }
        if counters {
            let counters = self.keys(link, &scan_pattern(COUNTERS)).await?;
            for (key, most) in counters.iter().zip((1..=counters.len()).rev()) {
                let mut cmd = redis::cmd("EVAL");
                cmd.arg(REMOVE_COUNTER).arg(1).arg(key).arg(most);
                link.send(&cmd, self.until()).await?;
            }
        }
        Ok(removed)
    }

    fn until(&self) -> Until {
        self.options.clock.now() + self.options.command_timeout
    }

    async fn links(&self) -> Vec<Result<Arc<Link>>> {
        let mut links = Vec::new();
        for topology in &self.each {
            match topology.primaries(self.until()).await {
                Ok(primaries) => {
                    for (_, shard) in primaries {
                        links.push(shard.connection().link(self.until()).await);
                    }
                }
                Err(error) => links.push(Err(error)),
            }
        }
        links
    }

    async fn keys(&self, link: &Link, pattern: &str) -> Result<Vec<Vec<u8>>> {
        let (mut at, mut found) = (String::from("0"), Vec::new());
        loop {
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(&at).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS_PER_SCAN);
            let (next, keys): (String, Vec<Vec<u8>>) = reply::read(link.send(&cmd, self.until()).await?)?;
            found.extend(keys);
            if next == "0" {
                return Ok(found);
            }
            at = next;
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.each.iter().for_each(|topology| topology.close());
    }
}
