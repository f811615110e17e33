//! Which server has a name, and how a call gets there: one server, the primary that sentinels name, or the nodes of a
//! cluster.
//!
//! Everything that is sent goes through [`Topology::send`], [`Topology::send_each`] or [`Topology::follow`]; what is done about
//! an error stands in one table, [`outcome`].
//!
//! The driver has clients of its own for clusters and sentinels. They are not used, because they send a command again after a
//! broken connection, and count that together with redirections: a claim or a release that may have had an effect must not
//! be sent twice. Nor do they survive a slot that moves: the server then ends its subscriptions with an SUNSUBSCRIBE that
//! nobody asked for, the driver takes it for a reply, and every later reply is another command's.

mod cluster;
mod map;
pub(super) mod outcome;
pub(super) mod sentinel;
pub(super) mod slots;

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use redis::{Cmd, Value};

pub(super) use self::cluster::Cluster;
use super::{
    acks::Pool,
    batch::{Lane, Reply},
    connection::{Connection, ConnectionOptions, Listener, Tasks},
    script::{Op, Script},
    target::DialTarget,
    url::{self, Endpoint},
};
use crate::{
    clock::Until,
    engine::{EngineError, Fault, connect::EngineOptions, registry::ended_error},
    error::Result,
    name::Name,
};
use outcome::Resend;

type Answer<T> = std::result::Result<T, EngineError>;

/// One server that takes writes, and the connections to it.
pub(super) struct Shard {
    pub(super) endpoint: Endpoint,
    lanes: Vec<Arc<Lane>>,
    /// In a cluster, claims that wait and their wake-ups have a connection of their own: the server may end a subscription
    /// at any time, which costs the connection. Renewals and releases must not notice.
    subscriber: Option<Arc<Lane>>,
    /// For claims that wait for replicas.
    pub(super) pool: Arc<Pool>,
}

impl Shard {
    /// The connections to a server, none of them dialled. One that is a node of a cluster has a subscriber; otherwise each
    /// lane has a wake channel of its own.
    fn new(
        endpoint: Endpoint,
        connection: &ConnectionOptions,
        options: &EngineOptions,
        channels: Option<u64>,
    ) -> Self {
        let in_cluster = channels.is_none();
        let lane = |number| {
            let channel = channels.map_or_else(String::new, |process| super::channel(process, number));
            let connection = ConnectionOptions { channel, ..connection.clone() };
            Lane::new(connection, options.max_in_flight, in_cluster)
        };
        Self {
            endpoint,
            lanes: (0..options.connections).map(lane).collect(),
            subscriber: in_cluster.then(|| lane(0)),
            pool: Pool::new(connection.clone(), in_cluster),
        }
    }

    /// All operations of a name take the same connection, but for claims that wait in a cluster: what is sent later
    /// arrives later.
    pub(super) fn lane(&self, name: &Name) -> &Arc<Lane> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        &self.lanes[hash as usize % self.lanes.len()]
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.lanes[0].connection
    }

    /// Nobody hears its wake-ups any more: who waits there asks again.
    fn leave(&self, why: &str) {
        if let Some(subscriber) = &self.subscriber {
            subscriber.connection.leave(why);
        }
    }

    fn close(&self) {
        self.lanes.iter().chain(&self.subscriber).for_each(|lane| lane.connection.close());
        self.pool.close();
    }
}

/// A server on the way of a call.
#[derive(Clone)]
pub(super) struct Stop {
    pub(super) shard: Arc<Shard>,
    /// It is about to get the slot, and answers only to ASKING.
    pub(super) asking: bool,
}

/// Where names are.
pub(super) struct Topology {
    servers: Servers,
    /// Warned once that the server refuses wake-ups.
    polling_only: AtomicBool,
}

enum Servers {
    /// All on one server.
    One(Arc<Shard>),
    /// Each where its slot is.
    Cluster(Arc<Cluster>),
}

impl Topology {
    /// Prepares what a URL names; nothing is dialled. Answers the engine's word, as in the URL scheme, too.
    pub(super) fn open(
        url: &str,
        options: &EngineOptions,
        listener: Weak<dyn Listener>,
    ) -> Result<(&'static str, Self)> {
        let scheme = url.split(':').next().unwrap_or_default();
        let (process, tasks) = (super::random_process(), Tasks::here());
        let connection = |target: DialTarget| ConnectionOptions {
            identify: target.grace().is_some(),
            target,
            client_name: super::client_name(options),
            channel: String::new(),
            clock: options.clock.clone(),
            command_timeout: options.command_timeout,
            listener: Some(listener.clone()),
            tasks: tasks.clone(),
        };
        let (word, endpoint, target) = if scheme.ends_with("-cluster") {
            let seeds = url::cluster(url)?;
            let connection = connection(DialTarget::Fixed(Box::new(seeds[0].clone())));
            let servers = Servers::Cluster(Cluster::new(seeds, options, connection, process));
            return Ok(("redis-cluster", Self { servers, polling_only: AtomicBool::new(false) }));
        } else if scheme.ends_with("-sentinel") {
            let sentinels = sentinel::Sentinels::open(url, options, tasks.clone())?;
            let endpoint = Endpoint::of(sentinels.template());
            ("redis-sentinel", endpoint, DialTarget::Sentinel(Arc::new(sentinels)))
        } else {
            let client = url::server(url)?;
            ("redis", Endpoint::of(&client), DialTarget::Fixed(Box::new(client)))
        };
        let shard = Shard::new(endpoint, &connection(target), options, Some(process));
        let servers = Servers::One(Arc::new(shard));
        Ok((word, Self { servers, polling_only: AtomicBool::new(false) }))
    }

    /// The nodes, if they share the names.
    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match &self.servers {
            Servers::One(_) => None,
            Servers::Cluster(cluster) => Some(cluster),
        }
    }

    /// The server, if it has all names.
    pub(super) fn server(&self) -> Option<&Arc<Shard>> {
        match &self.servers {
            Servers::One(shard) => Some(shard),
            Servers::Cluster(_) => None,
        }
    }

    /// The number of the shard that has a slot.
    pub(super) fn shard_of(&self, slot: impl FnOnce() -> u16) -> u64 {
        self.cluster().map_or(0, |cluster| cluster.number(slot()))
    }

    /// Whether wake-ups for names of a slot reach us, or will before anything queues, at no cost.
    pub(super) fn is_subscribed(&self, slot: impl FnOnce() -> u16) -> bool {
        self.cluster().is_none_or(|cluster| cluster.is_subscribed(slot()))
    }

    /// Where waiters of a name are woken: in a cluster on a channel of its slot, otherwise where all waiters of its
    /// connection are.
    pub(super) fn channel(&self, name: &Name, slot: impl FnOnce() -> u16) -> String {
        match &self.servers {
            Servers::One(shard) => shard.lane(name).connection.channel().to_owned(),
            Servers::Cluster(cluster) => cluster.channel(slot()),
        }
    }

    /// Runs a call at the server that has a slot, and again where that redirects it.
    pub(super) async fn follow<T, F>(
        &self,
        slot: u16,
        resend: Resend,
        until: Until,
        mut call: impl FnMut(Stop) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Answer<T>>,
    {
        match &self.servers {
            Servers::One(shard) => call(Stop { shard: shard.clone(), asking: false }).await,
            Servers::Cluster(cluster) => cluster.follow(slot, resend, until, call).await,
        }
    }

    /// Sends an operation to the server that has its name.
    pub(super) async fn send(&self, name: &Name, build: impl Fn() -> Op, until: Until) -> Reply {
        let first = build();
        let (slot, resend) = (self.cluster().map_or(0, |_| first.slot()), first.resend());
        let mut next = Some(first);
        self.follow(slot, resend, until, |stop| {
            let op = next.take().unwrap_or_else(&build);
            self.send_to(stop, name, op, until)
        })
        .await
    }

    async fn send_to(&self, stop: Stop, name: &Name, op: Op, until: Until) -> Reply {
        let lane = match op.may_queue() {
            true => self.subscribe(&stop, name, || op.slot(), until).await?,
            false => stop.shard.lane(name),
        };
        // It may have been on its way for a while, and its end may be ahead of it.
        if op.is_void() {
            return Err(ended_error());
        }
        if stop.asking { lane.run_asking(&op, until).await } else { lane.run(op, until).await }
    }

    /// The lane for an operation that may queue: nothing queues before the server confirmed that wake-ups reach us, or
    /// refused them.
    pub(super) async fn subscribe<'a>(
        &self,
        stop: &'a Stop,
        name: &Name,
        slot: impl FnOnce() -> u16,
        until: Until,
    ) -> Answer<&'a Arc<Lane>> {
        let Stop { shard, asking } = stop;
        let lane = shard.subscriber.as_ref().unwrap_or_else(|| shard.lane(name));
        let subscribed = match self.cluster() {
            Some(cluster) => {
                let slot = slot();
                let place = (slot, &*cluster.channel(slot));
                lane.connection.subscribe_slot(place, *asking, until).await
            }
            None => lane.connection.link(until).await?.subscribe(until).await,
        };
        match subscribed {
            Err(error) if outcome::is_redirection(&error) => Err(error),
            // Without wake-ups a claim waits by asking: slower, and never wrong.
            Err(error) if matches!(error.fault, Fault::Refused(_)) => {
                if !self.polling_only.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the server refuses wake-ups: waiting by polls alone");
                }
                Ok(lane)
            }
            subscribed => subscribed.map(|()| lane).map_err(not_sent),
        }
    }

    /// Sends a script of its own to the server that has a slot.
    pub(super) async fn send_script(
        &self,
        slot: u16,
        resend: Resend,
        script: &Script,
        build: impl Fn(&Script, bool) -> Cmd,
        until: Until,
    ) -> Answer<Value> {
        let build = &build;
        self.follow(slot, resend, until, |Stop { shard, asking }| async move {
            shard.connection().link(until).await?.run_script(asking, script, build, until).await
        })
        .await
    }

    /// Sends many calls at once, one result each: `together` sends those of one shard, `alone` follows one that was
    /// redirected or could not be sent. A silent server fails its own calls only.
    pub(super) async fn send_each<T, F, G>(
        &self,
        slots: impl ExactSizeIterator<Item = u16>,
        until: Until,
        together: impl Fn(Arc<Shard>, Vec<usize>) -> F,
        alone: impl Fn(usize) -> G,
    ) -> Vec<Answer<T>>
    where
        F: Future<Output = Vec<Answer<T>>>,
        G: Future<Output = Answer<T>>,
    {
        let cluster = match &self.servers {
            Servers::One(shard) => return together(shard.clone(), (0..slots.len()).collect()).await,
            Servers::Cluster(cluster) => cluster,
        };
        let map = match cluster.map(until).await {
            Ok(map) => map,
            Err(error) => return slots.map(|_| Err(error.clone())).collect(),
        };
        let mut results: Vec<Answer<T>> = (0..slots.len()).map(|_| Err(EngineError::no_answer())).collect();
        let mut groups: Vec<(&Arc<Shard>, Vec<usize>)> = Vec::new();
        let mut redirected = Vec::new();
        for (at, slot) in slots.enumerate() {
            // A slot without a primary is followed, too: the map is read again.
            let Some(shard) = map.shard(slot) else {
                redirected.push(at);
                continue;
            };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, shard)) {
                Some((_, places)) => places.push(at),
                None => groups.push((shard, vec![at])),
            }
        }
        let sent = join_all(groups.iter().map(|(shard, places)| together((*shard).clone(), places.clone())));
        for ((_, places), answers) in groups.iter().zip(sent.await) {
            for (at, answer) in places.iter().zip(answers) {
                match &answer {
                    Err(error) if outcome::is_redirection(error) || error.fault == Fault::Unreachable => {
                        redirected.push(*at);
                    }
                    _ => results[*at] = answer,
                }
            }
        }
        // A future for each of them is large: it is made for those that need it.
        let followed = join_all(redirected.iter().map(|at| alone(*at))).await;
        redirected.into_iter().zip(followed).for_each(|(at, answer)| results[at] = answer);
        results
    }

    /// Reaches the store once.
    pub(super) async fn connect(&self, until: Until) -> Answer<()> {
        match &self.servers {
            Servers::One(shard) => shard.connection().link(until).await.map(drop),
            Servers::Cluster(cluster) => slots::check_complete(&cluster.map(until).await?.primaries),
        }
    }

    pub(super) fn close(&self) {
        match &self.servers {
            Servers::One(shard) => {
                shard.close();
                if let Some(sentinels) = shard.connection().target().sentinels() {
                    sentinels.close();
                }
            }
            Servers::Cluster(cluster) => cluster.close(),
        }
    }
}

/// An operation that could not even be prepared has had no effect, whatever became of the preparation.
pub(super) fn not_sent(error: EngineError) -> EngineError {
    match error.fault {
        Fault::NoAnswer => EngineError { fault: Fault::Unreachable, ..error },
        _ => error,
    }
}
