//! A flash sale: far more buyers than goods, several instances of the shop, and every instance may die at any moment.
//!
//! An instance reads the stock, decides, and writes one less. Two that do so at the same time sell the same unit twice,
//! unless they hold the product's lock.

mod buyers;
mod judge;
mod packer;
mod shop;

use crate::{
    Demo, Result, Topology,
    database::{number, ports},
    policy::PolicyFile,
    show::grouped,
    supervisor::Supervisor,
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "flash-sale",
    line: "10,000 buyers, 1,000 units, three instances of a shop that are killed at random",
    protects: "each unit sold once",
    without: "instances read the same stock at the same time, and each sold that unit",
    has_outage: false,
    has_records: false,
    policies: PolicyFile {
        name: "flash-sale.toml",
        text: include_str!("../../policies/flash-sale.toml"),
        ttl_variable: Some("LOCK_TTL"),
    },
    topologies: &[Topology::Sentinel, Topology::Cluster, Topology::Quorum],
    variants: &[STOCK_IN_KEY],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
    tear_down: |_| Ok(()),
};

/// The variant with the stock in the name of the lock.
const STOCK_IN_KEY: &str = "stock-in-key";

const PRODUCTS: u64 = 5;
const BUYERS: u64 = 10_000;
/// Of each product.
const STOCK: u64 = 200;

const SHOPS: usize = 3;

const SHOP: &str = "shop";
const PACKER: &str = "packer";
const BUYER: &str = "buyers";

fn set_up(worker: &Worker) -> Result<()> {
    let database = worker.database()?;
    database.execute_batch(
        "create table products (id integer primary key, stock integer, first_stock integer,
                                starts_ms integer, ends_ms integer, fence integer not null default 0);
         create table orders (id integer primary key, product integer, buyer integer, status text, shop text);
         create index orders_of_buyers on orders (buyer, product);
         create table queue (order_id integer);
         create table shops (number integer primary key, port integer);
         create table answers (buyer integer, product integer, answer text);",
    )?;
    let stock = worker.options.scaled(STOCK);
    for id in 1..=PRODUCTS {
        database.execute(
            "insert into products (id, stock, first_stock, starts_ms, ends_ms) values (?, ?, ?, 0, ?)",
            (id, stock, stock, i64::MAX),
        )?;
    }
    Ok(())
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let (database, buyers) = (supervisor.database()?, supervisor.options.scaled(BUYERS));
    supervisor.print(format!(
        "{PRODUCTS} products with {} units each; {} buyers, of whom {} press the button twice",
        grouped(supervisor.options.scaled(STOCK)),
        grouped(buyers),
        grouped(buyers.div_ceil(10))
    ));
    supervisor.start(SHOP, SHOPS)?;
    supervisor.print_metrics(SHOPS, || ports(&database, "select port from shops order by number")).await?;
    supervisor.start(PACKER, 1)?;
    supervisor.start(BUYER, 1)?;
    let presses = buyers + buyers.div_ceil(10);
    let is_over = || Ok(number(&database, "select count(*) from answers")? == presses);
    // Instances are killed while they sell: later ones hold no lock, for what is sold out needs none.
    let units = PRODUCTS * supervisor.options.scaled(STOCK);
    let sold = "select sum(first_stock - stock) from products";
    let done = || if is_over()? { Ok(units) } else { number(&database, sold) };
    supervisor.until_done(units, SHOP, done).await?;
    supervisor.print("sold out; the other buyers are told so");
    supervisor.until(is_over).await?;
    supervisor.until(|| Ok(number(&database, "select count(*) from queue")? == 0)).await
}

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        SHOP => shop::serve(worker).await,
        PACKER => packer::pack(worker).await,
        _ => buyers::buy(worker).await,
    }
}
