//! `redis://`, `redis-sentinel://`, `redis-cluster://` and the same with TLS — leases between hosts, on one Redis (7.0 or
//! later) or Valkey, on whichever server of a set is the primary (`sentinel`), or on a cluster.
//!
//! A claim, a release or a renewal is one script on the server (`script`); many of them share a call when the client
//! is busy (`batch`). The next holder learns of a release in one hop, by a message on its connection (`wake`). A claim
//! that waits for replicas takes a connection of its own (`acks`).
//! In a cluster every name has its own server, which may change at any time (`cluster`).

mod acks;
mod answer;
mod batch;
mod claim;
mod cluster;
mod deadlines;
mod fan_out;
mod health;
mod inspect;
mod keys;
mod migrating;
mod node;
mod place;
mod records;
mod renewal;
mod script;
mod sentinel;
mod slots;
mod topology;
mod url;
pub(crate) mod voter;
mod wake;

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::{Arc, Weak, atomic::AtomicBool},
};

use crate::{
    clock::{Clock, Until},
    engine::{
        Answer, Capabilities, Claim, Cursor, Engine, EngineError, Fut, Handover, Health, Held, Hold, Inspect,
        Inspection, Leases, Page, Reach, Released, Renewed, WakeSink, connect::EngineOptions,
        deadlines::Deadlines, records::Records, registry::ended_error,
    },
    error::Result,
    fence::Fence,
    name::{NAME_MAX_BYTES, Name},
};
use acks::Pool;
use batch::{Lane, Reply};
use cluster::{Cluster, Stop};
pub use health::{SET_WARNING_CODES, WARNING_CODES};
use keys::Keys;
use node::{Listener, Node, NodeOptions};
use place::Place;
use script::Op;
use wake::Attempts;

/// The engine behind `redis://`, `redis-sentinel://` and `redis-cluster://`.
pub struct Redis {
    prefix: String,
    clock: Clock,
    servers: Servers,
    attempts: Arc<Attempts>,
    /// Told once that the server refuses wake-ups.
    polling_only: AtomicBool,
    /// Pools of deadlines whose last claim found nothing.
    capabilities: Capabilities,
}

/// Where names are.
enum Servers {
    /// All on one server.
    One(Vec<Arc<Lane>>, Arc<Pool>),
    /// Each where its slot is.
    Cluster(Arc<Cluster>),
}

impl Redis {
    /// Prepares the engine; nothing is dialled.
    pub(crate) fn open(url: &str, options: &EngineOptions) -> Result<Self> {
        let attempts = Arc::<Attempts>::default();
        let (process, client_name) = (random_process(), client_name(options));
        let listener: Arc<dyn Listener> = attempts.clone();
        let listener = Arc::downgrade(&listener);
        let (word, servers) = if url.split(':').next().is_some_and(|scheme| scheme.ends_with("-cluster")) {
            let seeds = url::open_cluster(url)?;
            let cluster = Cluster::new(seeds, options, client_name, process, listener);
            ("redis-cluster", Servers::Cluster(cluster))
        } else {
            let place = Place::open(url, options)?;
            let (word, with_grace) = (place.engine(), place.grace().is_some());
            let (clock, command_timeout) = (options.clock.clone(), options.command_timeout);
            let node = move |channel: String| {
                let node = Node::new(NodeOptions {
                    place: place.clone(),
                    client_name: client_name.clone(),
                    channel,
                    clock: clock.clone(),
                    command_timeout,
                    identify: with_grace,
                });
                place.tell(&node);
                node
            };
            let lane = |number: usize| {
                let node = node(channel(process, number));
                node.listen(listener.clone());
                Lane::new(node, options.clock.clone(), options.max_in_flight)
            };
            let lanes = (0..options.connections).map(lane).collect();
            // Nobody is woken over these.
            let pool = Pool::new(options.clock.clone(), with_grace, false, move || node(String::new()));
            (word, Servers::One(lanes, pool))
        };
        Ok(Self {
            servers,
            capabilities: Capabilities::new(
                word,
                Reach::Network,
                Handover::Push,
                true,
                NAME_MAX_BYTES - options.prefix.len(),
            ),
            prefix: options.prefix.clone(),
            clock: options.clock.clone(),
            attempts,
            polling_only: AtomicBool::new(false),
        })
    }

    fn keys(&self, name: &Name) -> Keys {
        Keys::new(&self.prefix, name)
    }

    /// The keys of what is held.
    fn keys_of(&self, hold: &Hold) -> Keys {
        match hold.of {
            Held::Lock | Held::Closed => self.keys(&hold.name),
            Held::Record => Keys::of_record(&hold.name),
        }
    }

    /// Sends an operation to the server that has its name.
    async fn run(&self, name: &Name, build: impl Fn() -> Op, until: Until) -> Reply {
        match &self.servers {
            Servers::One(lanes, _) => lane_of(lanes, name).run(build(), until).await,
            Servers::Cluster(cluster) => {
                let mut next = Some(build());
                let slot = next.as_ref().map_or(0, Op::slot);
                let mut route = cluster.route(slot, until);
                loop {
                    let stop = route.next().await?;
                    let op = next.take().unwrap_or_else(&build);
                    let (patient, channel) = (op.can_wait_for_its_keys(), cluster.channel_of(&op));
                    match self.run_at(&stop, name, op, channel, until).await {
                        Err(error) if slots::is_try_again(&error) && !patient => return Err(error),
                        Err(error) => route.after(&stop, error).await?,
                        reply => return reply,
                    }
                }
            }
        }
    }

    async fn run_at(
        &self,
        Stop { shard, asking }: &Stop,
        name: &Name,
        op: Op,
        channel: Option<String>,
        until: Until,
    ) -> Reply {
        let mut lane = shard.lane(name);
        let op = match channel {
            None => op,
            Some(channel) => {
                if op.may_queue() {
                    lane = &shard.ear;
                    let connection = lane.node.connection(until).await?;
                    let place = (op.slot(), &*channel);
                    match lane.node.subscribe_slot(&connection, place, *asking, until).await {
                        Err(error) if slots::points_elsewhere(&error) => return Err(error),
                        subscribed => self.despite_refusal(subscribed)?,
                    }
                }
                op.woken_on(channel)
            }
        };
        // It may have been on its way for a while, and its end may be ahead of it.
        if op.is_void() {
            return Err(ended_error());
        }
        if *asking { lane.run_asking(&op, until).await } else { lane.run(op, until).await }
    }
}

/// All operations of a name take the same connection: what is sent later arrives later.
fn lane_of<'a>(lanes: &'a [Arc<Lane>], name: &Name) -> &'a Arc<Lane> {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    &lanes[hash as usize % lanes.len()]
}

/// Tells this client from all others.
fn random_process() -> u64 {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the operating system gives random numbers");
    u64::from_le_bytes(random)
}

/// Where waiters of one of its connections are woken.
fn channel(process: u64, number: usize) -> String {
    format!("leasehold:wake:{process:016x}:{number}")
}

/// How this client calls itself to the server.
fn client_name(options: &EngineOptions) -> String {
    let label: String =
        options.client_name.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).collect();
    if label.is_empty() { "leasehold".to_owned() } else { format!("leasehold:{label}") }
}

impl Engine for Redis {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn inspector(&self) -> &dyn Inspect {
        self
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        self.attempts.set_sink(sink);
    }

    fn records(&self) -> std::result::Result<&dyn Records, &'static str> {
        Ok(self)
    }

    fn deadlines(&self) -> std::result::Result<&dyn Deadlines, &'static str> {
        Ok(self)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.attempts.round_trips())
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(async move {
            match &self.servers {
                Servers::One(lanes, _) => lanes[0].node.connection(until).await.map(drop),
                Servers::Cluster(cluster) => slots::check_complete(&cluster.map(until).await?.primaries),
            }
        })
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        Box::pin(self.look_at_health(until))
    }

    fn close(&self, _: Until) -> Fut<'_, ()> {
        match &self.servers {
            Servers::One(lanes, pool) => {
                lanes.iter().for_each(|lane| {
                    lane.node.close();
                    lane.node.place().close();
                });
                pool.close();
            }
            Servers::Cluster(cluster) => cluster.close(),
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Leases for Redis {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(self.claim(claim, until))
    }

    fn shard_of(&self, hold: &Hold) -> u64 {
        match &self.servers {
            Servers::One(..) => 0,
            Servers::Cluster(cluster) => cluster.part(self.keys_of(hold).slot()),
        }
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        Box::pin(async move { Ok(self.renew(holds, until).await) })
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        Box::pin(self.end(&hold.name, &hold.owner, None, until))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        Box::pin(async move { self.end(&claim.name, &claim.owner, Some(claim), until).await.map(drop) })
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        Box::pin(async move {
            let (value, _) = self.run(name, || Op::force_release(self.keys(name), seen), until).await?;
            // Those behind a hundred dead waiters find the lock free at their next poll.
            Ok(answer::released(value)?.unwrap_or(Released::Free))
        })
    }
}

impl Inspect for Redis {
    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        Box::pin(self.inspect_one(name, until))
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        Box::pin(self.scan_page(prefix, from, limit, until))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        engine::{Acks, Fault, Mode, Queue},
        owner::{Holder, Owner},
    };

    fn claim(random: u128, name: &str) -> Claim {
        Claim {
            name: Name::new(name).unwrap(),
            owner: Owner::new(random, &Holder::this_process("", 1)),
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            mode: Mode::Exclusive,
            queue: Some(Queue { wait: Duration::from_secs(30), poll_every: Duration::from_secs(5) }),
            acks: Acks::None,
        }
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_attempts_that_failed_or_got_their_lock() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let options = EngineOptions {
            clock: Clock::system(),
            command_timeout: Duration::from_secs(5),
            prefix: "lock:".into(),
            connections: 1,
            max_in_flight: 100,
            client_name: String::new(),
            max_ttl: Duration::from_secs(300),
        };
        let engine = Redis::open(&server.url(), &options).unwrap();
        let until = || Clock::system().now() + Duration::from_secs(5);

        server.cli(&["HSET", "lock:foreign", "a", "b"]);
        let error = engine.claim(&claim(1, "foreign"), until()).await.unwrap_err();
        assert_eq!(error.fault, Fault::WrongType);
        assert_eq!(engine.attempts.count(), 0);

        let (first, second) = (claim(2, "x"), claim(3, "x"));
        assert!(matches!(engine.claim(&first, until()).await, Ok(Answer::Granted(_))));
        assert!(matches!(engine.claim(&second, until()).await, Ok(Answer::Queued { .. })));
        assert_eq!(engine.attempts.count(), 1);
        Leases::release(&engine, &first.hold(Fence::new(0)), until()).await.unwrap();
        // Its client believes the message, and makes the lease's start exact.
        assert!(matches!(
            engine.renew(&[second.hold(Fence::new(0))], until()).await[..],
            [Ok(Renewed::Kept { .. })]
        ));
        assert_eq!(engine.attempts.count(), 0);
    }
}
