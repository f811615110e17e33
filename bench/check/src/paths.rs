//! What is done on each hot path.

use std::time::Duration;

use leasehold::{Guard, Leasehold};
use tokio::task::JoinSet;

use crate::{Failure, server::Server};

/// Tasks that share one connection.
const TASKS: usize = 64;
/// Nodes of a quorum.
const NODES: usize = 3;
/// Locks that are kept alive at once.
const KEPT_ALIVE: usize = 1_000;
/// Long enough for a slow machine to acquire all of them before the first is due.
const KEPT_ALIVE_TTL: Duration = Duration::from_secs(6);
/// Under valgrind everything takes fifty times as long, and then the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HotPath {
    /// Acquire and release on `memory:`.
    MemoryCycle,
    /// A release that hands the lock over to a waiter, and the waiter's release the same way.
    MemoryHandover,
    /// Acquire and release on `redis://`, one task.
    RedisCycle,
    /// The same by many tasks at once, which share calls.
    RedisTasks,
    /// Renewals of kept-alive locks on `redis://`.
    RedisRenewal,
    /// Acquire and release on `redlock://`, by many tasks at once.
    QuorumTasks,
}

const ALL: [(&str, HotPath); 6] = [
    ("memory-cycle", HotPath::MemoryCycle),
    ("memory-handover", HotPath::MemoryHandover),
    ("redis-cycle", HotPath::RedisCycle),
    ("redis-64-tasks", HotPath::RedisTasks),
    ("redis-renewal", HotPath::RedisRenewal),
    ("quorum-64-tasks", HotPath::QuorumTasks),
];

/// What a run works with.
pub(crate) struct Bench {
    leases: Leasehold,
    /// Held from the start to the end.
    held: Vec<Guard>,
    _servers: Vec<Server>,
}

impl HotPath {
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, _)| *known == name).map(|(_, path)| *path)
    }

    pub(crate) async fn start(self) -> Result<Bench, Failure> {
        let (scheme, servers) = match self {
            Self::MemoryCycle | Self::MemoryHandover => ("memory:", 0),
            Self::RedisCycle | Self::RedisTasks | Self::RedisRenewal => ("redis://", 1),
            Self::QuorumTasks => ("redlock://", NODES),
        };
        let servers = (0..servers).map(|_| Server::start()).collect::<Result<Vec<_>, _>>()?;
        let url = scheme.to_owned() + &servers.iter().map(Server::address).collect::<Vec<_>>().join(",");
        let leases = Leasehold::builder(url).command_timeout(PATIENCE).connect_lazy()?;
        if self == Self::QuorumTasks {
            leases.quorum()?.admit_new().await?;
            // Fences follow the clock, as those of a quorum that is older than two minutes do.
            for server in &servers {
                server.send("DEL leasehold:quorum:highest leasehold:quorum:floor")?;
            }
        }
        let held = if self == Self::RedisRenewal { hold(&leases, KEPT_ALIVE).await? } else { Vec::new() };
        Ok(Bench { leases, held, _servers: servers })
    }

    /// Operations before the count begins: scripts are loaded, maps and buffers have grown.
    pub(crate) fn warm_up(self) -> usize {
        match self {
            Self::RedisRenewal => KEPT_ALIVE,
            _ => TASKS * 4,
        }
    }

    /// Does `count` operations.
    pub(crate) async fn run(self, bench: &Bench, count: usize) -> Result<(), Failure> {
        match self {
            Self::MemoryCycle | Self::RedisCycle => {
                cycles(bench.leases.clone(), "check:0".into(), count).await
            }
            Self::MemoryHandover => handovers(&bench.leases, count).await,
            Self::RedisTasks | Self::QuorumTasks => in_tasks(&bench.leases, count).await,
            Self::RedisRenewal => renewals(bench, count).await,
        }
    }
}

async fn cycles(leases: Leasehold, name: String, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        let _ = leases.lock(&name).acquire().await?.release().await?;
    }
    Ok(())
}

async fn in_tasks(leases: &Leasehold, count: usize) -> Result<(), Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(cycles(leases.clone(), format!("check:{task}"), count / TASKS));
    }
    finish(tasks).await.map(drop)
}

/// Two tasks want one lock all the time, and each holds it until the other waits.
async fn handovers(leases: &Leasehold, count: usize) -> Result<(), Failure> {
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let leases = leases.clone();
        tasks.spawn(async move {
            for _ in 0..count / 2 {
                let guard = leases.lock("check:handover").acquire().await?;
                tokio::task::yield_now().await;
                let _ = guard.release().await?;
            }
            Ok(())
        });
    }
    finish(tasks).await.map(drop)
}

async fn hold(leases: &Leasehold, locks: usize) -> Result<Vec<Guard>, Failure> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let leases = leases.clone();
        tasks.spawn(async move {
            let mut guards = Vec::new();
            for number in (task..locks).step_by(TASKS) {
                let lock = leases.lock(format!("check:kept:{number}"));
                guards.push(lock.ttl(KEPT_ALIVE_TTL).keep_alive().acquire().await?);
            }
            Ok(guards)
        });
    }
    Ok(finish(tasks).await?.into_iter().flatten().collect())
}

async fn renewals(bench: &Bench, count: usize) -> Result<(), Failure> {
    for _ in 0..count / KEPT_ALIVE {
        let until = bench.leases.stats().renewed + KEPT_ALIVE as u64;
        // Blocks the only thread until all of them are due: they are then renewed together, in every run.
        std::thread::sleep(KEPT_ALIVE_TTL / 3);
        while bench.leases.stats().renewed < until {
            tokio::time::sleep(KEPT_ALIVE_TTL / 60).await;
        }
    }
    match bench.held.iter().all(|guard| guard.is_held()) {
        true => Ok(()),
        false => Err("a lock was lost while it was kept alive".into()),
    }
}

async fn finish<T: 'static>(mut tasks: JoinSet<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.push(done??);
    }
    Ok(all)
}
