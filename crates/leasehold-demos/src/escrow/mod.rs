//! An escrow service: it holds the money of a buyer until the goods are there, then pays the seller or the buyer, once.
//!
//! Several instances do everything together: answer clients, move money, send what is in the outbox, reconcile. Messages
//! come twice, instances die in the middle of a payment, buyers accept and dispute at the same time. All names and times of
//! locks come from a policy file.

mod bank;
mod books;
mod broker;
mod cashier;
mod database;
mod judge;
mod keys;
mod outbox;
mod reconciliation;
mod service;
mod state;
mod traders;

use self::{
    database::{Database, Statements, values},
    state::State,
};
use crate::{Demo, Result, Topology, policy::PolicyFile, supervisor::Supervisor, worker::Worker};

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
    topologies: &[Topology::Sentinel, Topology::Cluster, Topology::Postgres],
    variants: &[],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
    tear_down: |worker| Database::open(worker)?.remove(),
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

/// Where an instance listens.
const LISTENS: &str = "insert into addresses (name, port) values (?1, ?2)
                       on conflict (name) do update set port = excluded.port";

fn set_up(worker: &Worker) -> Result<()> {
    Database::open(worker)?.create(|tables| {
        let account = "insert into accounts (id, name, balance) values (?1, ?2, 0)";
        tables.execute(account, &values![PLATFORM, "platform"])?;
        for number in 0..BUYERS + SELLERS {
            let name = if number < BUYERS { "buyer" } else { "seller" };
            tables.execute(account, &values![PLATFORM + 1 + number, name])?;
        }
        let deal = "insert into deals (id, buyer, seller, amount, state) values (?1, ?2, ?3, ?4, ?5)";
        for number in 0..worker.options.scaled(DEALS) {
            let (buyer, seller) = (PLATFORM + 1 + number % BUYERS, PLATFORM + 1 + BUYERS + number % SELLERS);
            let amount = 1000 + 100 * (number % 90);
            tables.execute(deal, &values![1 + number, buyer, seller, amount, State::Created.as_str()])?;
        }
        Ok(())
    })
}

/// The port where an instance listens, or listened before it was killed.
fn port_of(database: &Database, name: &str) -> Result<Option<u16>> {
    let found = database.row("select port from addresses where name = ?1", &values![name])?;
    found.map(|row| Ok(row.number(0)?.try_into()?)).transpose()
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let deals = supervisor.options.scaled(DEALS);
    let database = Database::open(supervisor.workers.template())?;
    supervisor.print(format!(
        "{deals} deals between {BUYERS} buyers and {SELLERS} sellers; the bank tells of every deposit twice, and every \
         fourth buyer accepts and disputes at the same time"
    ));
    if let Some(schema) = database.schema() {
        let stays = if supervisor.options.keep.is_some() { ", which stays" } else { "" };
        supervisor.print(format!(
            "deals and money are in the database of the locks, in the schema {schema}{stays}"
        ));
    }
    supervisor.start(BANK, 1)?;
    supervisor.until(|| Ok(database.number("select count(*) from addresses")? == 1)).await?;
    supervisor.start(SERVICE, SERVICES as usize)?;
    let ports = || {
        let sql = "select port from addresses where name like 'service %' order by name";
        database.rows(sql, &[])?.iter().map(|row| Ok(row.number(0)?.try_into()?)).collect()
    };
    supervisor.print_metrics(SERVICES as usize, ports).await?;
    supervisor.start(TRADERS, 1)?;
    supervisor.until_done(deals, SERVICE, || database.number("select count(*) from ended")).await?;
    supervisor.print(
        "all deals have ended; the last messages are delivered, and the books are reconciled once more",
    );
    supervisor.until(|| Ok(database.number(LEFT)? == 0)).await?;
    let last = database.number(RECONCILED)?;
    supervisor.until(|| Ok(database.number(RECONCILED)? > last)).await
}

const LEFT: &str = "select (select count(*) from outbox where sent = 0)
                         + (select count(*) from messages where outcome is null)";
const RECONCILED: &str = "select max(id) from reconciliations";

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        BANK => bank::serve(worker).await,
        SERVICE => service::serve(worker).await,
        _ => traders::trade(worker).await,
    }
}
