//! Records and deadlines in the store: the cost of the engine, without the layers above it.

mod deadlines;
mod marks;
mod scan;
mod wake;

pub(crate) use deadlines::{BATCH, work_off};

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{
    Clock, Leasehold,
    clock::Until,
    engine::{
        Engine,
        deadlines::{Deadline, Deadlines, DueTime, Placement, Pool, PoolLayout},
        records::{Begin, Records},
    },
    name::Name,
    owner::{Holder, Owner},
};
use leasehold_testkit::{ClusterSet, RedisServer};
use tokio::sync::OnceCell;

use crate::{
    Failure,
    report::{Figures, Ratio, Target},
    rounds::Measurement,
};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OfRecords {
    Wake,
    Marks,
    Deadlines,
    Scan,
}

impl Measurement for OfRecords {
    type Bench = Bench;

    fn start(quick: bool) -> Result<Bench, Failure> {
        Ok(Bench { server: RedisServer::start()?, full: OnceCell::new(), cluster: OnceCell::new(), quick })
    }

    async fn run(self, bench: &Bench, turn: usize) -> Result<Figures, Failure> {
        match self {
            Self::Wake => wake::measure(bench, turn).await,
            Self::Marks => marks::measure(bench).await,
            Self::Deadlines => deadlines::measure(bench, turn).await,
            Self::Scan => scan::measure(bench, turn).await,
        }
    }

    fn ratios(self) -> Vec<Ratio> {
        let ratio = |key, target, of| Ratio { key, target, of };
        match self {
            Self::Wake => vec![ratio("result_wake_p50_vs_handover", Target::AtMost(3.0), |round| {
                round.figure("result_wake_us") / round.figure("lock_handover_us")
            })],
            Self::Marks => vec![ratio("round_trips_per_1000_marks", Target::AtMost(1.0), |round| {
                round.figure("calls_per_1000_marks")
            })],
            Self::Deadlines => vec![
                ratio("deadlines_claimed_and_acknowledged_per_s", Target::AtLeast(50_000.0), |round| {
                    round.figure("deadlines_per_s_many_pending")
                }),
                ratio("deadline_cost_many_vs_few_pending", Target::AtMost(1.5), |round| {
                    round.figure("deadlines_per_s_few_pending") / round.figure("deadlines_per_s_many_pending")
                }),
                ratio("bytes_per_pending_deadline", Target::AtMost(200.0), |round| {
                    round.figure("pending_deadline_bytes")
                }),
            ],
            Self::Scan => vec![
                ratio("empty_scan_p50_vs_ping", Target::AtMost(1.6), |round| {
                    round.figure("empty_scan_us") / round.figure("ping_us")
                }),
                ratio("nothing_due_scan_p50_vs_ping", Target::AtMost(1.6), |round| {
                    round.figure("nothing_due_scan_us") / round.figure("ping_us")
                }),
                ratio("cluster_empty_scan_p50_vs_ping", Target::AtMost(2.5), |round| {
                    round.figure("cluster_empty_scan_us") / round.figure("cluster_ping_us")
                }),
                ratio("cluster_nothing_due_scan_p50_vs_ping", Target::AtMost(2.5), |round| {
                    round.figure("cluster_nothing_due_scan_us") / round.figure("cluster_ping_us")
                }),
            ],
        }
    }
}

/// What the measurements share. Expensive parts are created on first use.
pub(crate) struct Bench {
    server: RedisServer,
    full: OnceCell<Full>,
    cluster: OnceCell<ClusterSet>,
    quick: bool,
}

/// A server with many deadlines that are not due, and what each of them takes.
struct Full {
    server: RedisServer,
    bytes_each: f64,
}

/// Buckets of each pool.
const BUCKETS: u16 = 16;
/// A pool with many pending deadlines, one with few, and one with none.
pub(crate) const MANY: &str = "many";
const FEW: &str = "few";
const EMPTY: &str = "empty";

impl Bench {
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    async fn full(&self) -> Result<&Full, Failure> {
        let fill = async || {
            let server = RedisServer::start()?;
            let store = Store::open(&server.url())?;
            let used = || server.info("used_memory").and_then(|used| used.parse::<f64>().ok());
            let before = used().ok_or("no used_memory")?;
            let many = self.count(1_000_000, 20_000);
            store.fill(MANY, many).await?;
            let bytes_each = (used().ok_or("no used_memory")? - before) / many as f64;
            store.fill(FEW, 10_000).await?;
            Ok::<_, Failure>(Full { server, bytes_each })
        };
        self.full.get_or_try_init(fill).await
    }

    /// One node with all slots: measures the cost of reading buckets one by one, not of many processes on two cores.
    async fn cluster(&self) -> Result<&ClusterSet, Failure> {
        let builder = ClusterSet::builder().primaries(1).replicas(0).arg("appendonly", "no");
        let start = async || {
            let cluster = builder.start()?;
            Store::open(&cluster.url())?.fill(MANY, self.count(100_000, 2_000)).await?;
            Ok::<_, Failure>(cluster)
        };
        self.cluster.get_or_try_init(start).await
    }
}

/// An engine, used as the layers above it do.
pub(crate) struct Store {
    engine: Arc<dyn Engine>,
    clock: Clock,
}

const LIMIT: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);

impl Store {
    pub(crate) fn open(url: &str) -> Result<Self, Failure> {
        Ok(Self { engine: Leasehold::builder(url).into_engine()?, clock: Clock::system() })
    }

    fn until(&self) -> Until {
        self.clock.now() + LIMIT
    }

    fn records(&self) -> Result<&dyn Records, Failure> {
        Ok(self.engine.records()?)
    }

    fn deadlines(&self) -> Result<&dyn Deadlines, Failure> {
        Ok(self.engine.deadlines()?)
    }

    /// So many deadlines that are due tomorrow.
    pub(crate) async fn fill(&self, name: &str, count: usize) -> Result<(), Failure> {
        self.set(name, "pending", count, DueTime::In(DAY)).await
    }

    async fn set(&self, name: &str, stem: &str, count: usize, due: DueTime) -> Result<(), Failure> {
        let pool = pool(name)?;
        for first in (0..count).step_by(10_000) {
            let one = |n| Deadline { id: format!("{stem}:{n:010}").into(), due, context: None };
            let some: Vec<_> = (first..count.min(first + 10_000)).map(one).collect();
            self.deadlines()?.set(&pool, &some, self.until()).await?;
        }
        Ok(())
    }

    /// An attempt to begin a record, with an owner of its own.
    fn attempt(&self, key: &str, random: u128) -> Result<Begin, Failure> {
        Ok(Begin {
            key: Name::new(key)?,
            owner: Owner::new(random, &Holder::this_process("", self.clock.wall_us())),
            fingerprint: None,
            lease: LIMIT,
            wake: false,
        })
    }
}

fn pool(name: &str) -> Result<Pool, Failure> {
    let layout = PoolLayout { buckets: BUCKETS, placement: Placement::Spread };
    Ok(Pool { name: Name::new(name)?, layout })
}

/// A number that no other attempt of any run has.
fn random(n: u64) -> u128 {
    use std::hash::{BuildHasher, RandomState};
    u128::from(RandomState::new().hash_one(Instant::now())) << 64 | u128::from(n)
}
