//! The sellers and the buyers: they bring each deal from its deposit to its end.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{Method, StatusCode};
use tokio::sync::{Semaphore, mpsc};

use super::{
    SERVICE, SERVICES, bank,
    database::{Database, Statements, values},
    port_of,
    service::BUSY,
    state::State::{self, Created, Delivered, Funded},
};
use crate::{Result, http::Client, worker::Worker};

/// Deals under way at the same time.
const AT_ONCE: usize = 40;
/// How often traders poll the state of their deal.
const POLL_EVERY: Duration = Duration::from_millis(120);
/// After this time without a change a deal is given up, and counts as never ended.
const PATIENCE: Duration = Duration::from_secs(75);

struct Ended {
    deal: u64,
    state: String,
    busy: u64,
}

pub(super) async fn trade(worker: Worker) -> Result<()> {
    let (tell, mut told) = mpsc::channel::<Ended>(256);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let database = Arc::new(Database::open(&worker)?);
    let deals = database.rows("select id from deals order by id", &[])?;
    let deals: Vec<u64> = deals.iter().map(|row| row.count(0)).collect::<Result<_>>()?;
    let shared = database.clone();
    tokio::spawn(async move {
        for deal in deals {
            let Ok(place) = room.clone().acquire_owned().await else { return };
            let (database, tell) = (shared.clone(), tell.clone());
            tokio::spawn(async move {
                let mut trader = Trader::new(database, deal);
                let state = trader.trade().await;
                let _supervisor_gone = tell.send(Ended { deal, state, busy: trader.busy }).await;
                drop(place);
            });
        }
    });
    while let Some(Ended { deal, state, busy }) = told.recv().await {
        let sql = "insert into ended (deal, state, busy) values (?1, ?2, ?3) on conflict (deal) do nothing";
        database.execute(sql, &values![deal, &*state, busy])?;
    }
    Ok(())
}

struct Trader {
    database: Arc<Database>,
    deal: u64,
    /// Chooses the instance to ask.
    asked: u64,
    /// The instance that answered last.
    service: Option<Client>,
    /// How often an instance answered that the deal is busy.
    busy: u64,
}

impl Trader {
    fn new(database: Arc<Database>, deal: u64) -> Self {
        Self { database, deal, asked: deal, service: None, busy: 0 }
    }

    /// Takes the next step of the deal until it has ended.
    async fn trade(&mut self) -> String {
        let mut is_paid = false;
        let mut last = (Created.to_string(), Instant::now());
        while last.1.elapsed() < PATIENCE {
            is_paid = is_paid || bank::deposit(&self.database, self.deal).is_ok();
            // An error is like no answer: the instance died, and another one will answer.
            if let Ok((StatusCode::OK, state)) = self.ask(Method::GET, "").await {
                let known = State::parse(&state);
                if state != last.0 {
                    last = (state, Instant::now());
                }
                match known {
                    Some(state) if state.is_final() => break,
                    Some(Funded) => self.step("/deliver").await,
                    Some(Delivered) => self.decide().await,
                    _ => {}
                }
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        last.0
    }

    /// Half of the buyers accept, a quarter dispute, and a quarter do both, in two windows.
    async fn decide(&mut self) {
        match self.deal % 4 {
            0 => {
                let mut other = Self::new(self.database.clone(), self.deal);
                tokio::join!(self.step("/accept"), other.step("/dispute"));
                self.busy += other.busy;
            }
            1 => self.step("/dispute").await,
            _ => self.step("/accept").await,
        }
    }

    async fn step(&mut self, step: &str) {
        if let Ok((StatusCode::CONFLICT, why)) = self.ask(Method::POST, step).await {
            self.busy += u64::from(why == BUSY);
        }
    }

    async fn ask(&mut self, method: Method, step: &str) -> Result<(StatusCode, String)> {
        let mut service = match self.service.take() {
            Some(service) => service,
            None => self.another_service()?,
        };
        let path = format!("/deals/{}{step}", self.deal);
        let (status, body) = service.ask(method, &path, &[], "").await?;
        self.service = Some(service);
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn another_service(&mut self) -> Result<Client> {
        self.asked += 1;
        let name = format!("{SERVICE} {}", self.asked % SERVICES + 1);
        let port = port_of(&self.database, &name)?.ok_or("it does not listen yet")?;
        Ok(Client::new(SocketAddr::from(([127, 0, 0, 1], port))))
    }
}
