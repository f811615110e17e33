//! One server that has all names: a fixed one, or the primary that sentinels name.

use std::sync::Arc;

use super::Shard;
use crate::engine::{
    connect::EngineOptions,
    redis::{
        acks::Pool,
        batch::Lane,
        connection::{Connection, ConnectionOptions},
        url::Endpoint,
    },
};

/// The connections to it; each lane has a wake channel of its own.
pub(super) fn open(
    endpoint: Endpoint,
    connection: &ConnectionOptions,
    options: &EngineOptions,
    process: u64,
) -> Arc<Shard> {
    let EngineOptions { clock, max_in_flight, .. } = options;
    let lane = |number: usize| {
        let channel = super::super::channel(process, number);
        let connection = open_connection(ConnectionOptions { channel, ..connection.clone() });
        Lane::new(connection, clock.clone(), *max_in_flight, false)
    };
    // Nobody is woken over these.
    let dedicated = ConnectionOptions { listener: None, ..connection.clone() };
    Arc::new(Shard {
        endpoint,
        lanes: (0..options.connections).map(lane).collect(),
        subscriber: None,
        pool: Pool::new(clock.clone(), false, move || open_connection(dedicated.clone())),
    })
}

/// A connection that looks for its server again whenever that moves.
fn open_connection(options: ConnectionOptions) -> Arc<Connection> {
    let connection = Connection::new(options);
    if let Some(sentinels) = connection.target().sentinels() {
        sentinels.tell(&connection);
    }
    connection
}
