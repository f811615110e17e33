//! Which server has a name, and how a call gets there: one server, the primary that sentinels name, or the nodes of a
//! cluster.
//!
//! Everything that is sent goes through [`Topology::send`], [`Topology::send_each`] or [`Topology::follow`]; what is done about
//! an error stands in one table, [`outcome`].
//!
//! The driver's own clients for clusters and sentinels are not used: they send a command again after a broken connection,
//! although it may have had an effect. Nor do they survive a slot that moves (`connection/dial.rs`).

mod map;
pub(super) mod outcome;
pub(super) mod sentinel;
mod shard;
pub(super) mod slots;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, Once, Weak},
    time::Duration,
};

use futures_util::future::join_all;

pub(super) use self::shard::{Shard, Stop};
use super::{
    Result,
    batch::{Lane, Reply},
    channel,
    connection::{ConnectionOptions, Listener, Sharded, Tasks},
    locked,
    script::Op,
    unreachable,
    url::{CLUSTER, Endpoint, SENTINEL, StoreUrl},
};
use leasehold_core::{
    clock::{BootInstant, Until},
    engine::{EngineError, EngineOptions, Fault, registry::ended_error},
    error::Error,
    name::Name,
};
use outcome::{Next, Resend};
use sentinel::Sentinels;
use slots::SlotMap;

/// How often one operation is redirected before it fails.
const HOPS_MAX: u32 = 5;
/// Pause before a name whose keys are on two nodes is asked for again; doubled each time.
const MIGRATION_PAUSE_MIN: Duration = Duration::from_millis(10);
const MIGRATION_PAUSE_MAX: Duration = Duration::from_millis(160);

/// Where names are: all on one server, or each where its slot is.
pub(super) struct Topology {
    /// Whether names are on many servers, and a call carries keys of one slot.
    pub(super) in_cluster: bool,
    options: EngineOptions,
    /// What a connection to any server is like.
    pub(super) connection: ConnectionOptions,
    /// Some nodes of a cluster.
    seeds: Vec<Endpoint>,
    /// Tells this client's channels from those of others.
    process: u64,
    /// The wake channels of its connections, unless it is a cluster.
    channels: Vec<Arc<str>>,
    state: Mutex<State>,
    /// When the map was last read; one reads at a time.
    reading: tokio::sync::Mutex<Option<BootInstant>>,
    /// Warns once that the server refuses wake-ups.
    polling_only: Once,
}

#[derive(Default)]
struct State {
    map: Option<Arc<SlotMap>>,
    shards: HashMap<Endpoint, Arc<Shard>>,
    closed: bool,
}

impl Topology {
    /// Prepares what a URL names; nothing is dialled.
    pub(super) fn open(
        url: &StoreUrl,
        options: &EngineOptions,
        listener: Weak<dyn Listener>,
    ) -> Result<Arc<Self>, Error> {
        let (in_cluster, has_sentinels) = (url.engine() == CLUSTER, url.engine() == SENTINEL);
        let tasks = Tasks::here();
        let sentinels = has_sentinels.then(|| Sentinels::new(url, options, tasks.clone())).transpose()?;
        let (login, sentinels) = (url.login()?, sentinels.map(Arc::new));
        let map = (!in_cluster).then(|| Arc::new(SlotMap::of_one(&url.hosts[0])));
        let process = super::random_process();
        Ok(Arc::new(Self {
            in_cluster,
            options: options.clone(),
            connection: ConnectionOptions::new(login, sentinels, options, listener, tasks),
            seeds: url.hosts.clone(),
            process,
            channels: (0..options.connections).map(|number| channel(process, number)).collect(),
            state: Mutex::new(State { map, ..State::default() }),
            reading: tokio::sync::Mutex::default(),
            polling_only: Once::new(),
        }))
    }

    /// A slot; always the same where all names are on one server.
    pub(super) fn slot(&self, slot: impl FnOnce() -> u16) -> u16 {
        if self.in_cluster { slot() } else { 0 }
    }

    /// The number of the shard that has a slot, as far as it is known.
    pub(super) fn shard_of(&self, slot: impl FnOnce() -> u16) -> u64 {
        let slot = self.slot(slot);
        locked(&self.state).map.as_ref().and_then(|map| map.position(slot)).map_or(0, u64::from)
    }

    /// Whether wake-ups for names of a slot reach us, or will before anything queues, at no cost.
    pub(super) fn is_subscribed(&self, slot: impl FnOnce() -> u16) -> bool {
        if !self.in_cluster {
            return true;
        }
        let (slot, state) = (slot(), locked(&self.state));
        let shard = state.map.as_ref().and_then(|map| state.shards.get(map.primary(slot)?));
        shard.is_some_and(|shard| shard.is_subscribed(slot))
    }

    /// Where waiters of a name are woken: in a cluster on a channel of its slot, which is the same on every node that ever has
    /// it; otherwise where all waiters of its connection are.
    pub(super) fn channel(&self, name: &Name, slot: impl FnOnce() -> u16) -> Arc<str> {
        if self.in_cluster {
            return format!("leasehold:wake:{{{}}}:{:016x}", slots::tag_of(slot()), self.process).into();
        }
        self.channels[shard::lane_of(name, self.channels.len())].clone()
    }

    /// Runs a call at the server that has a slot, and again where that redirects it: see [`outcome::next`].
    pub(super) async fn follow<T, F>(
        self: &Arc<Self>,
        slot: u16,
        resend: Resend,
        until: Until,
        mut call: impl FnMut(Stop) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let clock = &self.options.clock;
        let (mut hops, mut pause, mut importing) = (0, MIGRATION_PAUSE_MIN, None);
        loop {
            let stop = match importing.take() {
                Some(shard) => Stop { shard, asking: true },
                None => Stop { shard: self.shard(slot, until).await?, asking: false },
            };
            let error = match call(stop.clone()).await {
                Err(error) if self.in_cluster => error,
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
                Next::Moved { slot, to } => self.moved(slot, &to, by),
                Next::Ask(to) => importing = Some(self.shard_at(&mut locked(&self.state), &to)?),
                Next::ReadMap => {
                    let map = self.read_map(Some(by), until).await;
                    let has_left = |map: &SlotMap| map.primary(slot).is_some_and(|primary| primary != by);
                    if !map.is_ok_and(|map| has_left(&map)) {
                        return Err(error);
                    }
                }
            }
            hops += 1;
            if hops > HOPS_MAX || clock.now() >= until {
                return Err(unreachable(format!("too many redirections for slot {slot}")));
            }
        }
    }

    /// Sends an operation to the server that has its name.
    pub(super) async fn send(self: &Arc<Self>, name: &Name, build: impl Fn() -> Op, until: Until) -> Reply {
        let op = build();
        let reply = match self.lane_now(name, &op) {
            Some(lane) => lane.run(op, until).await,
            None => Box::pin(self.send_anywhere(name, op, &build, until)).await,
        };
        match reply {
            // Nothing happened there, and the address may lead to another server by now.
            Err(error) if outcome::is_wrong_server(&error) && !self.in_cluster => {
                Box::pin(self.send_anywhere(name, build(), &build, until)).await
            }
            reply => reply,
        }
    }

    /// The lane for an operation, if there is one server, its link is up and wake-ups come over it: the ordinary case.
    fn lane_now(&self, name: &Name, op: &Op) -> Option<Arc<Lane>> {
        if self.in_cluster {
            return None;
        }
        let lane = locked(&self.state).shards.values().next()?.lane(name).clone();
        let link = lane.connection.link_now()?;
        (!op.may_queue() || link.subscribed.initialized()).then_some(lane)
    }

    async fn send_anywhere(
        self: &Arc<Self>,
        name: &Name,
        first: Op,
        build: impl Fn() -> Op,
        until: Until,
    ) -> Reply {
        let (slot, resend) = (self.slot(|| first.keys.slot()), first.resend());
        let mut next = Some(first);
        self.follow(slot, resend, until, |stop| {
            let op = next.take().unwrap_or_else(&build);
            async move {
                let lane = match op.may_queue() {
                    true => self.subscribe(&stop, name, slot, until).await?,
                    false => stop.shard.lane(name),
                };
                // It may have been on its way for a while, and its end may be ahead of it.
                if !op.leaves() {
                    return Err(ended_error());
                }
                if stop.asking { lane.run_asking(&op, until).await } else { lane.run(op, until).await }
            }
        })
        .await
    }

    /// The lane for an operation that may queue: nothing queues before the server confirmed that wake-ups reach us, or
    /// refused them.
    pub(super) async fn subscribe<'a>(
        &self,
        stop: &'a Stop,
        name: &Name,
        slot: u16,
        until: Until,
    ) -> Result<&'a Arc<Lane>> {
        let Stop { shard, asking } = stop;
        let lane = shard.subscriber.as_ref().unwrap_or_else(|| shard.lane(name));
        let subscribed = if self.in_cluster {
            let channel = self.channel(name, || slot);
            lane.connection.subscribe_slot((slot, &channel), *asking, until).await
        } else {
            lane.connection.link(until).await?.subscribe(until).await
        };
        self.unless_refused(subscribed).map(|_| lane)
    }

    /// Makes sure that what is announced on a channel of a slot reaches us, and returns over which link; none if the server
    /// refused.
    pub(super) async fn subscribe_to(
        self: &Arc<Self>,
        slot: u16,
        channel: &str,
        until: Until,
    ) -> Result<Option<u64>> {
        let slot = self.slot(|| slot);
        let subscribe = async |Stop { shard, asking }: Stop| {
            let sharded = Sharded(self.in_cluster);
            self.unless_refused(shard.announcements.subscribe_to(channel, sharded, asking, until).await)
        };
        self.follow(slot, Resend::AwaitMigration, until, subscribe).await
    }

    /// What became of a subscription; none if the server refused it. Without wake-ups a claim waits by asking: slower, and
    /// never wrong.
    fn unless_refused<T>(&self, subscribed: Result<T>) -> Result<Option<T>> {
        match subscribed {
            Err(error) if outcome::is_redirection(&error) => Err(error),
            Err(error) if matches!(error.fault, Fault::Refused(_)) => {
                let warn = || tracing::warn!(%error, "the server refuses wake-ups: waiting by polls alone");
                self.polling_only.call_once(warn);
                Ok(None)
            }
            subscribed => subscribed.map(Some).map_err(not_sent),
        }
    }

    /// Sends many calls at once, one result each: `together` sends those of one shard, `alone` follows one that was
    /// redirected or could not be sent. A server that does not answer fails its own calls only.
    pub(super) async fn send_each<T, F, G>(
        &self,
        slots: impl ExactSizeIterator<Item = u16>,
        until: Until,
        together: impl Fn(Arc<Shard>, Vec<usize>) -> F,
        alone: impl Fn(usize) -> G,
    ) -> Vec<Result<T>>
    where
        F: Future<Output = Vec<Result<T>>>,
        G: Future<Output = Result<T>>,
    {
        let count = slots.len();
        let groups = match self.group(slots, until).await {
            Ok(groups) => groups,
            Err(error) => return (0..count).map(|_| Err(error.clone())).collect(),
        };
        let goes_on = |error: &EngineError| {
            self.in_cluster && (outcome::is_redirection(error) || error.fault == Fault::Unreachable)
        };
        let mut results: Vec<Option<Result<T>>> = (0..count).map(|_| None).collect();
        let sent = groups.iter().map(|(shard, places)| together(shard.clone(), places.clone()));
        for ((_, places), answers) in groups.iter().zip(join_all(sent).await) {
            let unanswered = std::iter::repeat_with(|| Err(EngineError::no_answer()));
            for (at, answer) in places.iter().zip(answers.into_iter().chain(unanswered)) {
                results[*at] = Some(answer).filter(|answer| !answer.as_ref().is_err_and(goes_on));
            }
        }
        // A future for each of them is large: it is made for those that need it.
        let redirected: Vec<_> = (0..count).filter(|at| results[*at].is_none()).collect();
        let followed = join_all(redirected.iter().map(|at| alone(*at))).await;
        redirected.into_iter().zip(followed).for_each(|(at, answer)| results[at] = Some(answer));
        results.into_iter().flatten().collect()
    }

    /// Calls by their positions, as each shard gets them; not those whose slot has no primary.
    async fn group(
        &self,
        slots: impl Iterator<Item = u16>,
        until: Until,
    ) -> Result<Vec<(Arc<Shard>, Vec<usize>)>> {
        let map = self.map(until).await?;
        let mut groups: BTreeMap<&Endpoint, Vec<usize>> = BTreeMap::new();
        for (at, slot) in slots.enumerate() {
            map.primary(slot).into_iter().for_each(|primary| groups.entry(primary).or_default().push(at));
        }
        let mut state = locked(&self.state);
        let shard = |(primary, places)| Ok((self.shard_at(&mut state, primary)?, places));
        groups.into_iter().map(shard).collect()
    }

    /// Reaches the store once.
    pub(super) async fn connect(&self, until: Until) -> Result<()> {
        if self.in_cluster {
            return self.map(until).await?.check_complete();
        }
        self.shard(0, until).await?.connection().link(until).await.map(drop)
    }

    pub(super) fn close(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        state.shards.values().for_each(|shard| shard.close());
        self.connection.sentinels.iter().for_each(|sentinels| sentinels.close());
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // The task that listens to sentinels would keep them alive.
        self.connection.sentinels.iter().for_each(|sentinels| sentinels.close());
    }
}

/// An operation that could not even be prepared has had no effect, whatever became of the preparation.
pub(super) fn not_sent(error: EngineError) -> EngineError {
    match error.fault {
        Fault::NoAnswer => EngineError { fault: Fault::Unreachable, ..error },
        _ => error,
    }
}
