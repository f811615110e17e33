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
    part::Part,
    stage::{Options, Stage},
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
    direct: |stage| Box::pin(direct(stage)),
    act: |part| Box::pin(act(part)),
    judge: judge::judge,
};

const DEALS: u64 = 200;
const BUYERS: u64 = 8;
const SELLERS: u64 = 4;
/// The account of who runs the service: it gets a fee of every payout.
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
    // Requests are remembered by the store for longer than a demo lasts: those of an earlier one had other numbers.
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

async fn direct(stage: &mut Stage) -> Result<()> {
    let deals = stage.options.scaled(DEALS);
    stage.tell(format!(
        "{deals} deals between {BUYERS} buyers and {SELLERS} sellers; the bank tells of every deposit twice, and every \
         fourth buyer accepts and disputes at the same time"
    ));
    stage.start(BANK, 1)?;
    stage.until(|database| Ok(number(database, "select count(*) from addresses")? == 1)).await?;
    stage.start(SERVICE, SERVICES as usize)?;
    stage.start(TRADERS, 1)?;
    stage.until_done(deals, SERVICE, |database| number(database, "select count(*) from ended")).await?;
    stage.tell(
        "all deals have ended; the last messages are delivered, and the books are reconciled once more",
    );
    stage.until(|database| Ok(number(database, LEFT)? == 0)).await?;
    let last = number(&stage.database, RECONCILED)?;
    stage.until(|database| Ok(number(database, RECONCILED)? > last)).await
}

const LEFT: &str = "select (select count(*) from outbox where not sent)
                         + (select count(*) from messages where outcome is null)";
const RECONCILED: &str = "select max(id) from reconciliations";

async fn act(part: Part) -> Result<()> {
    match part.role.as_str() {
        BANK => bank::serve(part).await,
        SERVICE => service::serve(part).await,
        _ => traders::trade(part).await,
    }
}
