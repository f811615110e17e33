//! One instance of the service that takes uploads.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use leasehold::{Error, OnOutage};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior::Immediate};

use super::{COMMAND_TIMEOUT, DENY, invoice::Invoice};
use crate::{
    Result,
    http::listen,
    protection::{Mark, Protection, Run},
    worker::Worker,
};

/// How long it takes to read a file.
const PARSE: Duration = Duration::from_millis(2);

struct Intake {
    name: String,
    life: u32,
    database: Mutex<Connection>,
    protection: Protection,
    /// Whether to refuse in an outage, whatever the policy says.
    denies: bool,
}

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let before = "select port from intakes where number = ?";
    let before = worker.database()?.query_row(before, [worker.number], |row| row.get(0)).optional()?;
    let (listener, port) = listen(before).await?;
    let intake = Arc::new(Intake {
        name: worker.name(),
        life: worker.life,
        // It must also start, and answer, while the store is away.
        protection: worker.protection_at_once(|builder| builder.command_timeout(COMMAND_TIMEOUT))?,
        database: Mutex::new(worker.database()?),
        denies: worker.options.variant.as_deref() == Some(DENY),
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
/// The answers that say "not now", with 409.
pub(super) const FILE_BUSY: &str = "this file is being processed";
pub(super) const INVOICE_BUSY: &str = "another upload is being processed, please wait";

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
        let marked = self.protection.mark(
            |leases| {
                // A mark outlives an instance that was killed by the ttl of its policy, and no other can clear it.
                let ttl = leases.policies().marker("processing")?.ttl;
                Ok(leases.marker_policy("processing")?.lease_ttl(ttl))
            },
            file,
        );
        let mark = match marked.await {
            Ok(Mark::Taken) => return Ok((StatusCode::CONFLICT, FILE_BUSY)),
            Ok(mark) => mark,
            // The mark is a courtesy: the lock protects.
            Err(Error::StoreUnreachable { .. }) if !self.denies => Mark::Off,
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
                Ok(if self.denies { lock.on_outage(OnOutage::Deny) } else { lock })
            })
            .await;
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                mark.end().await;
                return match error {
                    Error::TimedOut { .. } => Ok((StatusCode::CONFLICT, INVOICE_BUSY)),
                    other => Err(other.into()),
                };
            }
        };
        let answer = self.check_and_file(invoice, &run).await;
        run.end().await;
        mark.end().await;
        answer
    }

    /// Checks for a duplicate; if there is none, stores the file, parses it, and files the invoice.
    async fn check_and_file(&self, invoice: &Invoice, run: &Run) -> Result<(StatusCode, &'static str)> {
        if run.is_unprotected() {
            let sql = "insert into unprotected select ?, ?, ?, phase from phases";
            self.database().execute(sql, (&self.name, self.life, invoice.cents - 100))?;
        }
        // Before the search: an earlier holder that resumes now could otherwise file between our search and our filing.
        if !self.open(invoice, run)? {
            return Err("the lock has had a later holder".into());
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
        tokio::time::sleep(PARSE).await;
        let file = (&invoice.file_hash, &invoice.file);
        self.database().execute("insert into files (hash, content) values (?, ?)", file)?;
        if invoice.sum() != invoice.cents {
            return Ok((StatusCode::BAD_REQUEST, "the items do not add up"));
        }
        self.file(invoice, run)
    }

    /// Writes the fence of a run; false if there is a later one. A run without a lock has none, and is not checked.
    fn open(&self, invoice: &Invoice, run: &Run) -> Result<bool> {
        let Some(fence) = run.fence() else { return Ok(true) };
        let sql = "insert into checks (account, vendor, plain_number, fence) values (?, ?, ?, ?)
                   on conflict do update set fence = excluded.fence where fence <= excluded.fence";
        let key = (&invoice.account, &invoice.vendor, invoice.plain_number(), fence);
        Ok(self.database().execute(sql, key)? > 0)
    }

    fn file(&self, invoice: &Invoice, run: &Run) -> Result<(StatusCode, &'static str)> {
        let (account, vendor, plain_number) = (&invoice.account, &invoice.vendor, invoice.plain_number());
        let mut database = self.database();
        let change = database.transaction_with_behavior(Immediate)?;
        if let Some(fence) = run.fence() {
            let sql =
                "select 1 from checks where account = ? and vendor = ? and plain_number = ? and fence <= ?";
            let is_ours =
                change.query_row(sql, (account, vendor, &plain_number, fence), |_| Ok(())).optional()?;
            is_ours.ok_or("the lock has had a later holder")?;
        }
        change.execute(
            "insert into invoices (account, number, plain_number, vendor, cents, intake, protected)
             values (?, ?, ?, ?, ?, ?, ?)",
            (
                account,
                &invoice.number,
                &plain_number,
                vendor,
                invoice.cents,
                &self.name,
                !run.is_unprotected(),
            ),
        )?;
        change.commit()?;
        Ok((StatusCode::CREATED, FILED))
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Leasehold;

    use super::*;
    use crate::database::number;

    #[tokio::test]
    async fn a_late_upload_files_nothing_once_there_is_a_later_holder() {
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch(super::super::TABLES).unwrap();
        let leases = Leasehold::connect("memory:").await.unwrap();
        let protection = Protection::new(Some(leases.clone()));
        let intake = Intake {
            name: "intake 1".into(),
            life: 0,
            database: Mutex::new(database),
            protection: protection.clone(),
            denies: true,
        };
        // As the two holders of one lock, of which the first was stopped for longer than its lease.
        let late = protection.run(|leases| Ok(leases.lock("first"))).await.unwrap();
        let present = protection.run(|leases| Ok(leases.lock("second"))).await.unwrap();
        assert!(late.fence() < present.fence());
        let invoice = Invoice::copy(7, 0);
        assert!(intake.open(&invoice, &late).unwrap());
        assert!(intake.open(&invoice, &present).unwrap());
        assert!(intake.file(&invoice, &late).is_err());
        assert!(!intake.open(&invoice, &late).unwrap());
        assert_eq!(number(&intake.database(), "select count(*) from invoices").unwrap(), 0);
        assert_eq!(intake.file(&invoice, &present).unwrap(), (StatusCode::CREATED, FILED));
    }
}
