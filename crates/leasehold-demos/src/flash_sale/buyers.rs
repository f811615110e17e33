//! The buyers: each asks until it has an answer, whoever dies meanwhile.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Method, StatusCode};
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc};

use super::{
    BUYERS, PRODUCTS,
    shop::{ORDERED, SOLD_OUT, Wish},
};
use crate::{Result, http::Client, part::Part};

/// Buyers at the counter at the same time.
const AT_ONCE: usize = 48;

struct Told {
    wish: Wish,
    answer: &'static str,
}

pub(super) async fn buy(part: Part) -> Result<()> {
    let (tell, mut told) = mpsc::channel::<Told>(1024);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let buyers = part.options.scaled(BUYERS);
    let visits = part.clone();
    tokio::spawn(async move {
        // Every tenth presses the button twice.
        let presses =
            (0..buyers).flat_map(|buyer| std::iter::repeat_n(buyer, 1 + usize::from(buyer % 10 == 0)));
        for (visit, buyer) in presses.enumerate() {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let (part, tell) = (visits.clone(), tell.clone());
            tokio::spawn(async move {
                let wish = Wish { product: 1 + buyer % PRODUCTS, buyer };
                let answer = visit_shop(&part, &wish, visit as u64).await;
                let _director_gone = tell.send(Told { wish, answer }).await;
                drop(place);
            });
        }
    });
    let mut database = part.database()?;
    let mut some = Vec::new();
    while told.recv_many(&mut some, 256).await > 0 {
        write_down(&mut database, &some)?;
        some.clear();
    }
    Ok(())
}

fn write_down(database: &mut Connection, some: &[Told]) -> Result<()> {
    let change = database.transaction()?;
    for Told { wish, answer } in some {
        let sql = "insert into answers (buyer, product, answer) values (?, ?, ?)";
        change.execute(sql, (wish.buyer, wish.product, answer))?;
    }
    Ok(change.commit()?)
}

async fn visit_shop(part: &Part, wish: &Wish, visit: u64) -> &'static str {
    for attempt in 0.. {
        match ask(part, wish, visit + attempt).await {
            Ok(Some(answer)) => return answer,
            // Busy, or the instance died: whether it took the order is unknown. It is safe to ask again.
            Ok(None) | Err(_) => tokio::time::sleep(Duration::from_millis(5 + 10 * attempt.min(10))).await,
        }
    }
    unreachable!("a buyer never gives up")
}

async fn ask(part: &Part, wish: &Wish, number: u64) -> Result<Option<&'static str>> {
    let sql = "select port from shops order by number limit 1 offset ? % (select count(*) from shops)";
    let port: u16 = part.database()?.query_row(sql, [number], |row| row.get(0))?;
    let mut shop = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let headers = [("content-type", "application/json")];
    let (status, body) = shop.ask(Method::POST, "/orders", &headers, serde_json::to_vec(wish)?).await?;
    Ok(match (status, &body[..]) {
        (StatusCode::OK, body) if body == ORDERED.as_bytes() => Some(ORDERED),
        (StatusCode::CONFLICT, body) if body == SOLD_OUT.as_bytes() => Some(SOLD_OUT),
        _ => None,
    })
}
