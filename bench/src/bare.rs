//! Connections without the library, set up as the library's.

use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, aio::MultiplexedConnection};

use crate::Failure;

pub(crate) async fn connection(url: &str) -> Result<MultiplexedConnection, Failure> {
    connection_with(url, &AsyncConnectionConfig::new().set_response_timeout(None)).await
}

pub(crate) async fn connection_with(
    url: &str,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Failure> {
    Ok(client(url)?.get_multiplexed_async_connection_with_config(config).await?)
}

pub(crate) fn client(url: &str) -> Result<Client, Failure> {
    let info = format!("{url}/?protocol=resp3").into_connection_info()?;
    let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    Ok(Client::open(info.set_tcp_settings(tcp))?)
}
