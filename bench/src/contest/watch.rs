//! Processor time during a turn: of the servers, of the contestants, and of everybody else on the machine.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{Failure, cpu};

/// From here on a turn counts as disturbed: others used this share of a core.
pub(crate) const DISTURBED: f64 = 0.1;

/// What was used until now.
pub(crate) struct Watch {
    began: Instant,
    servers: Duration,
    clients: Duration,
    all: Duration,
    own: Duration,
}

/// What a turn used, in seconds of processor time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    pub(crate) servers: f64,
    pub(crate) clients: f64,
    /// Processor time of others, as a share of one core.
    pub(crate) others_share: f64,
}

impl Watch {
    /// The servers, the contestants whose turn it is, and those who only wait.
    pub(crate) fn begin(servers: &[u32], clients: &[u32], idle: &[u32]) -> Result<Self, Failure> {
        let [servers, clients, idle] = [sum(servers)?, sum(clients)?, sum(idle)?];
        let own = servers + clients + idle + cpu::time_of(std::process::id())?;
        Ok(Self { began: Instant::now(), servers, clients, all: machine()?, own })
    }

    pub(crate) fn end(&self, servers: &[u32], clients: &[u32], idle: &[u32]) -> Result<Used, Failure> {
        let now = Self::begin(servers, clients, idle)?;
        let others = (now.all.saturating_sub(self.all)).saturating_sub(now.own.saturating_sub(self.own));
        Ok(Used {
            servers: now.servers.saturating_sub(self.servers).as_secs_f64(),
            clients: now.clients.saturating_sub(self.clients).as_secs_f64(),
            others_share: others.as_secs_f64() / (now.began - self.began).as_secs_f64(),
        })
    }
}

fn sum(pids: &[u32]) -> Result<Duration, Failure> {
    pids.iter().map(|pid| cpu::time_of(*pid)).sum()
}

/// Processor time that all processes of the machine have used, and that the host took away.
fn machine() -> Result<Duration, Failure> {
    let stat = fs::read_to_string("/proc/stat")?;
    let numbers =
        stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).ok_or("unknown /proc/stat")?;
    let ticks = numbers.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    // user, nice, system and steal; interrupts belong to nobody.
    let busy: u64 = [0, 1, 2, 7].into_iter().filter_map(|field| ticks.get(field)).sum();
    Ok(Duration::from_secs_f64(busy as f64 / rustix::param::clock_ticks_per_second() as f64))
}
