//! Clients that take, keep, drop and lose locks, and write down what they saw.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leasehold::{
    Attempt, Clock, Error, Guard, Leasehold, Mode,
    clock::BootInstant,
    engine::{Engine, EngineOptions, quorum::Quorum},
};
use leasehold_testkit::history::Event;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    hasty::Hasty,
    network::Network,
    node::Flaw,
    plan::{Plan, TTL_MAX},
};

/// Longest wait for one command.
pub(crate) const COMMAND: Duration = Duration::from_millis(400);
/// What a call may take beyond its limit.
const GRACE: Duration = Duration::from_millis(100);

const MS: Duration = Duration::from_millis(1);

/// What everybody saw, in order.
#[derive(Default)]
pub(crate) struct Diary {
    events: Mutex<Vec<Event>>,
    complaints: Mutex<Vec<String>>,
}

impl Diary {
    fn note(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(crate) fn complain(&self, why: String) {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(why);
    }

    pub(crate) fn take(&self) -> (Vec<Event>, Vec<String>) {
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        let complaints = std::mem::take(&mut *self.complaints.lock().unwrap_or_else(PoisonError::into_inner));
        (events, complaints)
    }
}

pub(crate) fn options(network: &Network) -> EngineOptions {
    EngineOptions {
        clock: network.clock.clone(),
        command_timeout: COMMAND,
        prefix: String::new(),
        connections: 1,
        max_in_flight: 1000,
        client_name: String::new(),
        max_ttl: TTL_MAX,
    }
}

/// A client over an engine.
pub(crate) fn client(network: &Network, engine: Arc<dyn Engine>, seed: u64) -> Leasehold {
    let builder = Leasehold::builder("memory:").engine(engine).clock(network.clock.clone()).seed(seed);
    let builder = builder.configure(|config| config.ttl = 1000 * MS);
    builder.command_timeout(COMMAND).connect_lazy().expect("the settings are in range")
}

/// One client of the fleet.
pub(crate) struct Member {
    pub(crate) leases: Leasehold,
    pub(crate) quorum: Arc<Quorum>,
    clock: Clock,
    diary: Arc<Diary>,
    who: String,
    attempts: u64,
    chance: StdRng,
}

impl Member {
    pub(crate) fn new(
        network: &Arc<Network>,
        plan: &Plan,
        number: usize,
        flaw: Option<Flaw>,
        diary: &Arc<Diary>,
    ) -> Self {
        let skew_us = plan.skews_us.get(number).copied().unwrap_or_default();
        let quorum = Arc::new(Quorum::over(network.voters(skew_us), options(network)));
        let engine: Arc<dyn Engine> = if flaw == Some(Flaw::ValidFromTheAnswer) {
            Arc::new(Hasty::new(quorum.clone(), network.clock.clone()))
        } else {
            quorum.clone()
        };
        let seed = plan.seed.wrapping_mul(31).wrapping_add(number as u64);
        Self {
            leases: client(network, engine, seed),
            quorum,
            clock: network.clock.clone(),
            diary: diary.clone(),
            who: format!("client{number}"),
            attempts: 0,
            chance: StdRng::seed_from_u64(!seed),
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        MS * self.chance.random_range(1..=most.as_millis().max(1) as u32)
    }

    pub(crate) async fn work(mut self, plan: Plan) -> Self {
        let end = self.clock.now() + plan.lasts;
        while self.clock.now() < end {
            let name = format!("name{}", self.chance.random_range(0..plan.names));
            self.tenure(&name).await;
            let pause = self.up_to(60 * MS);
            tokio::time::sleep(pause).await;
        }
        self
    }

    /// One attempt, and what follows from it.
    async fn tenure(&mut self, name: &str) {
        let ttl = [150 * MS, 400 * MS, 1000 * MS, TTL_MAX][self.chance.random_range(0..4)];
        let reads = self.chance.random_bool(0.6);
        let lock = if reads { self.leases.read_lock(name) } else { self.leases.write_lock(name) }.ttl(ttl);
        let lock = if self.chance.random_bool(0.5) { lock.keep_alive() } else { lock.without_keep_alive() };
        let wait = self.up_to(2000 * MS);
        let patience = self.up_to(250 * MS);
        self.attempts += 1;
        let began = self.clock.now();
        let (process, attempt) = (self.who.clone(), self.attempts);
        self.diary.note(Event::Invoked {
            process: process.clone(),
            attempt,
            name: name.into(),
            at: began.as_nanos(),
        });
        if reads {
            self.diary.note(Event::Asked { process, attempt, mode: Mode::Shared });
        }
        let waits = async |lock: leasehold::Lock| lock.wait(wait).acquire().await.map(Some);
        let tries = async |lock: leasehold::Lock| lock.try_acquire().await.map(Attempt::held);
        let (answer, limit) = match self.chance.random_range(0..8) {
            0 => (tokio::time::timeout(patience, waits(lock)).await.ok(), patience),
            1 => (tokio::time::timeout(patience, tries(lock)).await.ok(), patience),
            2 | 3 => (Some(tries(lock).await), COMMAND),
            _ => (Some(waits(lock).await), wait),
        };
        let took = self.clock.now().since(began);
        if took > limit + GRACE {
            self.diary.complain(format!("{}#{attempt} took {took:?} instead of {limit:?}", self.who));
        }
        match answer {
            Some(Ok(Some(guard))) => self.hold(guard, ttl).await,
            Some(Ok(None) | Err(Error::TimedOut { .. })) => {
                self.diary.note(Event::Failed { process: self.who.clone(), attempt });
            }
            Some(Err(Error::StoreUnreachable { .. } | Error::StoreRefused { .. })) | None => {}
            Some(Err(other)) => self.diary.complain(format!("{}#{attempt}: {other}", self.who)),
        }
    }

    async fn hold(&mut self, guard: Guard, ttl: Duration) {
        let (process, attempt) = (self.who.clone(), self.attempts);
        let until = |at: u64, guard: &Guard| at + guard.remaining().as_nanos() as u64;
        let (fence, at) = (guard.fence().get(), self.now());
        let mut valid_until = until(at, &guard);
        self.diary.note(Event::Granted { process: process.clone(), attempt, fence, at, valid_until });
        let still = match self.chance.random_range(0..4) {
            0 => 4 * ttl,
            1 => self.up_to(ttl),
            _ => self.up_to(50 * MS),
        };
        let done = self.clock.now() + still.min(3000 * MS);
        while self.clock.now() < done {
            tokio::time::sleep((ttl / 8).min(done.since(self.clock.now()))).await;
            if !guard.is_held() {
                return self.lose(guard, valid_until).await;
            }
            valid_until = until(self.now(), &guard);
            self.diary.note(Event::Renewed { process: process.clone(), attempt, valid_until });
        }
        self.diary.note(Event::Released { process, attempt, at: self.now() });
        let patience = self.up_to(20 * MS);
        match self.chance.random_range(0..4) {
            0 => drop(guard),
            1 => drop(tokio::time::timeout(patience, guard.release()).await),
            _ => drop(guard.release().await),
        }
    }

    /// A lease that was lost: its holder stops at once, or does not listen and goes on to the end of its validity.
    async fn lose(&mut self, guard: Guard, valid_until: u64) {
        if self.chance.random_bool(0.5) {
            self.clock.sleep_until(BootInstant::from_nanos(valid_until)).await;
        }
        let (process, attempt) = (self.who.clone(), self.attempts);
        self.diary.note(Event::Released { process, attempt, at: self.now() });
        drop(guard);
    }

    /// A last grant of a name, when everything is well again.
    pub(crate) async fn last(&mut self, name: &str) {
        self.attempts += 1;
        let (process, attempt) = (self.who.clone(), self.attempts);
        self.diary.note(Event::Invoked {
            process: process.clone(),
            attempt,
            name: name.into(),
            at: self.now(),
        });
        match self.leases.lock(name).ttl(1000 * MS).without_keep_alive().wait(5000 * MS).acquire().await {
            Ok(guard) => {
                let at = self.now();
                let (fence, valid_until) = (guard.fence().get(), at + guard.remaining().as_nanos() as u64);
                self.diary.note(Event::Granted { process: process.clone(), attempt, fence, at, valid_until });
                self.diary.note(Event::Released { process, attempt, at });
                drop(guard.release().await);
            }
            Err(error) => self.diary.complain(format!("{} got nothing at the end: {error}", self.who)),
        }
    }
}
