//! Uploads of invoices: the same one comes several times, at the same moment, to several instances, and the store of the
//! locks is unreachable for a while.
//!
//! An instance checks for a duplicate, finds none, and files the invoice. Two that do so at the same time file it twice,
//! unless one of them waits.

mod intake;
mod invoice;
mod judge;
mod uploads;

use std::{net::SocketAddr, time::Duration};

use hyper::Method;
use rusqlite::Connection;

use crate::{
    Demo, Result,
    database::number,
    http::Client,
    supervisor::{Options, Supervisor},
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "invoices",
    line: "200 uploads at once, each invoice several times, and an outage of the store in the middle",
    without: "two uploads of one invoice checked for a duplicate at the same time, and neither saw the other",
    has_outage: true,
    has_records: true,
    variants: &["deny", PROCEED],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
};

const INVOICES: u64 = 1000;
/// How often each one is uploaded.
const COPIES: u64 = 4;
/// Uploads while the store is unreachable.
const IN_OUTAGE: u64 = 12;
/// The first of them; no other upload has these invoices.
const NEW: u64 = 1_000_000;

const INTAKE: &str = "intake";
const UPLOADS: &str = "uploads";

/// The variant that continues without protection when the store is unreachable.
const PROCEED: &str = "proceed";

fn set_up(database: &mut Connection, _: &Options) -> Result<()> {
    Ok(database.execute_batch(
        "create table invoices (id integer primary key, account text, number text, plain_number text,
                                vendor text, cents integer, intake text, protected integer);
         create index invoices_of_accounts on invoices (account, vendor);
         create table files (hash text, content text);
         create table intakes (number integer primary key, port integer, life integer);
         create table uploads (invoice integer, answer text);
         create table refusals (upload integer);
         create table unprotected (intake text, life integer, invoice integer, phase integer);
         create table metrics (intake text, life integer, unprotected integer);
         create table phases (phase integer, had_outage integer);
         insert into phases values (1, 0);",
    )?)
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let uploads = supervisor.options.scaled(INVOICES) * COPIES;
    let proceeds = supervisor.options.variant.as_deref() == Some(PROCEED);
    let rule = if proceeds { "continues without protection, and counts it" } else { "refuses" };
    supervisor.print(format!(
        "{uploads} uploads of {} invoices; in an outage an instance {rule}",
        uploads / COPIES
    ));
    supervisor.start(INTAKE, 3)?;
    supervisor.start(UPLOADS, 1)?;
    let answers = |database: &Connection| number(database, "select count(*) from uploads");
    supervisor.until_reached(uploads, uploads / 2, INTAKE, answers).await?;
    if !supervisor.options.r#unsafe {
        outage(supervisor).await?;
    }
    supervisor.database.execute("update phases set phase = 3", ())?;
    supervisor.until_reached(uploads, uploads, INTAKE, answers).await
}

/// Makes the store unreachable while uploads continue, then scrapes from every instance how often it continued.
async fn outage(supervisor: &mut Supervisor) -> Result<()> {
    // An instance that was just killed would wait for the store, and could not answer meanwhile.
    let lives = supervisor.workers.lives(INTAKE);
    let sql = "select count(*) from intakes where number = ? and life = ?";
    let is_there = |database: &Connection, life: &(usize, u32)| {
        database.query_row(sql, *life, |row| row.get::<_, u64>(0)).map(|there| there == 1)
    };
    supervisor
        .until(|database| {
            let there = lives.iter().map(|life| is_there(database, life));
            Ok(there.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().all(|there| there))
        })
        .await?;
    let Some(outage) = supervisor.switch.cut()? else {
        supervisor.print("no outage: it requires the embedded store or a redis:// URL");
        return Ok(());
    };
    supervisor.print("the store is unreachable");
    supervisor.database.execute("update phases set phase = 2, had_outage = 1", ())?;
    let answered = |database: &Connection| {
        let sql = "select (select count(*) from refusals) +
                   (select count(*) from unprotected where invoice >= ?)";
        database.query_row(sql, [NEW], |row| row.get::<_, u64>(0))
    };
    supervisor.until(|database| Ok(answered(database)? >= IN_OUTAGE)).await?;
    drop(outage);
    supervisor.print("the store is back");
    let mut intakes = supervisor.database.prepare("select number, port, life from intakes")?;
    let intake = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let intakes: Vec<(u64, u16, u32)> = intakes.query_map([], intake)?.collect::<rusqlite::Result<_>>()?;
    for (number, port, life) in intakes {
        let metrics = (intake::name(number), life, scrape(port).await?);
        supervisor.database.execute("insert into metrics values (?, ?, ?)", metrics)?;
    }
    Ok(())
}

/// The metric of an instance about runs without protection.
async fn scrape(port: u16) -> Result<u64> {
    let mut intake = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let (_, text) = intake.ask(Method::GET, "/metrics", &[], "").await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("leasehold_degraded_total "));
    Ok(line.ok_or("no such metric")?.parse()?)
}

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        INTAKE => intake::serve(worker).await,
        _ => uploads::upload(worker).await,
    }
}

/// How long a call may take before the store counts as unreachable.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(700);
