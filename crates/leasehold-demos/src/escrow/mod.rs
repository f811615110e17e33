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
    Demo, Result,
    database::number,
    supervisor::{Options, Supervisor},
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "escrow",
    line: "deals with deposits, payouts and refunds, three instances of a service that are killed at random",
    without: "instances worked on the same message, deal or account at the same time: each read what the others were \
              about to change, so money was paid twice and balances were overwritten",
    has_outage: false,
    has_records: true,
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
    // The store keeps requests for longer than a demo lasts: those of an earlier run had other numbers.
    let first = broker::now_ms()?.unsigned_abs();
    change.execute("insert into sqlite_sequence (name, seq) values ('outbox', ?)", [first])?;
    for number in 0..options.scaled(DEALS) {
        change.execute(
            "insert into deals (id, buyer, seller, amount, state) values (?, ?, ?, ?, ?)",
            (
                first + number,
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
