//! Locks and deadlines in PostgreSQL and etcd, beside what no library can do without there: bare statements and transactions.
//!
//! Where commits are counted the server waits for its disk as that of a user does, and so does etcd. Elsewhere it does not: the
//! disk would hide the overhead of the library, and a bare notification needs no commit that waits for it.

mod commits;
mod deadlines;
mod etcd;
mod handover;

use leasehold_testkit::{EtcdSet, PostgresServer};
use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use crate::{
    Failure, goals,
    report::{Figures, Ratio},
    rounds::Measurement,
};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engines {
    /// Acquire and release by 16 tasks on PostgreSQL, beside commits of one row
    Commits,
    /// From a release to the next holder on PostgreSQL, beside a bare notification
    Handover,
    /// Deadlines of PostgreSQL: claim and acknowledge beside 1,000,000 pending
    Deadlines,
    /// Acquire and release on etcd, beside two bare transactions
    Etcd,
    /// 10,000 locks that are kept alive on etcd
    EtcdKept,
}

impl Measurement for Engines {
    type Bench = Bench;

    fn start(quick: bool) -> Result<Bench, Failure> {
        Ok(Bench {
            durable: OnceCell::new(),
            in_memory: OnceCell::new(),
            full: OnceCell::new(),
            etcd: OnceCell::new(),
            quick,
        })
    }

    async fn run(self, bench: &Bench, turn: usize) -> Result<Figures, Failure> {
        match self {
            Self::Commits => commits::measure(bench, turn).await,
            Self::Handover => handover::measure(bench, turn).await,
            Self::Deadlines => deadlines::measure(bench, turn).await,
            Self::Etcd => etcd::cycle(bench, turn).await,
            Self::EtcdKept => etcd::kept_alive(bench).await,
        }
    }

    fn ratios(self) -> Vec<Ratio> {
        let ratio = |key, of| Ratio { key, target: goals::target(key), of };
        match self {
            Self::Commits => vec![
                ratio("postgres_commits_16_vs_bare", |round| {
                    2.0 * round.figure("postgres_cycles_per_s_16") / round.figure("bare_commits_per_s_16")
                }),
                ratio("postgres_cycles_16_vs_advisory", |round| {
                    round.figure("postgres_cycles_per_s_16") / round.figure("advisory_cycles_per_s_16")
                }),
            ],
            Self::Handover => vec![ratio("postgres_handover_p50_vs_notify", |round| {
                round.figure("postgres_handover_us") / round.figure("bare_notify_us")
            })],
            Self::Deadlines => vec![ratio("postgres_deadlines_vs_bare_update", |round| {
                round.figure("postgres_deadlines_per_s") / round.figure("bare_updates_per_s")
            })],
            Self::Etcd => vec![ratio("etcd_cycle_p50_vs_two_transactions", |round| {
                round.figure("etcd_cycle_us") / (2.0 * round.figure("bare_transaction_us"))
            })],
            Self::EtcdKept => {
                vec![ratio("etcd_kept_client_core_share", |round| round.figure("etcd_kept_core_share"))]
            }
        }
    }
}

/// What the measurements share. Each part is started on first use.
pub(crate) struct Bench {
    durable: OnceCell<PostgresServer>,
    in_memory: OnceCell<PostgresServer>,
    full: OnceCell<deadlines::Full>,
    etcd: OnceCell<EtcdSet>,
    quick: bool,
}

impl Bench {
    fn count(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }

    /// A PostgreSQL whose commits are on the disk when they are answered.
    async fn durable(&self) -> Result<&PostgresServer, Failure> {
        // Those of the tests turn that off.
        self.durable.get_or_try_init(async || start("fsync = on\nfull_page_writes = on")).await
    }

    /// One that does not wait for its disk.
    async fn in_memory(&self) -> Result<&PostgresServer, Failure> {
        self.in_memory.get_or_try_init(async || start("")).await
    }

    async fn etcd(&self) -> Result<&EtcdSet, Failure> {
        self.etcd
            .get_or_try_init(async || EtcdSet::builder(1).start_or_skip().ok_or("etcd is missing".into()))
            .await
    }
}

/// With the schema in a database `bench`.
fn start(settings: &str) -> Result<PostgresServer, Failure> {
    let server = PostgresServer::start_with_or_skip(settings).ok_or("PostgreSQL is missing")?;
    server.install(&leasehold::engine::postgres::script());
    server.database_named("bench");
    Ok(server)
}

/// A connection without the library.
async fn session(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
