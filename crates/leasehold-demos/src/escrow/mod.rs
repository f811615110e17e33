//! An escrow service: it holds the money of a buyer until the goods are there, then pays the seller or the buyer, once.
//!
//! Several instances do everything together: answer clients, move money, send what is in the outbox, reconcile. Messages
//! come twice, instances die in the middle of a payment, buyers accept and dispute at the same time. All names and times of
//! locks come from a policy file.

mod bank;
mod books;
mod broker;
mod cashier;
mod judge;
mod keys;
mod outbox;
mod reconciliation;
mod service;
mod state;
mod traders;

use rusqlite::Connection;

use self::state::State;
use crate::{
    Demo, Result, Topology, database::number, options::Options, policy::PolicyFile, supervisor::Supervisor,
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "escrow",
    line: "200 deals with deposits, payouts and refunds, and three instances of a service that are killed",
    protects: "each deal paid once",
    without: "instances worked on the same message, deal or account at the same time: each read what the others were \
              about to change, so money was paid twice and balances were overwritten",
    has_outage: false,
    has_records: true,
    policies: PolicyFile {
        name: "escrow.toml",
        text: include_str!("../../policies/escrow.toml"),
        ttl_variable: None,
    },
    topologies: &[Topology::Sentinel, Topology::Cluster],
    variants: &[],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
};

const DEALS: u64 = 200;
const BUYERS: u64 = 8;
const SELLERS: u64 = 4;
/// The account of the operator of the service: it gets a fee from every payout.
const PLATFORM: u64 = 1;

const SERVICES: u64 = 3;

const BANK: &str = "bank";
const SERVICE: &str = "service";
const TRADERS: &str = "traders";

fn set_up(database: &mut Connection, options: &Options) -> Result<()> {
    database.execute_batch(include_str!("schema.sql"))?;
    let change = database.transaction()?;
    let account = "insert into accounts (id, name, balance) values (?, ?, 0)";
    change.execute(account, (PLATFORM, "platform"))?;
    for number in 0..BUYERS + SELLERS {
        let name = if number < BUYERS { "buyer" } else { "seller" };
        change.execute(account, (PLATFORM + 1 + number, name))?;
    }
    for number in 0..options.scaled(DEALS) {
        change.execute(
            "insert into deals (id, buyer, seller, amount, state) values (?, ?, ?, ?, ?)",
            (
                1 + number,
                PLATFORM + 1 + number % BUYERS,
                PLATFORM + 1 + BUYERS + number % SELLERS,
                1000 + 100 * (number % 90),
                State::Created.as_str(),
            ),
        )?;
    }
    Ok(change.commit()?)
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let deals = supervisor.options.scaled(DEALS);
    supervisor.print(format!(
        "{deals} deals between {BUYERS} buyers and {SELLERS} sellers; the bank tells of every deposit twice, and every \
         fourth buyer accepts and disputes at the same time"
    ));
    supervisor.start(BANK, 1)?;
    supervisor.until(|database| Ok(number(database, "select count(*) from addresses")? == 1)).await?;
    supervisor.start(SERVICE, SERVICES as usize)?;
    let ports = "select port from addresses where name like 'service %' order by name";
    supervisor.print_metrics(SERVICES as usize, ports).await?;
    supervisor.start(TRADERS, 1)?;
    supervisor.until_done(deals, SERVICE, |database| number(database, "select count(*) from ended")).await?;
    supervisor.print(
        "all deals have ended; the last messages are delivered, and the books are reconciled once more",
    );
    supervisor.until(|database| Ok(number(database, LEFT)? == 0)).await?;
    let last = number(&supervisor.database, RECONCILED)?;
    supervisor.until(|database| Ok(number(database, RECONCILED)? > last)).await
}

const LEFT: &str = "select (select count(*) from outbox where not sent)
                         + (select count(*) from messages where outcome is null)";
const RECONCILED: &str = "select max(id) from reconciliations";

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        BANK => bank::serve(worker).await,
        SERVICE => service::serve(worker).await,
        _ => traders::trade(worker).await,
    }
}
