//! `redis://`, `redis-sentinel://`, `redis-cluster://` and the same with TLS — leases between hosts, on one Redis (7.0 or
//! later) or Valkey, on whichever server of a set is the primary (`sentinel`), or on a cluster.
//!
//! A claim, a release or a renewal is one script on the server (`script`); many of them share a call when the client
//! is busy (`batch`). The next holder learns of a release in one hop, by a message on its connection (`wake`). A claim
//! that waits for replicas takes a connection of its own (`acks`). In a cluster every name has its own server, which may
//! change at any time (`topology`).
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acks;
mod batch;
mod connection;
mod deadlines;
mod driver;
mod fan_out;
mod health;
mod info;
mod inspect;
mod keys;
mod latches;
mod leases;
mod records;
mod redisson;
mod reply;
mod script;
mod sweep;
mod topology;
mod url;
mod voter;
mod wake;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::Ordering};

use connection::Listener;
pub use health::{SET_WARNING_CODES, WARNING_CODES};
use keys::Keys;
use leasehold_core::{
    clock::{Clock, Until},
    engine::{
        Capabilities, Engine, EngineError, EngineOptions, Fault, Fut, Handover, Health, Held, Hold, Inspect,
        Leases, Reach, WakeSink, deadlines::Deadlines, latches::Latches, records::Records,
    },
    error::Error,
    name::{NAME_MAX_BYTES, Name},
};
pub use sweep::Servers;
use topology::{Topology, slots};
use url::{CLUSTER, StoreUrl};
pub use voter::voters;
use wake::Attempts;

type Result<T, E = EngineError> = std::result::Result<T, E>;

/// The engine behind `redis://`, `redis-sentinel://` and `redis-cluster://`.
pub struct Redis {
    prefix: String,
    clock: Clock,
    topology: Arc<Topology>,
    attempts: Arc<Attempts>,
    capabilities: Capabilities,
}

impl Redis {
    /// Prepares the engine; nothing is dialled.
    pub fn open(url: &str, options: &EngineOptions) -> Result<Self, Error> {
        keys::check_prefix(&options.prefix)?;
        let url = StoreUrl::parse(url)?;
        let attempts = Attempts::new(url.engine() == CLUSTER, &options.prefix);
        let listener: Arc<dyn Listener> = attempts.clone();
        let names_max_bytes = NAME_MAX_BYTES - options.prefix.len();
        let topology = Topology::open(&url, options, Arc::downgrade(&listener))?;
        let capabilities =
            Capabilities::new(url.engine(), Reach::Network, Handover::Push, true, names_max_bytes)
                .with_loss_reports()
                .with_all_modes()
                .with_hand_to()
                .with_redisson(topology.connection.grace().map(|_| NO_GRACE));
        // Names of a cluster are on many servers.
        let is_one_server = url.engine() != CLUSTER;
        Ok(Self {
            capabilities: if is_one_server { capabilities.with_claim_all() } else { capabilities },
            topology,
            prefix: options.prefix.clone(),
            clock: options.clock.clone(),
            attempts,
        })
    }

    fn keys(&self, name: &Name) -> Keys {
        Keys::new(&self.prefix, name)
    }

    /// The keys of what is held.
    fn keys_of(&self, hold: &Hold) -> Keys {
        match hold.of {
            Held::Lock | Held::Closed | Held::Latch => self.keys(&hold.name),
            Held::Record => Keys::of_record(&hold.name),
        }
    }
}

/// Why there are no locks in Redisson's format where a grace was asked for.
const NO_GRACE: &str = "Redisson's clients take no part in a grace after a fail-over; leave out ?grace";

/// A number that no other client has.
fn random_process() -> u64 {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the operating system gives random numbers");
    u64::from_le_bytes(random)
}

/// A failure before anything was sent.
fn unreachable(why: impl Into<String>) -> EngineError {
    EngineError::new(Fault::Unreachable, why)
}

/// What is behind a mutex never stays half changed, so a panic elsewhere does no harm.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where waiters of one of its connections are woken.
fn channel(process: u64, number: usize) -> Arc<str> {
    format!("leasehold:wake:{process:016x}:{number}").into()
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

    fn records(&self) -> Result<&dyn Records, &'static str> {
        Ok(self)
    }

    fn deadlines(&self) -> Result<&dyn Deadlines, &'static str> {
        Ok(self)
    }

    fn latches(&self) -> Result<&dyn Latches, &'static str> {
        Ok(self)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.attempts.round_trips.load(Ordering::Relaxed))
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(self.topology.connect(until))
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        Box::pin(self.inspect_health(until))
    }

    fn close(&self, _: Until) -> Fut<'_, ()> {
        self.topology.close();
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use futures_util::FutureExt;
    use leasehold_testkit::{FaultProxy, eventually_async};

    use super::*;
    use leasehold_core::{
        engine::{Acks, Answer, Claim, Mode, Queue},
        fence::Fence,
        owner::{Holder, Owner},
    };

    fn claim(random: u128, name: &str) -> Claim {
        Claim {
            name: Name::new(name).unwrap(),
            owner: Owner::new(random, &Holder::this_process("", 1)),
            ttl: Duration::from_secs(30),
            format: leasehold_core::engine::Format::Plain,
            lock_delay: Duration::ZERO,
            mode: Mode::Exclusive,
            queue: Some(Queue { wait: Duration::from_secs(30), poll_every: Duration::from_secs(5) }),
            acks: Acks::None,
        }
    }

    fn options() -> EngineOptions {
        EngineOptions {
            clock: Clock::system(),
            command_timeout: Duration::from_secs(5),
            prefix: "lock:".into(),
            connections: 1,
            max_in_flight: 100,
            client_name: String::new(),
            max_ttl: Duration::from_secs(300),
        }
    }

    pub(super) fn open(url: &str) -> Redis {
        Redis::open(url, &options()).unwrap()
    }

    fn until() -> Until {
        Clock::system().now() + Duration::from_secs(20)
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_attempts_that_failed_or_got_their_lock() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let engine = open(&server.url());

        server.cli(&["HSET", "lock:foreign", "a", "b"]);
        let error = engine.claim(&claim(1, "foreign"), until()).await.unwrap_err();
        assert_eq!(error.fault, Fault::WrongType);
        assert_eq!(engine.attempts.registry.count(), 0);

        let (first, second) = (claim(2, "x"), claim(3, "x"));
        assert!(matches!(engine.claim(&first, until()).await, Ok(Answer::Granted(_))));
        assert!(matches!(engine.claim(&second, until()).await, Ok(Answer::Queued { .. })));
        assert_eq!(engine.attempts.registry.count(), 1);
        let _ = Leases::release(&engine, &first.hold(Fence::new(0)), until()).await.unwrap();
        // Whether or not it is ever renewed: it may be detached at once.
        let forgotten = || async { engine.attempts.registry.count() == 0 };
        eventually_async(Duration::from_secs(60), "the hand-over", forgotten).await;
    }

    #[tokio::test]
    async fn a_sweep_of_every_key_is_refused() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        server.cli(&["SET", "of:others", "1"]);
        let servers = Servers::open(&server.url(), &options()).unwrap();
        assert_eq!(servers.sweep("", false).await.unwrap_err().fault, Fault::Unsupported);
        assert_eq!(servers.sweep("of:nobody", false).await.unwrap(), 0);
        assert_eq!(server.cli(&["DBSIZE"]).int(), 1);
    }

    /// The sentinels name another primary after the dial, and before the one who waits for it hears of its end.
    #[tokio::test]
    async fn a_link_that_is_left_at_once_is_dialled_again() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let engine = open(&server.url());
        let shard = engine.topology.shard(0, until()).await.unwrap();
        let connection = shard.connection();
        let mut waiting = pin!(connection.link(until()));
        assert!(waiting.as_mut().now_or_never().is_none());
        let is_up = || async { connection.link_now().is_some() };
        eventually_async(Duration::from_secs(60), "the dial", is_up).await;
        connection.leave(connection::MOVED);
        assert!(waiting.await.is_ok());
    }

    /// One that left while another call was under way is sent by a task of its own, which outlives its caller.
    #[tokio::test]
    async fn a_lone_claim_is_not_sent_again_with_the_text_of_its_script_after_its_end() {
        let Some(server) = leasehold_testkit::redis_or_skip() else { return };
        let proxy = FaultProxy::start(server.addr());
        let engine = Arc::new(open(&proxy.url()));
        // The server knows how an attempt that may wait ends, and not how a lock that is free is claimed.
        let (busy, mine) = (claim(1, "busy"), claim(2, "x"));
        engine.claim(&busy, until()).await.unwrap();
        server.cli(&["SCRIPT", "FLUSH"]);
        engine.abandon(&busy, until()).await.unwrap();

        proxy.hold_replies();
        let leaves = async |sent: u64| {
            let has_left = || async { proxy.requests_bytes() > sent };
            eventually_async(Duration::from_secs(60), "it to leave", has_left).await;
            proxy.requests_bytes()
        };
        let abandon = |claim: &Claim| {
            let (engine, claim) = (engine.clone(), claim.clone());
            tokio::spawn(async move { engine.abandon(&claim, until()).await.unwrap() })
        };
        let claiming = {
            let (engine, claim) = (engine.clone(), mine.clone());
            async move { drop(engine.claim(&claim, until()).await) }
        };
        let sent = proxy.requests_bytes();
        let first = abandon(&busy);
        let sent = leaves(sent).await;
        let claiming = tokio::spawn(claiming);
        let sent = leaves(sent).await;
        claiming.abort();
        let end = abandon(&mine);
        leaves(sent).await;
        proxy.release_replies();
        first.await.unwrap();
        end.await.unwrap();
        let forgotten = || async { engine.attempts.registry.count() == 0 };
        eventually_async(Duration::from_secs(60), "the claim to be over", forgotten).await;
        assert_eq!(server.cli(&["EXISTS", "lock:x"]).int(), 0);
    }
}
