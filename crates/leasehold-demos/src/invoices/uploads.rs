//! The uploaders: 200 at once, each retries until it has a final answer.

use std::{io::Write, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Method, StatusCode, body::Bytes};
use tokio::sync::{Semaphore, mpsc};

use super::{
    COPIES, IN_OUTAGE, INVOICES, NEW,
    intake::{DUPLICATE, FILE_BUSY, FILED, INVOICE_BUSY, NEAR_DUPLICATE},
    invoice::Invoice,
};
use crate::{Result, http::Client, worker::Worker};

const AT_ONCE: usize = 200;

/// An upload that has its final answer.
struct Answered {
    invoice: u64,
    answer: &'static str,
    /// How often it was told 409 before, because of the same file, and because of the same invoice.
    busy: [u64; 2],
}

pub(super) async fn upload(worker: Worker) -> Result<()> {
    let (tell, mut told) = mpsc::channel::<Answered>(1024);
    let uploads = worker.options.scaled(INVOICES) * COPIES;
    let worker = Arc::new(worker);
    let half = worker.clone();
    tokio::spawn(async move {
        // Copies of one invoice follow each other, so they are uploaded at the same time.
        upload_some(&half, 0..uploads / 2, &tell).await;
        if phase(&half).await == 2 {
            if let Err(error) = in_outage(&half).await {
                let _log = writeln!(std::io::stderr(), "in the outage: {error}");
            }
            while phase(&half).await < 3 {
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
        upload_some(&half, uploads / 2..uploads, &tell).await;
    });
    let mut database = worker.database()?;
    let mut some = Vec::new();
    while told.recv_many(&mut some, 256).await > 0 {
        let change = database.transaction()?;
        for Answered { invoice, answer, busy: [file, other] } in some.drain(..) {
            let sql = "insert into uploads (invoice, answer, file_busy, invoice_busy) values (?, ?, ?, ?)";
            change.execute(sql, (invoice, answer, file, other))?;
        }
        change.commit()?;
    }
    Ok(())
}

const POLL_EVERY: Duration = Duration::from_millis(20);

/// The phase after the first: the outage, or the second half of the uploads.
async fn phase(worker: &Worker) -> u32 {
    loop {
        let phase = worker.database().and_then(|database| {
            Ok(database.query_row("select phase from phases", [], |row| row.get::<_, u32>(0))?)
        });
        match phase {
            Ok(phase) if phase > 1 => return phase,
            _ => tokio::time::sleep(POLL_EVERY).await,
        }
    }
}

async fn upload_some(worker: &Arc<Worker>, some: std::ops::Range<u64>, tell: &mpsc::Sender<Answered>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    for upload in some {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let (worker, tell) = (worker.clone(), tell.clone());
        tokio::spawn(async move {
            let (invoice, copy) = (upload / COPIES, upload % COPIES);
            let (answer, busy) = until_answered(&worker, &Invoice::copy(invoice, copy), upload).await;
            let _supervisor_gone = tell.send(Answered { invoice, answer, busy }).await;
            drop(place);
        });
    }
    let _all = room.acquire_many(AT_ONCE as u32).await;
}

async fn until_answered(worker: &Worker, invoice: &Invoice, upload: u64) -> (&'static str, [u64; 2]) {
    let mut busy = [0; 2];
    for attempt in 0.. {
        // An error means that the instance died: it is safe to upload again.
        if let Ok((status, body, _)) = ask(worker, invoice, upload + attempt).await {
            let said = |answer: &&str| body == answer.as_bytes();
            match [FILED, DUPLICATE, NEAR_DUPLICATE].into_iter().find(said) {
                Some(answer) if status.is_success() => return (answer, busy),
                _ => {}
            }
            if let Some(kind) = [FILE_BUSY, INVOICE_BUSY].iter().position(said) {
                busy[kind] += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(10 + 20 * attempt.min(10))).await;
    }
    unreachable!("an uploader never gives up")
}

/// Uploads new invoices while the store is unreachable.
async fn in_outage(worker: &Worker) -> Result<()> {
    let invoices: Vec<_> = (0..IN_OUTAGE).map(|upload| Invoice::copy(NEW + upload, 0)).collect();
    let asked = invoices.iter().zip(0..).map(|(invoice, upload)| ask(worker, invoice, upload));
    for (answer, upload) in futures_util::future::join_all(asked).await.into_iter().zip(0_u64..) {
        let (status, _, intake) = answer?;
        let sql = "insert into in_outage values (?, ?, ?)";
        worker.database()?.execute(sql, (upload, status.as_u16(), intake))?;
    }
    Ok(())
}

/// Asks one of the instances; returns its number too.
async fn ask(worker: &Worker, invoice: &Invoice, number: u64) -> Result<(StatusCode, Bytes, u64)> {
    let sql =
        "select port, number from intakes order by number limit 1 offset ? % (select count(*) from intakes)";
    let (port, intake_number): (u16, u64) =
        worker.database()?.query_row(sql, [number], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut intake = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let headers = [("content-type", "application/json")];
    let (status, body) =
        intake.ask(Method::POST, "/invoices", &headers, serde_json::to_vec(invoice)?).await?;
    Ok((status, body, intake_number))
}
