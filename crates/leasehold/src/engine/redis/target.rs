//! Where a connection leads: a fixed server, or whichever is the primary at the moment.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, ConnectionAddr, Value, aio::MultiplexedConnection};

use super::{
    answer, script,
    topology::sentinel::{self, Sentinels},
};
use crate::engine::EngineError;

/// Where to dial.
#[derive(Clone)]
pub(super) enum DialTarget {
    /// One server.
    Fixed(Box<redis::Client>),
    /// The primary that sentinels name.
    Sentinel(Arc<Sentinels>),
}

impl DialTarget {
    /// Who names the server, if it may be another one next time.
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinel(sentinels) => Some(sentinels),
        }
    }

    /// The server to dial now.
    pub(super) async fn client(&self) -> Result<redis::Client, EngineError> {
        match self {
            Self::Fixed(client) => Ok((**client).clone()),
            Self::Sentinel(sentinels) => sentinels.primary().await,
        }
    }

    /// How often the server moved: a link made before the last time must not be used any more.
    pub(super) fn moves(&self) -> u64 {
        self.sentinels().map_or(0, |sentinels| sentinels.moves())
    }

    /// Whether the server that was dialled is the one that was meant.
    pub(super) async fn check(
        &self,
        connection: &mut MultiplexedConnection,
        client: &redis::Client,
    ) -> Result<(), EngineError> {
        match self {
            Self::Fixed(_) => Ok(()),
            Self::Sentinel(_) => sentinel::check_role(connection, client).await,
        }
    }

    /// How long nothing new is granted after a promotion, if that was asked for.
    pub(super) fn grace(&self) -> Option<Duration> {
        self.sentinels().and_then(|sentinels| sentinels.grace)
    }

    /// Begins a grace if this server is another one than before, before anything else is sent.
    pub(super) async fn arrive(
        &self,
        connection: &mut MultiplexedConnection,
        identity: Option<&str>,
    ) -> Result<(), EngineError> {
        let (Some(grace), Some(identity)) = (self.grace(), identity) else { return Ok(()) };
        if asked(connection, &script::arrival(identity, grace)).await? == Value::Int(1) {
            tracing::info!(?grace, "the primary is new: nothing is granted for a while");
        }
        Ok(())
    }

    /// Why a server could not be reached: people do not see its address in the URL if somebody else named it.
    pub(super) fn explain(&self, client: &redis::Client, error: EngineError) -> EngineError {
        match self {
            Self::Fixed(_) => error,
            Self::Sentinel(_) => {
                let addr = client.get_connection_info().addr();
                let why = format!("the sentinels name {addr} as the primary, and it cannot be used: {error}");
                EngineError { why, ..error }
            }
        }
    }

    /// Whether this client shows a password.
    pub(super) fn has_password(&self) -> bool {
        self.template().get_connection_info().redis_settings().password().is_some()
    }

    pub(super) fn speaks_tls(&self) -> bool {
        speaks_tls(self.template())
    }

    fn template(&self) -> &redis::Client {
        match self {
            Self::Fixed(client) => client,
            Self::Sentinel(sentinels) => sentinels.template(),
        }
    }
}

/// Sends one command over a connection that nobody else uses yet.
pub(super) async fn asked(connection: &mut MultiplexedConnection, cmd: &Cmd) -> Result<Value, EngineError> {
    match connection.send_packed_command(cmd).await {
        Ok(Value::ServerError(error)) => Err(answer::of_command(&error.into())),
        Ok(value) => Ok(value),
        Err(error) => Err(answer::of_command(&error)),
    }
}

pub(super) fn speaks_tls(client: &redis::Client) -> bool {
    matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
}

/// This run of the server and its data set: after a restart, a promotion or a full copy from another server it differs.
pub(super) async fn identity(connection: &mut MultiplexedConnection) -> Result<String, EngineError> {
    let mut info = redis::cmd("INFO");
    info.arg("server").arg("replication");
    let value = asked(connection, &info).await?;
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
