//! One instance of the escrow service: transitions of deals over HTTP, and beside them the cashiers, the poller of the
//! outbox and the reconciler.

use std::sync::Arc;

use super::{
    books::Books,
    cashier::Cashier,
    database::{Database, Statements, values},
    keys,
    outbox::Poller,
    reconciliation::Reconciler,
    state::State,
};
use crate::{Result, http::listen, protection::Protection, worker::Worker};
use axum::{
    Router,
    extract::{Path, State as Shared},
    http::StatusCode,
    routing::{get, post},
};

const CASHIERS: usize = 4;

struct Service {
    books: Books,
    protection: Protection,
}

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let (database, name) = (Database::open(&worker)?, worker.name());
    let (listener, port) = listen(super::port_of(&database, &name)?).await?;
    let protection = worker.protection().await?;
    let books = || Database::open(&worker).map(|database| Books::new(database, &name));
    let bank = super::port_of(&database, super::BANK)?.ok_or("the bank does not listen")?;
    for _ in 0..CASHIERS {
        tokio::spawn(Cashier { books: books()?, protection: protection.clone(), bank }.work());
    }
    tokio::spawn(Poller { books: books()?, protection: protection.clone() }.work());
    tokio::spawn(Reconciler { books: books()?, protection: protection.clone() }.work());
    database.execute(super::LISTENS, &values![&*name, u64::from(port)])?;
    let routes = Router::new()
        .route("/deals/{deal}", get(look))
        .route("/deals/{deal}/{step}", post(step))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Service { books: books()?, protection }));
    axum::serve(listener, routes).await?;
    Ok(())
}

type Answer = (StatusCode, String);

/// The response to a client whose deal is locked by another request.
pub(super) const BUSY: &str = "busy";

async fn look(Shared(service): Shared<Arc<Service>>, Path(deal): Path<u64>) -> Answer {
    match service.books.state_of(deal) {
        Ok(Some(state)) => (StatusCode::OK, state),
        Ok(None) => (StatusCode::NOT_FOUND, "no such deal".into()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

async fn step(Shared(service): Shared<Arc<Service>>, Path((deal, step)): Path<(u64, String)>) -> Answer {
    let to = match step.as_str() {
        "deliver" => State::Delivered,
        "accept" => State::Accepted,
        "dispute" => State::Disputed,
        _ => return (StatusCode::NOT_FOUND, "deals are delivered, accepted or disputed".into()),
    };
    match service.step(deal, to).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

async fn metrics(Shared(service): Shared<Arc<Service>>) -> String {
    service.protection.leases().map_or_else(String::new, |leases| leases.stats().prometheus())
}

impl Service {
    async fn step(&self, id: u64, to: State) -> Result<Answer> {
        let lock = |leases: &_| keys::lock(leases, "deal", Some(("deal_id", id)));
        let pass = match self.protection.lock(lock).await {
            Ok(pass) => pass,
            Err(leasehold::Error::TimedOut { .. }) => return Ok((StatusCode::CONFLICT, BUSY.into())),
            Err(error) => return Err(error.into()),
        };
        let Some(deal) = self.books.open_deal(id, &pass)? else {
            // There is none, or it was opened by a later holder.
            return Ok(match self.books.state_of(id)? {
                None => (StatusCode::NOT_FOUND, "no such deal".into()),
                Some(_) => (StatusCode::CONFLICT, BUSY.into()),
            });
        };
        let answer = if deal.state.may_become(to) {
            self.books.change(&deal, to, &[])?;
            (StatusCode::OK, to.to_string())
        } else {
            (StatusCode::CONFLICT, deal.state.to_string())
        };
        pass.release().await?;
        Ok(answer)
    }
}
