//! A network between clients and nodes: slow, lossy, and repeatable from a seed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use leasehold::{
    Clock, Fence, Name,
    clock::BootInstant,
    clock::Until,
    engine::{
        ClockOffset, Cursor, EngineError, Fault, Fut, Health, Hold, Page, Wake, WakeSink,
        quorum::list_of,
        voter::{
            Abstention, Ballot, Kept, NodeStatus, Op, Outcome, Record, Sighting, State, Vote, Voter,
            Withdrawn,
        },
    },
    owner::Owner,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    memory::Memory,
    node::{Flaw, Moment, Node},
};

/// How messages fare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// Most messages take up to this long, in milliseconds.
    pub(crate) usual_ms: u64,
    /// Some take up to this long.
    pub(crate) slow_ms: u64,
    /// How many of them are slow.
    pub(crate) slow: f64,
    /// How many of them are lost.
    pub(crate) lost: f64,
    /// How often a key vanishes while a node handles a message about it.
    pub(crate) vanish: f64,
}

impl Weather {
    /// Everything arrives, soon.
    pub(crate) const CALM: Self = Self { usual_ms: 4, slow_ms: 4, slow: 0.0, lost: 0.0, vanish: 0.0 };
    /// Everything arrives after exactly a millisecond.
    pub(crate) const STILL: Self = Self { usual_ms: 1, ..Self::CALM };
}

/// All nodes, and all that is on its way.
pub(crate) struct Network {
    pub(crate) clock: Clock,
    began: BootInstant,
    places: Mutex<Vec<Place>>,
    chance: Mutex<StdRng>,
    weather: Mutex<Weather>,
    sinks: Mutex<Vec<Option<Weak<dyn WakeSink>>>>,
    flaw: Option<Flaw>,
}

struct Place {
    node: Node,
    hangs_until: BootInstant,
    /// Clients that do not reach it, and until when.
    cut_off: BTreeMap<usize, BootInstant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn label(node: usize) -> String {
    format!("node{node}")
}

/// The id of a quorum that was admitted with these addresses.
pub(crate) fn set_id(nodes: &[usize]) -> String {
    let labels: Vec<_> = nodes.iter().map(|node| label(*node)).collect();
    format!("simulated.{}", list_of(labels.iter().map(String::as_str)))
}

impl Network {
    /// `n` nodes that are a quorum already.
    pub(crate) fn new(seed: u64, n: usize, max_ttl: Duration, flaw: Option<Flaw>) -> Arc<Self> {
        let clock = Clock::tokio();
        let mut chance = StdRng::seed_from_u64(seed);
        let set = set_id(&(0..n).collect::<Vec<_>>());
        let place = |index: usize| {
            let mut node = Node {
                label: label(index),
                run: 1,
                memory: Memory::default(),
                dump: None,
                rate_ppm: chance.random_range(-9_900..=9_900),
                wall_ahead_us: chance.random_range(-2_000_000..=2_000_000),
                flaw,
                is_full: false,
                marks: 0,
            };
            node.memory.record = Some(Record {
                state: State::Votes,
                set: set.clone(),
                epoch: 1,
                n: n as u32,
                index: index as u32,
                identity: node.identity(),
                max_ms: max_ttl.as_millis() as u64,
            });
            Place { node, hangs_until: clock.now(), cut_off: BTreeMap::new() }
        };
        let places = (0..n).map(place).collect();
        Arc::new(Self {
            began: clock.now(),
            clock,
            places: Mutex::new(places),
            chance: Mutex::new(chance),
            weather: Mutex::new(Weather::CALM),
            sinks: Mutex::default(),
            flaw,
        })
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        *lock(&self.weather) = weather;
    }

    /// The nodes as a new client sees them. Its wall clock is ahead by `skew_us`.
    pub(crate) fn voters(self: &Arc<Self>, skew_us: i64) -> Vec<Arc<dyn Voter>> {
        let n = lock(&self.places).len();
        self.voters_of(&(0..n).collect::<Vec<_>>(), skew_us)
    }

    /// Some nodes, each as often as it is listed.
    pub(crate) fn voters_of(self: &Arc<Self>, nodes: &[usize], skew_us: i64) -> Vec<Arc<dyn Voter>> {
        let mut sinks = lock(&self.sinks);
        sinks.push(None);
        let client = sinks.len() - 1;
        let voter = |&node: &usize| {
            let link = Link { network: self.clone(), node, client };
            Arc::new(SimulatedVoter { link, label: label(node), skew_us, votes_under: Mutex::new(None) })
                as Arc<dyn Voter>
        };
        nodes.iter().map(voter).collect()
    }

    /// Does something to a node, at once.
    pub(crate) fn touch<T>(&self, node: usize, change: impl FnOnce(&mut Node, Moment) -> T) -> T {
        let node = &mut lock(&self.places)[node].node;
        let moment = node.moment(self.clock.now().since(self.began), self.clock.wall_us());
        change(node, moment)
    }

    /// A node answers nothing for a while.
    pub(crate) fn hang(&self, node: usize, still: Duration) {
        lock(&self.places)[node].hangs_until = self.clock.now() + still;
    }

    /// A client and a node do not reach each other for a while.
    pub(crate) fn cut(&self, client: usize, node: usize, still: Duration) {
        lock(&self.places)[node].cut_off.insert(client, self.clock.now() + still);
    }

    fn is_cut(&self, client: usize, node: usize) -> bool {
        let until = lock(&self.places)[node].cut_off.get(&client).copied();
        until.is_some_and(|until| until > self.clock.now())
    }

    /// Which nodes vote.
    pub(crate) fn admitted(&self) -> usize {
        lock(&self.places).iter().filter(|place| place.node.is_admitted()).count()
    }

    pub(crate) fn chance(&self) -> MutexGuard<'_, StdRng> {
        lock(&self.chance)
    }

    /// How long one message takes; `None` if it is lost.
    fn journey(&self) -> Option<Duration> {
        let weather = *lock(&self.weather);
        let mut chance = self.chance();
        if chance.random_bool(weather.lost) {
            return None;
        }
        let most = if chance.random_bool(weather.slow) { weather.slow_ms } else { weather.usual_ms };
        Some(Duration::from_millis(chance.random_range(1..=most)))
    }

    /// A hint for somebody who waits; it may be lost as well.
    fn nudge(self: &Arc<Self>, client: usize, owner: leasehold::owner::OwnerId) {
        let (network, journey) = (self.clone(), self.journey());
        let Some(journey) = journey else { return };
        tokio::spawn(async move {
            tokio::time::sleep(journey).await;
            let sink = lock(&network.sinks)[client].clone();
            if let Some(sink) = sink.and_then(|sink| sink.upgrade()) {
                sink.wake(Wake::LookAgain { owner });
            }
        });
    }
}

/// From one client to one node.
#[derive(Clone)]
struct Link {
    network: Arc<Network>,
    node: usize,
    client: usize,
}

impl Link {
    /// Sends a request. It reaches the node also when nobody waits for the answer any more, unless the node was
    /// restarted meanwhile: that breaks connections.
    fn ask<T: Send + 'static>(
        &self,
        until: Until,
        about: Option<Name>,
        handle: impl FnOnce(&mut Node, Moment) -> Result<T, EngineError> + Send + 'static,
    ) -> Fut<'static, T> {
        let link = self.clone();
        Box::pin(async move {
            let (answer, answered) = tokio::sync::oneshot::channel();
            let clock = link.network.clock.clone();
            tokio::spawn(async move {
                if let Some(result) = link.carry(about, handle).await {
                    let _nobody_waits = answer.send(result);
                }
            });
            match clock.bounded(until, answered).await {
                Some(Ok(result)) => result,
                _ => {
                    clock.sleep_until(until).await;
                    Err(EngineError::no_answer())
                }
            }
        })
    }

    async fn carry<T>(
        self,
        about: Option<Name>,
        handle: impl FnOnce(&mut Node, Moment) -> Result<T, EngineError>,
    ) -> Option<Result<T, EngineError>> {
        let network = &self.network;
        let run = network.touch(self.node, |node, _| node.run);
        let (there, back) = (network.journey(), network.journey());
        if network.is_cut(self.client, self.node) {
            return None;
        }
        tokio::time::sleep(there?).await;
        loop {
            let hangs_until = lock(&network.places)[self.node].hangs_until;
            if hangs_until <= network.clock.now() {
                break;
            }
            network.clock.sleep_until(hangs_until).await;
        }
        let vanish = lock(&network.weather).vanish;
        let vanishes = vanish > 0.0 && network.chance().random_bool(vanish);
        let result = network.touch(self.node, |node, now| {
            if node.run != run {
                return Err(EngineError::new(Fault::NoAnswer, "the connection broke"));
            }
            if let Some(name) = about.filter(|_| vanishes) {
                node.lose_key(&name);
            }
            handle(node, now)
        });
        if network.is_cut(self.client, self.node) {
            return None;
        }
        tokio::time::sleep(back?).await;
        Some(result)
    }
}

struct SimulatedVoter {
    link: Link,
    label: String,
    skew_us: i64,
    votes_under: Mutex<Option<Record>>,
}

impl SimulatedVoter {
    fn record(&self) -> Option<Record> {
        lock(&self.votes_under).clone()
    }

    /// What a client asks for whose wall clock is wrong. What is asked for by the clock leaves soon.
    fn skewed(&self, ballot: &Ballot) -> Ballot {
        const SOON_US: u64 = 500_000;
        let (now_us, hint) = (self.link.network.clock.wall_us(), ballot.hint.get());
        let is_clock = (now_us - SOON_US..=now_us).contains(&hint);
        let skew_us = if is_clock { self.skew_us } else { 0 };
        Ballot { hint: Fence::new(hint.saturating_add_signed(skew_us)), ..ballot.clone() }
    }
}

impl Voter for SimulatedVoter {
    fn label(&self) -> &str {
        &self.label
    }

    fn vote_under(&self, record: Option<Record>) {
        *lock(&self.votes_under) = record;
    }

    fn do_ordinary<'a>(&'a self, ops: &'a [Op], until: Until) -> Fut<'a, Vec<Outcome>> {
        let skewed = |op: &Op| match op {
            Op::Vote(ballot) => Op::Vote(Arc::new(self.skewed(ballot))),
            Op::Withdraw(lock) => Op::Withdraw(lock.clone()),
        };
        let (ops, expected, client): (Vec<_>, _, _) =
            (ops.iter().map(skewed).collect(), self.record(), self.link.client);
        let about = ops.first().map(|op| op.name().clone());
        self.link.ask(until, about, move |node, now| {
            Ok(ops.iter().map(|op| node.do_ordinary(op, expected.as_ref(), client, now)).collect())
        })
    }

    fn vote<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, Vote> {
        let Some(expected) = self.record() else {
            return Box::pin(async { Ok(Vote::Abstains(Abstention::NotAdmitted)) });
        };
        let ballot = self.skewed(ballot);
        let (client, name) = (self.link.client, ballot.claim.name.clone());
        self.link.ask(until, Some(name), move |node, now| node.vote(&ballot, &expected, client, now))
    }

    fn confirm<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool> {
        if self.link.network.flaw == Some(Flaw::NoSecondPhase) {
            return Box::pin(async { Ok(true) });
        }
        let hold = hold.clone();
        self.link.ask(until, Some(hold.name.clone()), move |node, now| Ok(node.confirm(&hold, now)))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Kept>> {
        let holds = holds.to_vec();
        self.link
            .ask(until, None, move |node, now| Ok(holds.iter().map(|hold| node.renew(hold, now)).collect()))
    }

    fn repair<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, bool> {
        let (hold, expected) = (hold.clone(), self.record());
        self.link.ask(until, None, move |node, now| {
            Ok(expected.is_some_and(|expected| node.repair(&hold, &expected, now)))
        })
    }

    fn retract<'a>(&'a self, ballot: &'a Arc<Ballot>, until: Until) -> Fut<'a, ()> {
        let (ballot, client, network) = (ballot.clone(), self.link.client, self.link.network.clone());
        self.link.ask(until, None, move |node, now| {
            for nudge in node.retract(&ballot, client, now) {
                network.nudge(nudge.client, nudge.owner);
            }
            Ok(())
        })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, owner: &'a Owner, until: Until) -> Fut<'a, Withdrawn> {
        let (name, owner, network) = (name.clone(), owner.clone(), self.link.network.clone());
        self.link.ask(until, None, move |node, now| {
            let (withdrawn, next) = node.withdraw(&name, &owner, now);
            for nudge in next {
                network.nudge(nudge.client, nudge.owner);
            }
            Ok(withdrawn)
        })
    }

    fn inspect<'a>(&'a self, names: &'a [Name], until: Until) -> Fut<'a, Vec<Sighting>> {
        let names = names.to_vec();
        self.link
            .ask(until, None, move |node, now| Ok(names.iter().map(|name| node.inspect(name, now)).collect()))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        _from: Option<Cursor>,
        _limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Name>> {
        let prefix = prefix.to_owned();
        self.link.ask(until, None, move |node, now| {
            let names = node.names(now).into_iter().filter(|name| name.as_str().starts_with(&prefix));
            Ok(Page { items: names.collect(), next: None })
        })
    }

    fn status(&self, until: Until) -> Fut<'_, NodeStatus> {
        self.link.ask(until, None, |node, now| Ok(node.status(now)))
    }

    fn write_record<'a>(
        &'a self,
        seen: Option<&'a Record>,
        record: &'a Record,
        floor: Fence,
        until: Until,
    ) -> Fut<'a, bool> {
        let (seen, record) = (seen.cloned(), record.clone());
        self.link.ask(until, None, move |node, now| node.write_record(seen.as_ref(), &record, floor, now))
    }

    fn on_disconnect(&self, _: Arc<tokio::sync::Notify>) {}

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        lock(&self.link.network.sinks)[self.link.client] = Some(sink);
    }

    fn health(&self, _until: Until) -> Fut<'_, (Health, Option<ClockOffset>)> {
        Box::pin(async { Ok((Health::default(), None)) })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        // None at the end of a run, when what is left is dropped.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(task);
        }
    }

    fn close(&self) {}
}
