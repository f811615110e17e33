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
    Demo, Result, Topology,
    database::{number, ports},
    http::Client,
    policy::PolicyFile,
    show::grouped,
    supervisor::Supervisor,
    worker::Worker,
};

pub(crate) static DEMO: Demo = Demo {
    name: "invoices",
    line: "1,000 invoices, four uploads of each at once, and an outage of the store in the middle",
    protects: "each invoice filed once",
    without: "two uploads of one invoice checked for a duplicate at the same time, and neither saw the other",
    has_outage: true,
    has_records: true,
    policies: PolicyFile {
        name: "invoices.toml",
        text: include_str!("../../policies/invoices.toml"),
        ttl_variable: None,
    },
    topologies: &[Topology::Sentinel, Topology::Cluster],
    variants: &[PROCEED, DENY],
    set_up,
    supervise: |supervisor| Box::pin(supervise(supervisor)),
    work: |worker| Box::pin(work(worker)),
    judge: judge::judge,
    tear_down: |_| Ok(()),
};

const INVOICES: u64 = 1000;
/// How often each one is uploaded.
const COPIES: u64 = 4;
/// Uploads while the store is unreachable.
const IN_OUTAGE: u64 = 12;
/// The first of them; no other upload has these invoices.
const NEW: u64 = 1_000_000;

const INTAKES: usize = 3;

const INTAKE: &str = "intake";
const UPLOADS: &str = "uploads";

/// The variant that continues without protection when the store is unreachable, as the policy file says.
const PROCEED: &str = "proceed";
/// The variant that refuses then.
const DENY: &str = "deny";

const TABLES: &str = "
    create table invoices (id integer primary key, account text, number text, plain_number text,
                           vendor text, cents integer, intake text, protected integer);
    create index invoices_of_accounts on invoices (account, vendor);
    create table files (hash text, content text);
    create table intakes (number integer primary key, port integer, life integer);
    create table checks (account text, vendor text, plain_number text, fence integer,
                         primary key (account, vendor, plain_number));
    create table uploads (invoice integer, answer text, file_busy integer, invoice_busy integer);
    create table in_outage (upload integer, status integer, intake integer);
    create table started_in_outage (intake integer);
    create table unprotected (intake text, life integer, invoice integer, phase integer);
    create table metrics (intake text, life integer, unprotected integer);
    create table phases (phase integer, had_outage integer);
    insert into phases values (1, 0);";

fn set_up(worker: &Worker) -> Result<()> {
    Ok(worker.database()?.execute_batch(TABLES)?)
}

async fn supervise(supervisor: &mut Supervisor) -> Result<()> {
    let (database, uploads) = (supervisor.database()?, supervisor.options.scaled(INVOICES) * COPIES);
    let (all, invoices) = (grouped(uploads), grouped(uploads / COPIES));
    supervisor.print(format!("{all} uploads of {invoices} invoices, 200 at once"));
    supervisor.start(INTAKE, INTAKES)?;
    supervisor
        .print_metrics(INTAKES, || ports(&database, "select port from intakes order by number"))
        .await?;
    supervisor.start(UPLOADS, 1)?;
    let answers = || number(&database, "select count(*) from uploads");
    supervisor.until_reached(uploads, uploads / 2, INTAKE, answers).await?;
    outage(supervisor, &database).await?;
    database.execute("update phases set phase = 3", ())?;
    supervisor.until_reached(uploads, uploads, INTAKE, answers).await
}

/// Makes the store unreachable while uploads continue and an instance starts, then scrapes from every instance how often it
/// continued.
async fn outage(supervisor: &mut Supervisor, database: &Connection) -> Result<()> {
    until_all_serve(supervisor, database).await?;
    let cut = supervisor.switch.cut()?;
    // Servers of --topology fail one by one; the same run without coordination has no outage either.
    if cut.is_none() && (!supervisor.options.r#unsafe || supervisor.options.topology.is_some()) {
        supervisor
            .print("no outage: it requires the embedded store, or a redis:// or postgres:// URL without TLS");
        return Ok(());
    }
    let denies = supervisor.options.variant.as_deref() == Some(DENY);
    let rule = match (supervisor.options.r#unsafe, denies) {
        (true, _) => "no difference, for nothing asks it",
        (false, true) => "uploads are refused with 503",
        (false, false) => "uploads go on without protection, and are counted",
    };
    supervisor.show.fault("the store is unreachable", rule);
    if supervisor.kills < supervisor.options.kills {
        let before = supervisor.workers.lives(INTAKE);
        supervisor.kill(INTAKE).await?;
        until_all_serve(supervisor, database).await?;
        let after = supervisor.workers.lives(INTAKE);
        if let Some((intake, _)) = after.iter().find(|life| !before.contains(life)) {
            supervisor.print(format!("intake {intake} has started without the store, and answers"));
            database.execute("insert into started_in_outage values (?)", [intake])?;
        }
    }
    database.execute("update phases set phase = 2, had_outage = 1", ())?;
    let answered = "select count(*) from in_outage";
    supervisor.until(|| Ok(number(database, answered)? >= IN_OUTAGE)).await?;
    drop(cut);
    supervisor.print("the store is back");
    if supervisor.options.r#unsafe {
        return Ok(());
    }
    let mut intakes = database.prepare("select number, port, life from intakes")?;
    let intake = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let intakes: Vec<(u64, u16, u32)> = intakes.query_map([], intake)?.collect::<rusqlite::Result<_>>()?;
    for (number, port, life) in intakes {
        let metrics = (format!("{INTAKE} {number}"), life, scrape(port).await?);
        database.execute("insert into metrics values (?, ?, ?)", metrics)?;
    }
    Ok(())
}

/// Waits for instances that were started again.
async fn until_all_serve(supervisor: &Supervisor, database: &Connection) -> Result<()> {
    let lives = supervisor.workers.lives(INTAKE);
    let sql = "select count(*) from intakes where number = ? and life = ?";
    let is_there = |life: &(usize, u32)| {
        database.query_row(sql, *life, |row| row.get::<_, u64>(0)).map(|there| there == 1)
    };
    supervisor
        .until(|| {
            let there = lives.iter().map(is_there);
            Ok(there.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().all(|there| there))
        })
        .await
}

/// The metric of an instance about runs without protection, of all its policies.
async fn scrape(port: u16) -> Result<u64> {
    let mut intake = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let (_, text) = intake.ask(Method::GET, "/metrics", &[], "").await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("leasehold_degraded_total")).collect();
    let numbers = lines.iter().filter_map(|line| line.rsplit(' ').next());
    if lines.is_empty() {
        Err("no such metric".into())
    } else {
        Ok(numbers.map(str::parse::<u64>).sum::<Result<u64, _>>()?)
    }
}

async fn work(worker: Worker) -> Result<()> {
    match worker.role.as_str() {
        INTAKE => intake::serve(worker).await,
        _ => uploads::upload(worker).await,
    }
}

/// How long a call may take before the store counts as unreachable.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(700);
