//! The buyers: each retries until it has an answer, whichever instance dies meanwhile.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Method, StatusCode};
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc};

use super::{
    BUYERS, PRODUCTS,
    shop::{ORDERED, OrderRequest, SOLD_OUT},
};
use crate::{Result, http::Client, worker::Worker};

/// Buyers at the counter at the same time.
const AT_ONCE: usize = 48;

struct Answered {
    request: OrderRequest,
    answer: &'static str,
}

pub(super) async fn buy(worker: Worker) -> Result<()> {
    let (tell, mut told) = mpsc::channel::<Answered>(1024);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let buyers = worker.options.scaled(BUYERS);
    let visits = worker.clone();
    tokio::spawn(async move {
        // Every tenth presses the button twice.
        let presses =
            (0..buyers).flat_map(|buyer| std::iter::repeat_n(buyer, 1 + usize::from(buyer % 10 == 0)));
        for (visit, buyer) in presses.enumerate() {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let (worker, tell) = (visits.clone(), tell.clone());
            tokio::spawn(async move {
                let request = OrderRequest { product: 1 + buyer % PRODUCTS, buyer };
                let answer = visit_shop(&worker, &request, visit as u64).await;
                let _supervisor_gone = tell.send(Answered { request, answer }).await;
                drop(place);
            });
        }
    });
    let mut database = worker.database()?;
    let mut some = Vec::new();
    while told.recv_many(&mut some, 256).await > 0 {
        write_down(&mut database, &some)?;
        some.clear();
    }
    Ok(())
}

fn write_down(database: &mut Connection, some: &[Answered]) -> Result<()> {
    let change = database.transaction()?;
    for Answered { request, answer } in some {
        let sql = "insert into answers (buyer, product, answer) values (?, ?, ?)";
        change.execute(sql, (request.buyer, request.product, answer))?;
    }
    Ok(change.commit()?)
}

async fn visit_shop(worker: &Worker, request: &OrderRequest, visit: u64) -> &'static str {
    for attempt in 0.. {
        match ask(worker, request, visit + attempt).await {
            Ok(Some(answer)) => return answer,
            // Busy, or the instance died: whether it took the order is unknown. It is safe to ask again.
            Ok(None) | Err(_) => tokio::time::sleep(Duration::from_millis(5 + 10 * attempt.min(10))).await,
        }
    }
    unreachable!("a buyer never gives up")
}

async fn ask(worker: &Worker, request: &OrderRequest, number: u64) -> Result<Option<&'static str>> {
    let sql = "select port from shops order by number limit 1 offset ? % (select count(*) from shops)";
    let port: u16 = worker.database()?.query_row(sql, [number], |row| row.get(0))?;
    let mut shop = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let headers = [("content-type", "application/json")];
    let (status, body) = shop.ask(Method::POST, "/orders", &headers, serde_json::to_vec(request)?).await?;
    Ok(match (status, &body[..]) {
        (StatusCode::OK, body) if body == ORDERED.as_bytes() => Some(ORDERED),
        (StatusCode::CONFLICT, body) if body == SOLD_OUT.as_bytes() => Some(SOLD_OUT),
        _ => None,
    })
}
