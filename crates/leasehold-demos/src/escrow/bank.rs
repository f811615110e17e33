//! The bank: records deposits, announces them, and approves every payment.
//!
//! It is another system. A caller that asks it between reading a balance and writing it cannot exclude others with a
//! database transaction: that takes a lock.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Path, State as Shared},
    http::StatusCode,
    routing::get,
};
use hyper::Method;
use tokio::net::TcpListener;

use super::{
    broker,
    database::{Database, Statements, values},
};
use crate::{Result, http::Client, worker::Worker};

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (port, database) = (listener.local_addr()?.port(), Database::open(&worker)?);
    database.execute(super::LISTENS, &values![&*worker.role, u64::from(port)])?;
    let routes = Router::new()
        .route("/deposits/{tx_hash}", get(amount))
        .route("/fees/{amount}", get(fee))
        .with_state(Arc::new(database));
    axum::serve(listener, routes).await?;
    Ok(())
}

async fn amount(
    Shared(database): Shared<Arc<Database>>,
    Path(tx_hash): Path<String>,
) -> (StatusCode, String) {
    let found = database.row("select amount from bank where tx_hash = ?1", &values![&*tx_hash]);
    match found.and_then(|row| row.map(|row| row.number(0)).transpose()) {
        Ok(Some(amount)) => (StatusCode::OK, amount.to_string()),
        Ok(None) => (StatusCode::NOT_FOUND, "no such deposit".into()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn fee(Path(amount): Path<i64>) -> String {
    (amount / 100).to_string()
}

/// Asks the bank for a number.
pub(super) async fn ask(port: u16, path: &str) -> Result<i64> {
    let mut bank = Client::new(SocketAddr::from(([127, 0, 0, 1], port)));
    let (status, body) = bank.ask(Method::GET, path, &[], "").await?;
    let body = String::from_utf8_lossy(&body);
    if status != StatusCode::OK {
        return Err(format!("the bank answers {status}: {body}").into());
    }
    Ok(body.parse()?)
}

/// A buyer has paid. The bank announces it twice, as banks do. It may be asked again, for its answer may be lost.
pub(super) fn deposit(database: &Database, deal: u64) -> Result<()> {
    let tx_hash = format!("tx-{deal}");
    let sql = "insert into bank (tx_hash, deal, amount) select ?1, id, amount from deals
               where id = ?2 and not exists (select 1 from bank where tx_hash = ?1)";
    database.transaction(&[], |change| {
        if change.execute(sql, &values![&*tx_hash, deal])? > 0 {
            for _ in 0..2 {
                broker::send(change, "deposit", deal, &tx_hash, 0)?;
            }
        }
        Ok(())
    })
}
