//! The uploaders: 200 at once, each retries until it has a final answer.

use std::{io::Write, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Method, StatusCode};
use tokio::sync::{Semaphore, mpsc};

use super::{
    COPIES, IN_OUTAGE, INVOICES, NEW,
    intake::{DUPLICATE, FILED, NEAR_DUPLICATE},
    invoice::Invoice,
};
use crate::{Result, http::Client, worker::Worker};

const AT_ONCE: usize = 200;

pub(super) async fn upload(worker: Worker) -> Result<()> {
    let (tell, mut told) = mpsc::channel::<(u64, &'static str)>(1024);
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
        for (invoice, answer) in some.drain(..) {
            change.execute("insert into uploads (invoice, answer) values (?, ?)", (invoice, answer))?;
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

async fn upload_some(
    worker: &Arc<Worker>,
    some: std::ops::Range<u64>,
    tell: &mpsc::Sender<(u64, &'static str)>,
) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    for upload in some {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let (worker, tell) = (worker.clone(), tell.clone());
        tokio::spawn(async move {
            let (invoice, copy) = (upload / COPIES, upload % COPIES);
            let answer = until_answered(&worker, &Invoice::copy(invoice, copy), upload).await;
            let _supervisor_gone = tell.send((invoice, answer)).await;
            drop(place);
        });
    }
    let _all = room.acquire_many(AT_ONCE as u32).await;
}

async fn until_answered(worker: &Worker, invoice: &Invoice, upload: u64) -> &'static str {
    for attempt in 0.. {
        // Busy, or the instance died: it is safe to upload again.
        if let Ok((_, Some(answer))) = ask(worker, invoice, upload + attempt).await {
            return answer;
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
        if answer?.0 == StatusCode::SERVICE_UNAVAILABLE {
            worker.database()?.execute("insert into refusals values (?)", [upload])?;
        }
    }
    Ok(())
}

async fn ask(worker: &Worker, invoice: &Invoice, number: u64) -> Result<(StatusCode, Option<&'static str>)> {
    let sql = "select port from intakes order by number limit 1 offset ? % (select count(*) from intakes)";
    let port: u16 = worker.database()?.query_row(sql, [number], |row| row.get(0))?;
    let mut intake = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let headers = [("content-type", "application/json")];
    let (status, body) =
        intake.ask(Method::POST, "/invoices", &headers, serde_json::to_vec(invoice)?).await?;
    let known = [FILED, DUPLICATE, NEAR_DUPLICATE].into_iter().find(|answer| body == answer.as_bytes());
    Ok((status, known.filter(|_| status.is_success())))
}
