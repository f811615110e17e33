//! The limits, on one bare connection: the least that two calls cost, and the library's own scripts.

use redis::{Value, aio::MultiplexedConnection};

use super::{Library, Lock};
use crate::{Failure, bare, scripts::RawLock};

/// A PING instead of a claim, and one instead of a release.
#[derive(Clone)]
pub(crate) struct Pings(MultiplexedConnection);

impl Pings {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(Self(bare::connection(url).await?))
    }
}

impl Library for Pings {
    type Lock = Self;

    fn lock(&self, _: &str) -> Self {
        self.clone()
    }
}

impl Lock for Pings {
    type Guard = ();

    async fn acquire(&mut self) -> Result<(), Failure> {
        self.0.send_packed_command(&redis::cmd("PING")).await?;
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<(), Failure> {
        self.acquire().await
    }
}

/// The scripts that the library sends for a lock that nobody else wants.
#[derive(Clone)]
pub(crate) struct Scripts(MultiplexedConnection);

impl Scripts {
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let mut connection = bare::connection(url).await?;
        for cmd in RawLock::load() {
            connection.send_packed_command(&cmd).await?;
        }
        Ok(Self(connection))
    }
}

impl Library for Scripts {
    type Lock = ScriptLock;

    fn lock(&self, name: &str) -> ScriptLock {
        ScriptLock { connection: self.0.clone(), raw: RawLock::new(name) }
    }
}

pub(crate) struct ScriptLock {
    connection: MultiplexedConnection,
    raw: RawLock,
}

impl Lock for ScriptLock {
    type Guard = String;

    async fn acquire(&mut self) -> Result<String, Failure> {
        let id = self.raw.next_id();
        match self.connection.send_packed_command(&self.raw.claim(&id)).await? {
            Value::BulkString(_) => Ok(id),
            other => Err(format!("the bare claim answered {other:?}").into()),
        }
    }

    async fn release(&mut self, id: String) -> Result<(), Failure> {
        match self.connection.send_packed_command(&self.raw.release(&id)).await? {
            Value::Int(1) => Ok(()),
            other => Err(format!("the bare release answered {other:?}").into()),
        }
    }
}
