//! Sessions of a program's own beside the store: for its tables in the same database, and for what operators do there.

use tokio_postgres::Client;

use super::{Result, reply, url::StoreUrl, url::Target};
use leasehold_core::{
    engine::{EngineError, EngineOptions, Fault},
    error::{Error, Refusal},
};

/// Opens sessions of your own in the database of a store URL, with its password and certificates. They are never given to
/// the store, so they may keep state: where the URL tells by `listen=` of a pooler, they go past it.
pub struct Sessions {
    target: Target,
    options: EngineOptions,
}

impl Sessions {
    /// Prepares; nothing is dialled.
    pub fn open(url: &str, options: &EngineOptions) -> Result<Self, Error> {
        Ok(Self { target: StoreUrl::parse(url)?.listen_target(options)?, options: options.clone() })
    }

    /// The same for sessions that find their tables in this schema.
    pub fn within(mut self, schema: &str) -> Self {
        self.target.search_in(schema);
        self
    }

    /// Opens one. Its connection is a task of the current runtime, and ends with the client.
    pub async fn connect(&self) -> Result<Client> {
        let until = self.options.clock.now() + self.options.command_timeout;
        let Some(dialled) = self.options.clock.bounded(until, self.target.connect()).await else {
            return Err(EngineError::new(Fault::Unreachable, "the server does not answer"));
        };
        let (client, connection) = dialled.map_err(|error| explained(reply::dial_error(&error)))?;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// A pooler that shares sessions refuses one that is to keep a schema.
fn explained(error: EngineError) -> EngineError {
    if !error.why.contains("startup parameter") {
        return error;
    }
    let why = format!(
        "{}: a pooler stands before the database; name the database itself by listen=HOST:PORT",
        error.why
    );
    EngineError::new(Fault::Refused(Refusal::Other), why)
}
