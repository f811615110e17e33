//! A flash sale: far more buyers than goods, several instances of the shop, and every instance may die at any moment.
//!
//! An instance reads the stock, decides, and writes one less. Two that do so at the same time sell the same unit twice,
//! unless they hold the product's lock.

mod buyers;
mod judge;
mod packer;
mod shop;

use rusqlite::Connection;

use crate::{
    Demo, Result,
    database::number,
    part::Part,
    stage::{Options, Stage},
};

pub(crate) static DEMO: Demo = Demo {
    name: "flash-sale",
    line: "10,000 buyers, 1,000 units, three instances of a shop that are killed at random",
    without: "instances read the same stock at the same time, and each sold that unit",
    has_outage: false,
    has_records: false,
    variants: &["stock-in-key"],
    set_up,
    direct: |stage| Box::pin(direct(stage)),
    act: |part| Box::pin(act(part)),
    judge: judge::judge,
};

const PRODUCTS: u64 = 5;
const BUYERS: u64 = 10_000;
/// Of each product.
const STOCK: u64 = 200;

const SHOP: &str = "shop";
const PACKER: &str = "packer";
const BUYER: &str = "buyers";

fn set_up(database: &mut Connection, options: &Options) -> Result<()> {
    database.execute_batch(
        "create table products (id integer primary key, stock integer, first_stock integer,
                                starts_ms integer, ends_ms integer, fence integer not null default 0);
         create table orders (id integer primary key, product integer, buyer integer, status text, shop text);
         create index orders_of_buyers on orders (buyer, product);
         create table queue (order_id integer);
         create table shops (number integer primary key, port integer);
         create table answers (buyer integer, product integer, answer text);",
    )?;
    let stock = options.scaled(STOCK);
    for id in 1..=PRODUCTS {
        database.execute(
            "insert into products (id, stock, first_stock, starts_ms, ends_ms) values (?, ?, ?, 0, ?)",
            (id, stock, stock, i64::MAX),
        )?;
    }
    Ok(())
}

async fn direct(stage: &mut Stage) -> Result<()> {
    let buyers = stage.options.scaled(BUYERS);
    stage.tell(format!(
        "{PRODUCTS} products with {} units each; {buyers} buyers, every tenth of whom presses the button twice",
        stage.options.scaled(STOCK)
    ));
    stage.start(SHOP, 3)?;
    stage.start(PACKER, 1)?;
    stage.start(BUYER, 1)?;
    let presses = buyers + buyers.div_ceil(10);
    stage.until_done(presses, SHOP, |database| number(database, "select count(*) from answers")).await?;
    stage.until(|database| Ok(number(database, "select count(*) from queue")? == 0)).await
}

async fn act(part: Part) -> Result<()> {
    match part.role.as_str() {
        SHOP => shop::serve(part).await,
        PACKER => packer::pack(part).await,
        _ => buyers::buy(part).await,
    }
}
