//! What can be broken: one file per topology, with its faults.

pub(crate) mod cluster;
pub(crate) mod quorum;
pub(crate) mod sentinel;
pub(crate) mod single;

use std::{thread, time::Duration};

use leasehold_testkit::RedisServer;

use crate::{
    Failure,
    storm::{self, Options},
};

/// Servers that hold locks together.
pub(crate) trait Topology: Sized + 'static {
    const FAULTS: &'static [Fault<Self>];

    /// The longest ttl of any lease, and that of the long tenures. Where servers fail over it is longer than that
    /// takes: else a forgotten lease ends before it can be given away.
    const MAX_TTL: Duration;

    fn start(options: &Options) -> Result<Self, Failure>;

    fn url(&self) -> String;

    /// What the names of the locks begin with.
    fn stem(&self) -> String {
        "chaos".into()
    }

    /// Waits until every server is there and does its part.
    fn await_whole(&self);

    /// Whether a lease may be forgotten by a fault that [may forget](Fault::may_forget): two can then believe to hold
    /// one lock, which only fences tell apart.
    fn forgets(&self) -> bool {
        false
    }
}

/// One kind of fault.
pub(crate) struct Fault<T> {
    pub(crate) kind: &'static str,
    pub(crate) cure: Cure,
    /// Acknowledged writes may be gone afterwards.
    pub(crate) may_forget: bool,
    /// Breaks something chosen by the dice; answers the indices of what has to be mended.
    pub(crate) inflict: fn(&T, u64) -> Victims,
    pub(crate) mend: fn(&T, &[usize]),
}

pub(crate) type Victims = Vec<usize>;

impl<T> Fault<T> {
    /// One that leaves nothing to be mended.
    const fn passing(kind: &'static str, inflict: fn(&T, u64) -> Victims) -> Self {
        Self { kind, cure: Cure::Itself, may_forget: false, inflict, mend: |_, _| {} }
    }

    /// One that stays until it is mended.
    const fn lasting(
        kind: &'static str,
        cure: Cure,
        inflict: fn(&T, u64) -> Victims,
        mend: fn(&T, &[usize]),
    ) -> Self {
        Self { kind, cure, may_forget: false, inflict, mend }
    }

    const fn that_may_forget(mut self) -> Self {
        self.may_forget = true;
        self
    }
}

/// What it takes until locks can be had again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Nothing: what is left goes on. It is mended afterwards.
    Itself,
    /// Somebody has to mend it.
    Hand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// One server that forgets nothing
    Single,
    /// A primary, two replicas and three sentinels, with fail-over grace
    Sentinel,
    /// Three primaries with a replica each
    Cluster,
    /// Five nodes that vote
    Quorum,
}

pub(crate) fn run(options: &Options) -> Result<bool, Failure> {
    match options.topology {
        Kind::Single => storm::run::<single::Single>(options),
        Kind::Sentinel => storm::run::<sentinel::Sentinel>(options),
        Kind::Cluster => storm::run::<cluster::Cluster>(options),
        Kind::Quorum => storm::run::<quorum::Quorum>(options),
    }
}

/// SCRIPT FLUSH: every script has to be sent again.
fn forget_scripts(server: &RedisServer) -> Victims {
    server.cli(&["SCRIPT", "FLUSH"]);
    Vec::new()
}

/// CLIENT KILL: every connection breaks, those for wake-ups too.
fn cut_clients(server: &RedisServer) -> Victims {
    for kind in ["normal", "pubsub"] {
        server.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    Vec::new()
}

/// Crashes a primary that has granted locks of which its replicas know nothing.
fn kill_ahead_of_replicas(primary: &RedisServer, replicas: &[&RedisServer]) {
    replicas.iter().for_each(|replica| replica.stop());
    // What is on its way to a stopped replica would still arrive.
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    thread::sleep(UNREPLICATED_FOR);
    primary.kill();
    replicas.iter().for_each(|replica| replica.cont());
}

/// Long enough for some grants, and too short for a replica to be missed.
const UNREPLICATED_FOR: Duration = Duration::from_millis(400);

/// Where `server` stands in `servers`.
fn index_of(servers: &[RedisServer], server: &RedisServer) -> usize {
    let found = servers.iter().position(|other| other.port() == server.port());
    found.expect("a set knows its own servers")
}

/// The one that the dice show.
fn pick<'a>(from: impl IntoIterator<Item = &'a RedisServer>, dice: u64) -> &'a RedisServer {
    let from: Vec<_> = from.into_iter().collect();
    from[(dice % from.len() as u64) as usize]
}
