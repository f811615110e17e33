//! The nodes of a cluster, and which of them has a name.
//!
//! The slot map is read from any node, corrected by redirections, and read again after any trouble. Nothing is sent twice
//! but what a node redirected: then nothing happened there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Shard, Stop,
    outcome::{self, Next, Resend},
    slots::{self, Primary, SLOTS},
};
use crate::{
    clock::{BootInstant, Until},
    engine::{
        EngineError, Fault,
        connect::EngineOptions,
        redis::{
            connection::{Connection, ConnectionOptions},
            target::DialTarget,
            url::Endpoint,
        },
    },
};

/// How often one operation is redirected before it fails.
const HOPS_MAX: u32 = 5;
/// Pause before a name whose keys are on two nodes is asked for again; doubled each time.
const MIGRATION_PAUSE_MIN: Duration = Duration::from_millis(10);
const MIGRATION_PAUSE_MAX: Duration = Duration::from_millis(160);
/// Shortest time between two readings of the map.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// Which primary has which slot, at one time.
#[derive(Clone)]
pub(in super::super) struct Map {
    /// In order of their first slot.
    pub(in super::super) primaries: Vec<Primary>,
    shards: Vec<Arc<Shard>>,
    /// The position of a slot's primary among the shards.
    of_slot: Vec<Option<u16>>,
}

impl Map {
    fn position(&self, slot: u16) -> Option<u16> {
        self.of_slot[usize::from(slot)]
    }

    /// The primary of a slot.
    pub(in super::super) fn shard(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.position(slot).map(|at| &self.shards[usize::from(at)])
    }

    /// The connections to a primary.
    pub(in super::super) fn shard_of(&self, primary: &Primary) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.endpoint == primary.endpoint)
    }
}

#[derive(Default)]
struct State {
    map: Option<Arc<Map>>,
    shards: HashMap<Endpoint, Arc<Shard>>,
    closed: bool,
}

/// A cluster.
pub(in super::super) struct Cluster {
    /// How to reach the nodes that the URL names.
    seeds: Vec<redis::Client>,
    options: EngineOptions,
    /// What a connection to any node is like.
    connection: ConnectionOptions,
    /// Tells this client's channels from those of others.
    process: u64,
    state: Mutex<State>,
    /// When the map was last read; one reads at a time.
    reading: tokio::sync::Mutex<Option<BootInstant>>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Vec<redis::Client>,
        options: &EngineOptions,
        connection: ConnectionOptions,
        process: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            seeds,
            options: options.clone(),
            connection,
            process,
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

    /// Whether wake-ups for names of a slot reach us at present.
    pub(super) fn is_subscribed(&self, slot: u16) -> bool {
        let map = self.state().map.clone();
        let subscriber = map.as_ref().and_then(|map| map.shard(slot)?.subscriber.as_ref());
        subscriber.is_some_and(|lane| lane.connection.is_subscribed(slot))
    }

    /// The number of a slot's primary, as far as it is known.
    pub(super) fn number(&self, slot: u16) -> u64 {
        self.state().map.as_ref().and_then(|map| map.position(slot)).map_or(0, u64::from)
    }

    /// Runs a call at the primary of a slot, and again where that redirects it: see [`outcome::next`].
    pub(super) async fn follow<T, F>(
        self: &Arc<Self>,
        slot: u16,
        resend: Resend,
        until: Until,
        mut call: impl FnMut(Stop) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, EngineError>>,
    {
        let clock = &self.options.clock;
        let (mut hops, mut pause, mut importing) = (0, MIGRATION_PAUSE_MIN, None);
        loop {
            let stop = match importing.take() {
                Some(shard) => Stop { shard, asking: true },
                None => Stop { shard: self.shard(slot, until).await?, asking: false },
            };
            let error = match call(stop.clone()).await {
                Err(error) => error,
                reply => return reply,
            };
            let by = &stop.shard.endpoint;
            match outcome::next(&error, &by.host, resend) {
                Next::Fail => return Err(error),
                Next::FailAndReadMap => {
                    self.read_map_soon(by.clone());
                    return Err(error);
                }
                Next::Wait => {
                    // For as long as it takes: the whole slot has to arrive.
                    let again = clock.now() + pause;
                    if again >= until {
                        return Err(error);
                    }
                    pause = (pause * 2).min(MIGRATION_PAUSE_MAX);
                    clock.sleep_until(again).await;
                    continue;
                }
                Next::Moved { slot, to } => self.moved(slot, &to, by)?,
                Next::Ask(to) => importing = Some(self.shard_at(&mut self.state(), &to)?),
                Next::ReadMap => {
                    let _the_first_error_says_more = self.read_map(Some(by), until).await;
                    let map = self.map(until).await?;
                    if map.shard(slot).is_none_or(|shard| shard.endpoint == *by) {
                        return Err(error);
                    }
                }
            }
            hops += 1;
            if hops > HOPS_MAX || clock.now() >= until {
                let words = format!("too many redirections for slot {slot}");
                return Err(EngineError::new(Fault::Unreachable, words));
            }
        }
    }

    /// The primary of a slot. If there is none, the map is read again: the cluster may just be forming.
    async fn shard(&self, slot: u16, until: Until) -> Result<Arc<Shard>, EngineError> {
        if let Some(shard) = self.map(until).await?.shard(slot) {
            return Ok(shard.clone());
        }
        self.read_map(None, until).await?;
        self.map(until).await?.shard(slot).cloned().ok_or_else(|| {
            let words = format!("slot {slot} of the cluster has no primary");
            EngineError::new(Fault::Unreachable, words)
        })
    }

    /// The map; read from the seeds if there is none yet.
    pub(in super::super) async fn map(&self, until: Until) -> Result<Arc<Map>, EngineError> {
        if let Some(map) = &self.state().map {
            return Ok(map.clone());
        }
        self.read_map(None, until).await?;
        let map = self.state().map.clone();
        map.ok_or_else(closed)
    }

    /// Reads the map again, unless that was just done. `doubted` is asked last.
    pub(in super::super) async fn read_map(
        &self,
        doubted: Option<&Endpoint>,
        until: Until,
    ) -> Result<(), EngineError> {
        let clock = &self.options.clock;
        let asked_at = clock.now();
        let Some(mut read_at) = clock.bounded(until, self.reading.lock()).await else {
            return Err(EngineError::new(Fault::Unreachable, "the slot map was not read in time"));
        };
        // By another caller, while we waited or a moment ago.
        if read_at.is_some_and(|at| at >= asked_at || asked_at.since(at) < READ_PAUSE)
            && self.state().map.is_some()
        {
            return Ok(());
        }
        if self.state().closed {
            return Err(closed());
        }
        let primaries = self.ask_for_map(doubted, until).await;
        *read_at = Some(clock.now());
        self.take(primaries?)
    }

    /// Reads the map again, in the background.
    fn read_map_soon(self: &Arc<Self>, doubted: Endpoint) {
        let cluster = self.clone();
        let task = async move {
            let until = cluster.options.clock.now() + cluster.options.command_timeout;
            let _a_later_one_may_succeed = cluster.read_map(Some(&doubted), until).await;
        };
        drop(self.connection.tasks.spawn(task));
    }

    /// Every node to ask, the doubted one last.
    pub(in super::super) fn sources(&self, doubted: Option<&Endpoint>) -> Vec<(Endpoint, Arc<Connection>)> {
        let known: Vec<_> = self.state().shards.values().cloned().collect();
        let seeds = self.seeds.iter().map(|client| (Endpoint::of(client), self.unobserved(client.clone())));
        let known = known.iter().map(|shard| (shard.endpoint.clone(), shard.connection().clone()));
        let mut all: Vec<_> = known.chain(seeds).collect();
        all.sort_by_key(|(endpoint, _)| Some(endpoint) == doubted);
        all
    }

    /// Takes a map that was read: shards that are not in it are let go.
    fn take(&self, primaries: Vec<Primary>) -> Result<(), EngineError> {
        let mut state = self.state();
        if state.closed {
            return Ok(());
        }
        let primaries = match &state.map {
            Some(map) => slots::keep_owned(primaries, &map.primaries),
            None => primaries,
        };
        let shards = primaries.iter().map(|primary| self.shard_at(&mut state, &primary.endpoint));
        let shards = shards.collect::<Result<Vec<_>, _>>()?;
        let mut of_slot = vec![None; usize::from(SLOTS)];
        for (at, primary) in primaries.iter().enumerate() {
            for (first, last) in &primary.ranges {
                of_slot[usize::from(*first)..=usize::from(*last)].fill(u16::try_from(at).ok());
            }
        }
        let mut let_go = Vec::new();
        state.shards.retain(|endpoint, shard| {
            let stays = shards.iter().any(|shard| shard.endpoint == *endpoint);
            if !stays {
                let_go.push(shard.clone());
            }
            stays
        });
        state.map = Some(Arc::new(Map { primaries, shards, of_slot }));
        drop(state);
        let_go.iter().for_each(|shard| shard.leave("a primary has left the cluster"));
        Ok(())
    }

    /// A MOVED is newer than the map.
    fn moved(self: &Arc<Self>, slot: u16, to: &Endpoint, by: &Endpoint) -> Result<(), EngineError> {
        let mut state = self.state();
        if let Some(map) = &state.map
            && map.shard(slot).is_some_and(|shard| shard.endpoint == *by)
            && !state.closed
        {
            let mut map = Map::clone(map);
            let shard = self.shard_at(&mut state, to)?;
            let at = map.shards.iter().position(|known| known.endpoint == *to).unwrap_or(map.shards.len());
            if at == map.shards.len() {
                map.shards.push(shard);
            }
            map.of_slot[usize::from(slot)] = u16::try_from(at).ok();
            state.map = Some(Arc::new(map));
        }
        drop(state);
        self.read_map_soon(by.clone());
        Ok(())
    }

    fn shard_at(&self, state: &mut State, endpoint: &Endpoint) -> Result<Arc<Shard>, EngineError> {
        if let Some(shard) = state.shards.get(endpoint) {
            return Ok(shard.clone());
        }
        let target = DialTarget::Fixed(Box::new(endpoint.client(&self.seeds[0])?));
        let connection = ConnectionOptions { target, ..self.connection.clone() };
        let shard = Arc::new(Shard::new(endpoint.clone(), &connection, &self.options, None));
        state.shards.insert(endpoint.clone(), shard.clone());
        Ok(shard)
    }

    /// A connection that reports no link events.
    fn unobserved(&self, client: redis::Client) -> Arc<Connection> {
        let target = DialTarget::Fixed(Box::new(client));
        Connection::new(ConnectionOptions { target, listener: None, ..self.connection.clone() })
    }

    /// A connection of its own to any node.
    pub(in super::super) fn connection_to(
        &self,
        endpoint: &Endpoint,
    ) -> Result<Arc<Connection>, EngineError> {
        endpoint.client(&self.seeds[0]).map(|client| self.unobserved(client))
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

fn closed() -> EngineError {
    EngineError::new(Fault::Unreachable, "the client was closed")
}
