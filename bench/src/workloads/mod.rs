//! What is measured: one file for each workload.

mod contention;
mod cost;
mod cycle;
mod deadlines;
mod engines;
mod family;
mod handover;
mod idempotency;
mod kept_alive;
mod memory;
mod quorum;
mod service;
mod topologies;

use serde_json::Value;

use crate::{
    Failure,
    contest::{OURS, Side},
    peers::{self, Program},
    section::Section,
};

/// The workloads, in the order of the report.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Acquire and release by one task
    Cycle,
    /// Acquire and release by 64 and by 512 tasks with a lock each
    Throughput,
    /// One lock that 4 × 16 and 4 × 100 tasks want
    Contention,
    /// From a release to the next holder
    Handover,
    /// Commands and processor time of the server, alone and with 10 to 1,000 waiters
    Cost,
    /// 10,000 and 100,000 locks that are kept alive
    KeptAlive,
    /// 3 and 5 nodes: healthy, one stopped, one killed
    Quorum,
    /// Bytes of a held lock in the server and in the client
    Memory,
    /// Readers and permits beside exclusive locks
    Family,
    /// Idempotency keys: begin and complete, waiting for a result, marks
    Idempotency,
    /// Deadlines: claim and acknowledge beside 1,000,000 pending, scans
    Deadlines,
    /// A cluster, sentinels and a quorum beside one server
    Topologies,
    /// PostgreSQL and etcd beside bare statements and transactions
    Engines,
    /// The service over HTTP beside the library: rate, store calls, memory, the dashboard
    Service,
}

impl Workload {
    pub(crate) fn measure(self, setup: &Setup) -> Result<Vec<Section>, Failure> {
        match self {
            Self::Cycle => Ok(vec![cycle::latency(setup)?]),
            Self::Throughput => setup.each([64, 512], |tasks| cycle::throughput(setup, tasks)),
            Self::Contention => setup.each([16, 100], |tasks| contention::measure(setup, tasks)),
            Self::Handover => Ok(vec![handover::measure(setup)?]),
            Self::Cost => cost::measure(setup),
            Self::KeptAlive => setup.each([10_000, 100_000], |locks| kept_alive::measure(setup, locks)),
            Self::Quorum => quorum::measure(setup),
            Self::Memory => memory::measure(setup),
            Self::Family => family::measure(setup),
            Self::Idempotency => idempotency::measure(setup),
            Self::Deadlines => deadlines::measure(setup),
            Self::Topologies => topologies::measure(setup),
            Self::Engines => engines::measure(setup),
            Self::Service => service::measure(setup),
        }
    }
}

/// How much is measured, and with whom.
pub(crate) struct Setup {
    pub(crate) quick: bool,
    pub(crate) peers: Vec<Program>,
}

impl Setup {
    pub(crate) fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// The larger of two sizes is left out of a quick run.
    fn each(
        &self,
        sizes: [usize; 2],
        measure: impl Fn(usize) -> Result<Section, Failure>,
    ) -> Result<Vec<Section>, Failure> {
        sizes.into_iter().take(self.count(2, 1)).map(measure).collect()
    }

    /// Ours, rslock and the peers.
    fn libraries(&self) -> Vec<Side<'_>> {
        let own = [Side::own(OURS, OURS), Side::own("rslock", "rslock")];
        own.into_iter().chain(self.peers()).collect()
    }

    /// Those with exclusive locks.
    fn peers(&self) -> impl Iterator<Item = Side<'_>> {
        self.peers.iter().filter(|program| peers::is_exclusive(program)).map(Side::peer)
    }

    /// One of them, if it takes part.
    fn peer(&self, name: &str) -> Option<Side<'_>> {
        self.peers.iter().find(|program| program.name == name).map(Side::peer)
    }
}

/// A number of an answer.
fn number(answer: &Value, name: &str) -> Result<f64, Failure> {
    answer[name].as_f64().ok_or_else(|| format!("no number {name} in {answer}").into())
}
