//! Where a connection goes: a fixed server, or whichever is the primary at the moment.

use redis::{ConnectionAddr, Value, aio::MultiplexedConnection};

use super::answer;
use crate::{clock::Until, engine::EngineError};

/// Where to dial.
pub(super) enum Place {
    /// One server.
    Fixed(redis::Client),
}

impl Place {
    /// The server to dial now.
    #[expect(clippy::unused_async, reason = "others have to ask for it")]
    pub(super) async fn client(&self, _until: Until) -> Result<redis::Client, EngineError> {
        match self {
            Self::Fixed(client) => Ok(client.clone()),
        }
    }

    /// Whether it may be another server next time.
    pub(super) fn follows(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
        }
    }

    /// Whether the server that was dialled is the one that was meant.
    #[expect(clippy::unused_async, reason = "others have to ask for it")]
    pub(super) async fn check(&self, _connection: &mut MultiplexedConnection) -> Result<(), EngineError> {
        match self {
            Self::Fixed(_) => Ok(()),
        }
    }

    /// How many replicas the deployment has, those that are down included, if anybody but the server itself keeps count.
    #[expect(clippy::unused_async, reason = "others have to ask for it")]
    pub(super) async fn replicas(&self, _until: Until) -> Result<Option<u32>, EngineError> {
        match self {
            Self::Fixed(_) => Ok(None),
        }
    }

    /// Whether this client shows a password.
    pub(super) fn has_password(&self) -> bool {
        match self {
            Self::Fixed(client) => client.get_connection_info().redis_settings().password().is_some(),
        }
    }

    pub(super) fn speaks_tls(&self) -> bool {
        match self {
            Self::Fixed(client) => speaks_tls(client),
        }
    }
}

pub(super) fn speaks_tls(client: &redis::Client) -> bool {
    matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
}

/// This run of the server and its data set: after a restart, a promotion or a full copy from another server it differs.
pub(super) async fn identity(connection: &mut MultiplexedConnection) -> Result<String, EngineError> {
    let mut info = redis::cmd("INFO");
    info.arg("server").arg("replication");
    let value = connection.send_packed_command(&info).await.map_err(|error| answer::of_command(&error))?;
    if let Value::ServerError(error) = value {
        return Err(answer::of_command(&error.into()));
    }
    let text = match &value {
        Value::VerbatimString { text, .. } => text.as_str(),
        other => answer::text(other).unwrap_or_default(),
    };
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    match (field("run_id"), field("master_replid")) {
        (Some(run), Some(data)) => Ok(format!("{run}-{data}")),
        _ => Err(answer::unexpected(&value)),
    }
}
