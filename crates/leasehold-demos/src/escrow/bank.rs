//! The bank: records deposits, announces them, and approves every payment.
//!
//! It is another system. A caller that asks it between reading a balance and writing it cannot exclude others with a
//! database transaction: that takes a lock.

use std::net::SocketAddr;

use axum::{
    Router,
    extract::{Path, State as Shared},
    http::StatusCode,
    routing::get,
};
use hyper::Method;
use rusqlite::{Connection, OptionalExtension};
use tokio::net::TcpListener;

use super::broker;
use crate::{Result, http::Client, worker::Worker};

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let sql = "insert or replace into addresses (name, port) values (?, ?)";
    worker.database()?.execute(sql, (&worker.role, port))?;
    let routes = Router::new()
        .route("/deposits/{tx_hash}", get(amount))
        .route("/fees/{amount}", get(fee))
        .with_state(worker);
    axum::serve(listener, routes).await?;
    Ok(())
}

async fn amount(Shared(worker): Shared<Worker>, Path(tx_hash): Path<String>) -> (StatusCode, String) {
    let found = worker.database().and_then(|database| {
        let sql = "select amount from bank where tx_hash = ?";
        Ok(database.query_row(sql, [tx_hash], |row| row.get::<_, i64>(0)).optional()?)
    });
    match found {
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

/// A buyer has paid. The bank announces it twice, as banks do.
pub(super) fn deposit(database: &mut Connection, deal: u64) -> Result<()> {
    let change = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let sql = "select amount from deals where id = ?";
    let amount: i64 = change.query_row(sql, [deal], |row| row.get(0))?;
    let tx_hash = format!("tx-{deal}");
    change.execute("insert into bank (tx_hash, deal, amount) values (?, ?, ?)", (&tx_hash, deal, amount))?;
    for _ in 0..2 {
        broker::send(&change, "deposit", deal, &tx_hash, 0)?;
    }
    Ok(change.commit()?)
}
