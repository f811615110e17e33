//! What a turn used: processor time of the servers, of the contestants and of everybody else, and commands of the servers.

use std::{
    fs,
    time::{Duration, Instant},
};

use leasehold_testkit::RedisServer;

use crate::{Failure, cpu, server};

/// From here on a turn counts as disturbed: others used this share of a core.
pub(crate) const DISTURBED: f64 = 0.1;

/// The processes of a turn.
pub(crate) struct Watched<'a> {
    pub(crate) servers: &'a [&'a RedisServer],
    /// The contestants whose turn it is.
    pub(crate) clients: Vec<u32>,
    /// Those who only wait.
    pub(crate) idle: Vec<u32>,
}

/// What was used since the beginning of a turn.
pub(crate) struct Watch<'a> {
    watched: Watched<'a>,
    before: Totals,
}

struct Totals {
    at: Instant,
    servers: Duration,
    clients: Duration,
    /// Ours and the machine's.
    own: Duration,
    all: Duration,
    commands: u64,
}

/// What a turn used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) seconds: f64,
    /// Processor time in seconds.
    pub(crate) servers: f64,
    pub(crate) clients: f64,
    /// Processor time of others, as a share of one core.
    pub(crate) others_share: f64,
    /// Those that scripts call included.
    pub(crate) commands: f64,
}

impl<'a> Watch<'a> {
    pub(crate) fn begin(watched: Watched<'a>) -> Result<Self, Failure> {
        let before = watched.totals()?;
        Ok(Self { watched, before })
    }

    pub(crate) fn end(self) -> Result<Used, Failure> {
        let (before, now) = (self.before, self.watched.totals()?);
        let seconds = (now.at - before.at).as_secs_f64();
        let own = now.own.saturating_sub(before.own);
        let others = now.all.saturating_sub(before.all).saturating_sub(own);
        Ok(Used {
            seconds,
            servers: now.servers.saturating_sub(before.servers).as_secs_f64(),
            clients: now.clients.saturating_sub(before.clients).as_secs_f64(),
            others_share: others.as_secs_f64() / seconds,
            commands: (now.commands - before.commands) as f64,
        })
    }
}

impl Watched<'_> {
    fn totals(&self) -> Result<Totals, Failure> {
        let sum = |pids: &[u32]| pids.iter().map(|pid| cpu::time_of(*pid)).sum::<Result<Duration, _>>();
        // First: it may have to wait for the server.
        let commands = self.servers.iter().map(|server| server::commands(server)).sum();
        let pids: Vec<_> = self.servers.iter().map(|server| server.pid()).collect();
        let (servers, clients) = (sum(&pids)?, sum(&self.clients)?);
        // One of them may have ended; that is found out when it has its turn.
        let idle: Duration = self.idle.iter().filter_map(|pid| cpu::time_of(*pid).ok()).sum();
        let own = servers + clients + idle + cpu::time_of(std::process::id())?;
        let (at, all) = (Instant::now(), machine()?);
        Ok(Totals { at, servers, clients, own, all, commands })
    }
}

/// Processor time that all processes of the machine have used, and that the host took away.
fn machine() -> Result<Duration, Failure> {
    let stat = fs::read_to_string("/proc/stat")?;
    let numbers =
        stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).ok_or("unknown /proc/stat")?;
    let ticks = numbers.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    // user, nice, system and steal; interrupts belong to nobody.
    let busy: u64 = [0, 1, 2, 7].into_iter().filter_map(|field| ticks.get(field)).sum();
    Ok(cpu::of_ticks(busy))
}
