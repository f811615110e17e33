//! The topologies, one file each with its faults.

pub(crate) mod cluster;
pub(crate) mod etcd;
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod sentinel;
pub(crate) mod single;

use std::{thread, time::Duration};

use leasehold_testkit::RedisServer;

use crate::{
    Failure,
    fault_loop::{self, Options},
};

/// Servers that hold locks together.
pub(crate) trait Topology: Sized + 'static {
    const FAULTS: &'static [Fault<Self>];

    /// The longest ttl of any lease, and that of the long tenures. Where servers fail over it is longer than a fail-over
    /// takes: otherwise a lost lease expires before it can be granted again.
    const MAX_TTL: Duration;

    fn start(options: &Options) -> Result<Self, Failure>;

    fn url(&self) -> String;

    /// The prefix of the names of the locks.
    fn stem(&self) -> String {
        "chaos".into()
    }

    /// Waits until every server is up and in its role.
    fn await_whole(&self);

    /// Whether a fault that [may lose writes](Fault::may_lose_writes) can lose a lease. Two holders can then believe to
    /// hold one lock, and only their fences differ.
    fn loses_leases(&self) -> bool {
        false
    }
}

/// One kind of fault.
pub(crate) struct Fault<T> {
    pub(crate) kind: &'static str,
    pub(crate) cure: Cure,
    /// Acknowledged writes may be lost.
    pub(crate) may_lose_writes: bool,
    /// Breaks the server chosen by the dice; returns the indices of what has to be mended.
    pub(crate) inflict: fn(&T, u64) -> Victims,
    pub(crate) mend: fn(&T, &[usize]),
}

pub(crate) type Victims = Vec<usize>;

impl<T> Fault<T> {
    /// A fault that leaves nothing to be mended.
    const fn passing(kind: &'static str, inflict: fn(&T, u64) -> Victims) -> Self {
        Self { kind, cure: Cure::Itself, may_lose_writes: false, inflict, mend: |_, _| {} }
    }

    /// A fault that lasts until it is mended.
    const fn lasting(
        kind: &'static str,
        cure: Cure,
        inflict: fn(&T, u64) -> Victims,
        mend: fn(&T, &[usize]),
    ) -> Self {
        Self { kind, cure, may_lose_writes: false, inflict, mend }
    }

    const fn that_may_lose_writes(mut self) -> Self {
        self.may_lose_writes = true;
        self
    }
}

/// What recovery takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Nothing: the remaining servers continue. The fault is mended afterwards.
    Itself,
    /// The fault has to be mended.
    Hand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// One server that persists every write
    Single,
    /// A primary, two replicas and three sentinels, with fail-over grace
    Sentinel,
    /// Three primaries with a replica each
    Cluster,
    /// Five nodes that vote
    Quorum,
    /// One PostgreSQL
    Postgres,
    /// Three members of etcd
    Etcd,
}

pub(crate) fn run(options: &Options) -> Result<bool, Failure> {
    match options.topology {
        Kind::Single => fault_loop::run::<single::Single>(options),
        Kind::Sentinel => fault_loop::run::<sentinel::Sentinel>(options),
        Kind::Cluster => fault_loop::run::<cluster::Cluster>(options),
        Kind::Quorum => fault_loop::run::<quorum::Quorum>(options),
        Kind::Postgres => fault_loop::run::<postgres::Postgres>(options),
        Kind::Etcd => fault_loop::run::<etcd::Etcd>(options),
    }
}

/// SCRIPT FLUSH: every script has to be sent again.
fn flush_scripts(server: &RedisServer) -> Victims {
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

/// Crashes a primary that has granted locks that its replicas do not have.
fn kill_ahead_of_replicas(primary: &RedisServer, replicas: &[&RedisServer]) {
    replicas.iter().for_each(|replica| replica.stop());
    // Writes in flight to a stopped replica would still arrive.
    primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    thread::sleep(UNREPLICATED_FOR);
    primary.kill();
    replicas.iter().for_each(|replica| replica.cont());
}

/// Long enough for some grants, and too short for a replica to be marked as down.
const UNREPLICATED_FOR: Duration = Duration::from_millis(400);

/// The index of `server` in `servers`.
fn index_of(servers: &[RedisServer], server: &RedisServer) -> usize {
    let found = servers.iter().position(|other| other.port() == server.port());
    found.expect("a set knows its own servers")
}

/// The element chosen by the dice.
fn pick<'a>(from: impl IntoIterator<Item = &'a RedisServer>, dice: u64) -> &'a RedisServer {
    let from: Vec<_> = from.into_iter().collect();
    from[(dice % from.len() as u64) as usize]
}
