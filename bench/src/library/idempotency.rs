//! Idempotency keys behind the trait of locks: `acquire` begins an execution, `release` completes it. Every key is new.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use leasehold::{
    Leasehold,
    idempotency::{Begun, Execution},
};
use redis::aio::MultiplexedConnection;

use super::{Library, Lock, TTL};
use crate::{Failure, bare};

/// Results expire soon, or they would fill the memory.
const KEEP: Duration = Duration::from_secs(2);
const RESULT: &[u8] = b"done";

#[derive(Clone)]
pub(crate) struct OurKeys(Leasehold);

impl OurKeys {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(Leasehold::connect(url).await?))
    }
}

impl Library for OurKeys {
    type Lock = OurKey;

    fn lock(&self, name: &str) -> OurKey {
        OurKey { leases: self.0.clone(), next: Next::new(name) }
    }
}

pub(crate) struct OurKey {
    leases: Leasehold,
    next: Next,
}

impl Lock for OurKey {
    type Guard = Execution<Bytes>;

    async fn acquire(&mut self) -> Result<Execution<Bytes>, Failure> {
        let key = self.leases.idempotency("bench").key(self.next.key()).lease_ttl(TTL).keep_result_for(KEEP);
        match key.begin_bytes().await? {
            Begun::Yours(execution) => Ok(execution),
            _ => Err("a new key is not ours".into()),
        }
    }

    async fn release(&mut self, execution: Execution<Bytes>) -> Result<(), Failure> {
        execution.complete_bytes(Bytes::from_static(RESULT)).await?;
        Ok(())
    }
}

/// The limit: a key is set if it is new, then overwritten with the result, without any check of whose it is.
#[derive(Clone)]
pub(crate) struct BareKeys(MultiplexedConnection);

impl BareKeys {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(bare::connection(url).await?))
    }
}

impl Library for BareKeys {
    type Lock = BareKey;

    fn lock(&self, name: &str) -> BareKey {
        BareKey { connection: self.0.clone(), next: Next::new(name) }
    }
}

pub(crate) struct BareKey {
    connection: MultiplexedConnection,
    next: Next,
}

impl Lock for BareKey {
    type Guard = String;

    async fn acquire(&mut self) -> Result<String, Failure> {
        let key = self.next.key();
        let mut set = redis::cmd("SET");
        set.arg(&key).arg("running").arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        match self.connection.send_packed_command(&set).await? {
            redis::Value::Okay => Ok(key),
            other => Err(format!("a new key is not ours: {other:?}").into()),
        }
    }

    async fn release(&mut self, key: String) -> Result<(), Failure> {
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(RESULT).arg("PX").arg(KEEP.as_millis() as u64);
        self.connection.send_packed_command(&set).await?;
        Ok(())
    }
}

/// Keys that were never used before.
struct Next {
    stem: Arc<str>,
    used: u64,
}

impl Next {
    fn new(name: &str) -> Self {
        Self { stem: format!("{name}:{:016x}", super::random()).into(), used: 0 }
    }

    fn key(&mut self) -> String {
        self.used += 1;
        format!("{}:{}", self.stem, self.used)
    }
}
