//! One instance of the service that takes uploads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use leasehold::{Error, OnOutage, Policies};
use rusqlite::{Connection, OptionalExtension};
use tokio::net::TcpListener;

use super::{COMMAND_TIMEOUT, PROCEED, invoice::Invoice};
use crate::{
    Result,
    protection::{Mark, Protection, Run},
    worker::Worker,
};

/// The key schema of this design.
const POLICIES: &str = include_str!("../../policies/invoices.toml");
/// How long lock and mark outlive an instance that was killed. One that is only slow keeps them alive.
const LEASE: Duration = Duration::from_millis(1000);
const WAIT: Duration = Duration::from_secs(5);

struct Intake {
    name: String,
    life: u32,
    database: Mutex<Connection>,
    protection: Protection,
    on_outage: OnOutage,
}

pub(super) fn name(number: u64) -> String {
    format!("intake {number}")
}

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let policies = Policies::parse(POLICIES, "policies/invoices.toml")?;
    let proceeds = worker.options.variant.as_deref() == Some(PROCEED);
    let intake = Arc::new(Intake {
        name: name(worker.number as u64),
        life: worker.life,
        protection: worker
            .protection_with(|builder| builder.policies(policies.clone()).command_timeout(COMMAND_TIMEOUT))
            .await?,
        database: Mutex::new(worker.database()?),
        on_outage: if proceeds { OnOutage::Proceed } else { OnOutage::Deny },
    });
    let routes =
        Router::new().route("/invoices", post(upload)).route("/metrics", get(metrics)).with_state(intake);
    let sql = "insert or replace into intakes (number, port, life) values (?, ?, ?)";
    worker.database()?.execute(sql, (worker.number, port, worker.life))?;
    axum::serve(listener, routes).await?;
    Ok(())
}

/// The answers to an uploader.
pub(super) const FILED: &str = "filed";
pub(super) const DUPLICATE: &str = "exact duplicate";
pub(super) const NEAR_DUPLICATE: &str = "near duplicate";

async fn upload(State(intake): State<Arc<Intake>>, Json(invoice): Json<Invoice>) -> (StatusCode, String) {
    match intake.upload(&invoice).await {
        Ok((status, answer)) => (status, answer.into()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("not now: {error}")),
    }
}

async fn metrics(State(intake): State<Arc<Intake>>) -> String {
    intake.protection.leases().map_or_else(String::new, |leases| leases.stats().prometheus())
}

impl Intake {
    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn upload(&self, invoice: &Invoice) -> Result<(StatusCode, &'static str)> {
        // A person who uploads the same file again gets an answer at once.
        let file = (&invoice.account, &invoice.file_hash);
        let mark = match self
            .protection
            .mark(|leases| Ok(leases.marker_policy("processing")?.lease_ttl(LEASE)), file)
            .await
        {
            Ok(Mark::Taken) => return Ok((StatusCode::CONFLICT, "this file is being processed")),
            Ok(mark) => mark,
            // The mark is a courtesy: the lock protects.
            Err(Error::StoreUnreachable { .. }) if self.on_outage == OnOutage::Proceed => Mark::Off,
            Err(error) => return Err(error.into()),
        };
        let run = self
            .protection
            .run(|leases| {
                // Near duplicates are written differently and share a number, so they must share a lock.
                let values = [
                    ("account_id", invoice.account.clone()),
                    ("invoice_number", invoice.plain_number()),
                    ("vendor_name", invoice.vendor.clone()),
                ];
                let lock = leases.lock_policy("invoice-check")?.key(values);
                Ok(lock.ttl(LEASE).keep_alive().wait(WAIT).on_outage(self.on_outage))
            })
            .await;
        let run = match run {
            Ok(run) => run,
            Err(Error::TimedOut { .. }) => {
                return Ok((StatusCode::CONFLICT, "another upload is being processed"));
            }
            Err(error) => return Err(error.into()),
        };
        let answer = self.check_and_file(invoice, &run);
        run.end().await;
        mark.end().await;
        answer
    }

    /// Checks for a duplicate; if there is none, stores the file, parses it, and files the invoice.
    fn check_and_file(&self, invoice: &Invoice, run: &Run) -> Result<(StatusCode, &'static str)> {
        if run.is_unprotected() {
            let sql = "insert into unprotected select ?, ?, ?, phase from phases";
            self.database().execute(sql, (&self.name, self.life, invoice.cents - 100))?;
        }
        let exact = "select 1 from invoices where account = ? and vendor = ? and number = ?";
        let same = (&invoice.account, &invoice.vendor, &invoice.number);
        if self.database().query_row(exact, same, |_| Ok(())).optional()?.is_some() {
            return Ok((StatusCode::OK, DUPLICATE));
        }
        let near =
            "select 1 from invoices where account = ? and vendor = ? and plain_number = ? and cents = ?";
        let similar = (&invoice.account, &invoice.vendor, invoice.plain_number(), invoice.cents);
        if self.database().query_row(near, similar, |_| Ok(())).optional()?.is_some() {
            return Ok((StatusCode::OK, NEAR_DUPLICATE));
        }
        let file = (&invoice.file_hash, &invoice.file);
        self.database().execute("insert into files (hash, content) values (?, ?)", file)?;
        if invoice.sum() != invoice.cents {
            return Ok((StatusCode::BAD_REQUEST, "the items do not add up"));
        }
        // A process that was stopped continues here without knowing for how long.
        if !run.is_valid() {
            return Err("the lock was lost".into());
        }
        self.database().execute(
            "insert into invoices (account, number, plain_number, vendor, cents, intake, protected)
             values (?, ?, ?, ?, ?, ?, ?)",
            (
                &invoice.account,
                &invoice.number,
                invoice.plain_number(),
                &invoice.vendor,
                invoice.cents,
                &self.name,
                !run.is_unprotected(),
            ),
        )?;
        Ok((StatusCode::CREATED, FILED))
    }
}
