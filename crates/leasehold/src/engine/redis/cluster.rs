//! The nodes of a cluster, and which of them has a name.
//!
//! The map of slots is learnt from any node, corrected by what nodes answer ("moved", "ask"), and read again after any
//! trouble. Nothing is ever sent twice but what a node answered by pointing elsewhere: then nothing happened there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use super::{
    acks::Pool,
    batch::Lane,
    node::{Listener, Node, NodeOptions},
    place::Place,
    script::Op,
    slots::{self, Address, Primary, Redirection, SLOTS},
    url,
};
use crate::{
    clock::{BootInstant, Until},
    engine::{EngineError, Fault, connect::EngineOptions},
    name::Name,
};

/// How often one operation is pointed elsewhere before it fails.
const HOPS_MAX: u32 = 5;
/// Pause before a name whose keys are on two nodes is asked for again; doubled each time.
const TORN_PAUSE_MIN: Duration = Duration::from_millis(10);
const TORN_PAUSE_MAX: Duration = Duration::from_millis(160);
/// Shortest time between two readings of the map.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// One primary and the connections to it.
pub(super) struct Shard {
    pub(super) address: Address,
    lanes: Vec<Arc<Lane>>,
    /// Claims that wait and their wake-ups have a connection of their own: the server may end a subscription at any
    /// time, which costs the connection. Renewals and releases must not notice.
    pub(super) ear: Arc<Lane>,
    /// For claims that wait for replicas.
    pub(super) pool: Arc<Pool>,
}

impl Shard {
    /// All operations of a name take the same connection, but for claims that wait.
    pub(super) fn lane(&self, name: &Name) -> &Arc<Lane> {
        super::lane_of(&self.lanes, name)
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.lanes[0].node
    }

    fn close(&self) {
        self.lanes.iter().chain([&self.ear]).for_each(|lane| lane.node.close());
        self.pool.close();
    }
}

/// Which primary has which slot, at one time.
#[derive(Clone)]
pub(super) struct Map {
    /// In order of their first slot.
    pub(super) primaries: Vec<Primary>,
    shards: Vec<Arc<Shard>>,
    /// The place of a slot's primary among the shards.
    of_slot: Vec<Option<u16>>,
}

impl Map {
    /// The place of a slot's primary among all.
    pub(super) fn part(&self, slot: u16) -> Option<u16> {
        self.of_slot[usize::from(slot)]
    }

    /// The primary of a slot.
    pub(super) fn shard(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.part(slot).map(|at| &self.shards[usize::from(at)])
    }

    /// A primary by its place in the map.
    pub(super) fn shard_of(&self, primary: &Primary) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.address == primary.address)
    }
}

#[derive(Default)]
struct State {
    map: Option<Arc<Map>>,
    shards: HashMap<Address, Arc<Shard>>,
    closed: bool,
}

/// A cluster.
pub(super) struct Cluster {
    /// How to reach the nodes that the URL names.
    seeds: Vec<redis::Client>,
    options: EngineOptions,
    client_name: String,
    /// Tells this client's channels from those of others.
    process: u64,
    listener: Weak<dyn Listener>,
    state: Mutex<State>,
    /// When the map was last read; one reads at a time.
    reading: tokio::sync::Mutex<Option<BootInstant>>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Vec<redis::Client>,
        options: &EngineOptions,
        client_name: String,
        process: u64,
        listener: Weak<dyn Listener>,
    ) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            options: options.clone(),
            client_name,
            process,
            listener,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where waiters of this client are woken for names of a slot. It lies in that slot, and is the same on every node
    /// that ever has it.
    pub(super) fn channel(&self, slot: u16) -> String {
        format!("leasehold:wake:{{{}}}:{:016x}", slots::tag_of(slot), self.process)
    }

    /// The channel that an operation tells the server, if it tells one.
    pub(super) fn channel_of(&self, op: &Op) -> Option<String> {
        op.has_entry().then(|| self.channel(op.slot()))
    }

    /// Whether wake-ups for names of a slot reach us at present.
    pub(super) fn hears(&self, slot: u16) -> bool {
        let map = self.state().map.clone();
        map.is_some_and(|map| map.shard(slot).is_some_and(|shard| shard.ear.node.hears_slot(slot)))
    }

    /// The way to the primary of a slot.
    pub(super) fn route(self: &Arc<Self>, slot: u16, until: Until) -> Route<'_> {
        Route { cluster: self, slot, until, hops: 0, torn_pause: TORN_PAUSE_MIN, pointed_to: None }
    }

    /// The place of a slot's primary, as far as it is known.
    pub(super) fn part(&self, slot: u16) -> u64 {
        self.state().map.as_ref().and_then(|map| map.part(slot)).map_or(0, u64::from)
    }

    /// The map; read from the seeds if there is none yet.
    pub(super) async fn map(&self, until: Until) -> Result<Arc<Map>, EngineError> {
        if let Some(map) = &self.state().map {
            return Ok(map.clone());
        }
        self.read_map(None, until).await?;
        let map = self.state().map.clone();
        map.ok_or_else(|| EngineError::new(Fault::Unreachable, "the client was closed"))
    }

    /// Reads the map again, unless that was just done. `doubted` is asked last.
    pub(super) async fn read_map(&self, doubted: Option<&Address>, until: Until) -> Result<(), EngineError> {
        let clock = &self.options.clock;
        let asked_at = clock.now();
        let Some(mut read_at) = clock.bounded(until, self.reading.lock()).await else {
            return Err(EngineError::new(Fault::Unreachable, "the map of the cluster was not read in time"));
        };
        // By another caller, while we waited or a moment ago.
        if read_at.is_some_and(|at| at >= asked_at || asked_at.since(at) < READ_PAUSE)
            && self.state().map.is_some()
        {
            return Ok(());
        }
        if self.state().closed {
            return Err(EngineError::new(Fault::Unreachable, "the client was closed"));
        }
        let primaries = self.ask_for_map(doubted, until).await;
        *read_at = Some(clock.now());
        self.take(primaries?);
        Ok(())
    }

    /// Reads the map again, in the background.
    fn read_map_soon(self: &Arc<Self>, doubted: Address) {
        let cluster = self.clone();
        tokio::spawn(async move {
            let clock = &cluster.options.clock;
            let _a_later_one_may_succeed =
                cluster.read_map(Some(&doubted), clock.now() + cluster.options.command_timeout).await;
        });
    }

    /// Every node to ask, the doubted one last.
    pub(super) fn sources(&self, doubted: Option<&Address>) -> Vec<(Address, Arc<Node>)> {
        let known: Vec<_> = self.state().shards.values().cloned().collect();
        let seeds = self.seeds.iter().map(|client| (url::address(client), self.quiet_node(client.clone())));
        let mut all: Vec<_> =
            known.iter().map(|shard| (shard.address.clone(), shard.node().clone())).chain(seeds).collect();
        all.sort_by_key(|(address, _)| Some(address) == doubted);
        all
    }

    /// A map that was read or corrected: shards that left it are let go.
    fn take(&self, primaries: Vec<Primary>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        let shards: Vec<_> =
            primaries.iter().map(|primary| self.shard_at(&mut state, &primary.address)).collect();
        let mut of_slot = vec![None; usize::from(SLOTS)];
        for (at, primary) in primaries.iter().enumerate() {
            for (first, last) in &primary.ranges {
                of_slot[usize::from(*first)..=usize::from(*last)].fill(u16::try_from(at).ok());
            }
        }
        let mut lost_one = false;
        state.shards.retain(|address, shard| {
            let stays = shards.iter().any(|shard| shard.address == *address);
            lost_one |= !stays && shard.ear.node.is_up();
            stays
        });
        state.map = Some(Arc::new(Map { primaries, shards, of_slot }));
        drop(state);
        // Nobody hears the wake-ups of a shard that was let go.
        if lost_one && let Some(listener) = self.listener.upgrade() {
            listener.disconnected("a primary has left the cluster");
        }
    }

    /// What "moved" says is newer than the map.
    fn moved(self: &Arc<Self>, slot: u16, to: &Address, by: &Address) {
        let mut state = self.state();
        if let Some(map) = &state.map
            && map.shard(slot).is_some_and(|shard| shard.address == *by)
            && !state.closed
        {
            let mut map = Map::clone(map);
            let shard = self.shard_at(&mut state, to);
            let at = map.shards.iter().position(|known| known.address == *to).unwrap_or(map.shards.len());
            if at == map.shards.len() {
                map.shards.push(shard);
            }
            map.of_slot[usize::from(slot)] = u16::try_from(at).ok();
            state.map = Some(Arc::new(map));
        }
        drop(state);
        self.read_map_soon(by.clone());
    }

    fn shard_at(&self, state: &mut State, address: &Address) -> Arc<Shard> {
        state.shards.entry(address.clone()).or_insert_with(|| Arc::new(self.open_shard(address))).clone()
    }

    fn open_shard(&self, address: &Address) -> Shard {
        let options = &self.options;
        let client = url::elsewhere(&self.seeds[0], address);
        let lane = || Lane::by_slot(self.node(client.clone()), options.clock.clone(), options.max_in_flight);
        let (quiet, of_pool) = (self.quiet(), client.clone());
        let pool = Pool::new(options.clock.clone(), false, true, move || quiet(of_pool.clone()));
        Shard {
            address: address.clone(),
            lanes: (0..options.connections).map(|_| lane()).collect(),
            ear: lane(),
            pool,
        }
    }

    fn node(&self, client: redis::Client) -> Arc<Node> {
        let node = self.quiet_node(client);
        node.listen(self.listener.clone());
        node
    }

    /// One whose comings and goings are nobody's business.
    fn quiet_node(&self, client: redis::Client) -> Arc<Node> {
        self.quiet()(client)
    }

    /// A connection of its own to any node.
    pub(super) fn node_at(&self, address: &Address) -> Arc<Node> {
        self.quiet_node(url::elsewhere(&self.seeds[0], address))
    }

    fn quiet(&self) -> impl Fn(redis::Client) -> Arc<Node> + Send + Sync + 'static {
        let (client_name, clock) = (self.client_name.clone(), self.options.clock.clone());
        let command_timeout = self.options.command_timeout;
        move |client| {
            Node::new(NodeOptions {
                place: Place::Fixed(Box::new(client)),
                client_name: client_name.clone(),
                channel: String::new(),
                clock: clock.clone(),
                command_timeout,
                identify: false,
            })
        }
    }

    pub(super) fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.shards.values().for_each(|shard| shard.close());
    }
}

/// Where one operation goes, and where it goes next when a node points elsewhere.
pub(super) struct Route<'a> {
    cluster: &'a Arc<Cluster>,
    slot: u16,
    until: Until,
    hops: u32,
    torn_pause: Duration,
    pointed_to: Option<Arc<Shard>>,
}

/// A node on the way.
pub(super) struct Stop {
    pub(super) shard: Arc<Shard>,
    /// It is about to get the slot, and answers only who says so.
    pub(super) asking: bool,
}

impl Route<'_> {
    /// Where to send it now.
    pub(super) async fn next(&mut self) -> Result<Stop, EngineError> {
        if let Some(shard) = self.pointed_to.take() {
            return Ok(Stop { shard, asking: true });
        }
        let map = self.cluster.map(self.until).await?;
        match map.shard(self.slot) {
            Some(shard) => Ok(Stop { shard: shard.clone(), asking: false }),
            None => {
                let words = format!("slot {} of the cluster has no primary", self.slot);
                Err(EngineError::new(Fault::Unreachable, words))
            }
        }
    }

    /// Where to go after this error; fails with it if there is nowhere to go, or if nobody knows what was done.
    pub(super) async fn after(&mut self, stop: &Stop, error: EngineError) -> Result<(), EngineError> {
        let cluster = self.cluster;
        let clock = &cluster.options.clock;
        let by = &stop.shard.address;
        match Redirection::of(&error, &by.host) {
            Some(Redirection::TryAgain) => {
                // For as long as it takes: the whole slot has to arrive.
                let again = clock.now() + self.torn_pause;
                if again >= self.until {
                    return Err(error);
                }
                self.torn_pause = (self.torn_pause * 2).min(TORN_PAUSE_MAX);
                clock.sleep_until(again).await;
                return Ok(());
            }
            Some(Redirection::Moved { slot, to }) => cluster.moved(slot, &to, by),
            Some(Redirection::Ask(to)) => {
                self.pointed_to = Some(cluster.shard_at(&mut cluster.state(), &to));
            }
            None => match error.fault {
                // Nothing was sent, or nothing was done: another node may have the slot by now.
                Fault::Unreachable | Fault::Refused(crate::error::Refusal::ReadOnly) => {
                    let _the_first_error_says_more = cluster.read_map(Some(by), self.until).await;
                    let map = cluster.map(self.until).await?;
                    if map.shard(self.slot).is_none_or(|shard| shard.address == *by) {
                        return Err(error);
                    }
                }
                Fault::NoAnswer => {
                    cluster.read_map_soon(by.clone());
                    return Err(error);
                }
                _ => return Err(error),
            },
        }
        self.hops += 1;
        if self.hops > HOPS_MAX || clock.now() >= self.until {
            let words = format!("slot {} is nowhere to be found: pointed elsewhere too often", self.slot);
            return Err(EngineError::new(Fault::Unreachable, words));
        }
        Ok(())
    }
}
