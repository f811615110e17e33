//! Connections of the driver, before they are anybody's [`Link`](crate::connection::Link).

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, PushInfo, Value,
    aio::{MultiplexedConnection, SendError},
};

use super::{Result, reply};

/// More commands than a client has under way over one connection.
const QUEUE_MAX: usize = 1 << 20;

/// Dials a server; `pushed` gets what comes without being asked for.
pub(super) async fn dial(
    client: &Client,
    pushed: impl Fn(&PushInfo) + Send + Sync + 'static,
) -> Result<MultiplexedConnection> {
    let push = move |push: PushInfo| -> Result<(), SendError> {
        pushed(&push);
        Ok(())
    };
    // The driver's own time limits are off: the one around the whole dial is ours, and says what it waited for.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        // A command that was polled once is in the queue, and what is sent later arrives later: see `Registry`.
        .set_pipeline_buffer_size(QUEUE_MAX)
        .set_push_sender(push);
    let dialled = client.get_multiplexed_async_connection_with_config(&config).await;
    dialled.map_err(|error| reply::of_dial(&error, speaks_tls(client)))
}

/// Sends one command over a connection that nobody else uses yet.
pub(super) async fn asked(connection: &mut MultiplexedConnection, cmd: &Cmd) -> Result<Value> {
    match connection.send_packed_command(cmd).await {
        Ok(Value::ServerError(error)) => Err(reply::of_command(&error.into())),
        Ok(value) => Ok(value),
        Err(error) => Err(reply::of_command(&error)),
    }
}

/// Whether a client shows a password.
pub(super) fn has_password(client: &Client) -> bool {
    client.get_connection_info().redis_settings().password().is_some()
}

pub(super) fn speaks_tls(client: &Client) -> bool {
    matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
}
