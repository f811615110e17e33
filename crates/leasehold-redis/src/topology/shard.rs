//! One server that takes writes, and the connections to it.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use crate::{
    acks::Pool,
    batch::Lane,
    connection::{Connection, ConnectionOptions},
    url::Endpoint,
};
use leasehold_core::{engine::EngineOptions, name::Name};

pub(crate) struct Shard {
    pub(crate) endpoint: Endpoint,
    lanes: Vec<Arc<Lane>>,
    /// In a cluster, claims that wait and their wake-ups have a connection of their own: the server may end a subscription
    /// at any time, which costs the connection. Renewals and releases must not notice.
    pub(super) subscriber: Option<Arc<Lane>>,
    /// What Redisson announces of its locks; dialled when somebody waits for one. A connection of its own, because it is
    /// replaced to be rid of channels that nobody needs any more.
    pub(crate) announcements: Arc<Connection>,
    /// For claims that wait for replicas.
    pub(crate) pool: Arc<Pool>,
}

impl Shard {
    /// The connections to a server, none of them dialled. One that is a node of a cluster has a subscriber; otherwise each
    /// lane has a wake channel of its own.
    pub(super) fn new(
        endpoint: Endpoint,
        connection: &ConnectionOptions,
        options: &EngineOptions,
        channels: &[Arc<str>],
    ) -> Self {
        let in_cluster = channels.is_empty();
        let lane = |number: usize| {
            let channel = channels.get(number).cloned().unwrap_or_default();
            let connection = ConnectionOptions { channel, ..connection.clone() };
            Lane::new(connection, options.max_in_flight, in_cluster)
        };
        Self {
            endpoint,
            lanes: (0..options.connections).map(lane).collect(),
            subscriber: in_cluster.then(|| lane(0)),
            announcements: Connection::new(connection.clone()),
            pool: Pool::new(connection.clone(), in_cluster),
        }
    }

    /// All operations of a name take the same connection, but for claims that wait in a cluster: what is sent later
    /// arrives later.
    pub(crate) fn lane(&self, name: &Name) -> &Arc<Lane> {
        &self.lanes[lane_of(name, self.lanes.len())]
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.lanes[0].connection
    }

    /// Whether wake-ups of a slot of a cluster reach us.
    pub(super) fn is_subscribed(&self, slot: u16) -> bool {
        self.subscriber.as_ref().is_some_and(|lane| lane.connection.is_subscribed(slot))
    }

    /// Its wake-ups no longer reach us: waiters claim again.
    pub(super) fn leave(&self, why: &str) {
        self.subscriber.iter().for_each(|lane| lane.connection.leave(why));
        self.announcements.leave(why);
    }

    pub(super) fn close(&self) {
        self.lanes.iter().chain(&self.subscriber).for_each(|lane| lane.connection.close());
        self.announcements.close();
        self.pool.close();
    }
}

/// Which of so many lanes the operations of a name take.
pub(super) fn lane_of(name: &Name, lanes: usize) -> usize {
    if lanes == 1 {
        return 0;
    }
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    hash as usize % lanes
}

/// A server on the way of a call.
#[derive(Clone)]
pub(crate) struct Stop {
    pub(crate) shard: Arc<Shard>,
    /// It is about to get the slot, and answers only to ASKING.
    pub(crate) asking: bool,
}
