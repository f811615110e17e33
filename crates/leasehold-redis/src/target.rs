//! Where a connection leads: a fixed server, or whichever is the primary at the moment.

use std::{sync::Arc, time::Duration};

use redis::{Client, Cmd, ConnectionAddr, Value, aio::MultiplexedConnection};

use super::{Result, reply, topology::sentinel::Sentinels, url::Endpoint};

/// Where to dial.
#[derive(Clone)]
pub(super) struct DialTarget {
    /// The login; the server, too, unless sentinels name it.
    pub(super) client: Client,
    /// Who names the server, if it may be another one next time.
    pub(super) sentinels: Option<Arc<Sentinels>>,
}

impl DialTarget {
    /// The same login at one server.
    pub(super) fn at(&self, endpoint: &Endpoint) -> Self {
        Self { client: endpoint.client(&self.client), sentinels: None }
    }

    /// The server to dial now.
    pub(super) async fn server(&self) -> Result<Client> {
        match &self.sentinels {
            None => Ok(self.client.clone()),
            Some(sentinels) => Ok(sentinels.primary().await?.client(&self.client)),
        }
    }

    /// How often the server moved: a link made before the last time must not be used any more.
    pub(super) fn moves(&self) -> u64 {
        self.sentinels.as_ref().map_or(0, |sentinels| sentinels.moves())
    }

    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(super) fn grace(&self) -> Option<Duration> {
        self.sentinels.as_ref()?.grace
    }
}

/// Whether a client shows a password.
pub(super) fn has_password(client: &Client) -> bool {
    client.get_connection_info().redis_settings().password().is_some()
}

pub(super) fn speaks_tls(client: &Client) -> bool {
    matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
}

/// Sends one command over a connection that nobody else uses yet.
pub(super) async fn asked(connection: &mut MultiplexedConnection, cmd: &Cmd) -> Result<Value> {
    match connection.send_packed_command(cmd).await {
        Ok(Value::ServerError(error)) => Err(reply::of_command(&error.into())),
        Ok(value) => Ok(value),
        Err(error) => Err(reply::of_command(&error)),
    }
}
