//! Transactions that must end: those that take too long are refunded, by whichever of two pods finds them first.
//!
//! The process that starts a transaction sets a deadline, and cancels it when the transaction completes. A pod claims due
//! deadlines, which hides them from the other pod, and refunds their transactions. A pod that dies loses nothing: the
//! deadlines it had claimed become due again.

mod costs;
mod judge;
mod payments;
mod pod;

use std::time::Duration;

use leasehold::{Leasehold, Lock};
use serde::{Deserialize, Serialize};

use crate::{
    Demo, Result, Topology,
    database::number,
    policy::{self, PolicyFile},
    protection::TIMEOUTS_TABLE,
    show::grouped,
    supervisor::Supervisor,
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "recovery",
    line: "1,000 transactions a second, of which those that time out are refunded by two pods",
    protects: "each refund made once",
    without: "pods read the same timed-out transaction, and each refunded it",
    has_outage: false,
    has_records: false,
    policies: PolicyFile {
        name: "recovery.toml",
        text: include_str!("../../policies/recovery.toml"),
        ttl_variable: None,
    },
    topologies: &[Topology::Cluster],
    variants: &["single-winner", "shared"],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
    tear_down: |_| Ok(()),
};

const TRANSACTIONS: u64 = 5_000;
/// Transactions that begin each second.
const RATE: u64 = 1_000;
/// Transactions that begin together.
const BATCH: u64 = 50;
/// How long a transaction may take.
const TIMEOUT: Duration = Duration::from_millis(500);

const POOL: &str = "transactions";
const PAYMENTS: &str = "payments";
const POD: &str = "pod";

/// The context of a deadline: what a pod needs to refund the transaction.
#[derive(Serialize, Deserialize)]
struct Order {
    account: u64,
    euros: u64,
    /// How many attempts to refund it the bank refuses.
    bank_refuses: u32,
}

fn set_up(worker: &Worker) -> Result<()> {
    let database = worker.database()?;
    database.execute_batch(
        "create table transactions (id text, account integer, euros integer, state text, fence integer,
                                    due_us integer, cancelled_us integer);
         create index transactions_by_id on transactions (id);
         create table attempts (id integer primary key, tx text, pod text, attempt integer,
                                claimed_us integer, hidden_until_us integer, began_us integer,
                                ended_us integer, outcome text);
         create index attempts_of_transactions on attempts (tx);
         create table refunds (tx text, pod text, euros integer, at_us integer);
         create index refunds_of_transactions on refunds (tx);
         create table scans (pod text, life integer, done integer, skipped integer);
         create table costs (scan text, round_trips integer, scans integer);
         create table cycles (us integer);",
    )?;
    Ok(database.execute_batch(TIMEOUTS_TABLE)?)
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let (database, transactions) = (supervisor.database()?, supervisor.options.scaled(TRANSACTIONS));
    supervisor.print(format!(
        "{} transactions, {} a second, with {} ms each; four of ten never end, and half of these meet a \
         bank that refuses at first",
        grouped(transactions),
        grouped(RATE),
        TIMEOUT.as_millis()
    ));
    if !supervisor.options.r#unsafe {
        match costs::measure(supervisor).await {
            Err(error) if !costs::may_pass(&*error) => return Err(error),
            Err(error) => supervisor.print(format!("round trips were not counted: {error}")),
            Ok(()) => {}
        }
    }
    supervisor.start(POD, 2)?;
    supervisor.start(PAYMENTS, 1)?;
    let ended = "select count(*) from transactions where state <> 'open'";
    supervisor.until_done(transactions, POD, || number(&database, ended)).await?;
    // Deadlines are cancelled a little later.
    let cancelling = "select count(*) from transactions where state = 'completed' and cancelled_us is null";
    supervisor.until(|| Ok(number(&database, cancelling)? == 0)).await
}

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        PAYMENTS => payments::pay(worker).await,
        _ => pod::recover(worker).await,
    }
}

/// Where the deadlines of this run are.
fn pool(worker: &Worker) -> String {
    policy::prefix(&worker.run) + POOL
}

/// The lock of single scans.
fn scan_lock(leases: &Leasehold) -> leasehold::Result<Lock> {
    Ok(leases.lock_policy("recovery")?.key([("pool", POOL)]))
}

/// A time that is the same for all processes of this machine, and never goes back.
fn now_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}
