//! One instance of the shop.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use leasehold::{Leasehold, Lock};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{PRODUCTS, STOCK_IN_KEY};
use crate::{Result, http::listen, protection::Protection, worker::Worker};

/// How long a shop takes to check an order, after it has read the stock.
const CHECK: Duration = Duration::from_millis(2);
/// The longest pause of an order for one that comes at the same time.
const MEETING: Duration = Duration::from_millis(300);

#[derive(Serialize, Deserialize)]
pub(super) struct OrderRequest {
    pub(super) product: u64,
    pub(super) buyer: u64,
}

struct Shop {
    name: String,
    database: Mutex<Connection>,
    protection: Protection,
    /// The stock is part of the lock's name, as in some designs.
    stock_in_name: bool,
    /// Of each product, an order that has read the stock and waits for another to read it too.
    waiting: [Mutex<Option<oneshot::Sender<()>>>; PRODUCTS as usize],
}

pub(super) async fn serve(worker: Worker) -> Result<()> {
    let database = worker.database()?;
    let before = "select port from shops where number = ?";
    let before = database.query_row(before, [worker.number], |row| row.get(0)).optional()?;
    let (listener, port) = listen(before).await?;
    let shop = Arc::new(Shop {
        name: worker.name(),
        protection: worker.protection().await?,
        stock_in_name: worker.options.variant.as_deref() == Some(STOCK_IN_KEY),
        database: Mutex::new(worker.database()?),
        waiting: Default::default(),
    });
    let routes = Router::new().route("/orders", post(order)).route("/metrics", get(metrics)).with_state(shop);
    database.execute("insert or replace into shops (number, port) values (?, ?)", (worker.number, port))?;
    axum::serve(listener, routes).await?;
    Ok(())
}

/// Final answers of the shop.
pub(super) const SOLD_OUT: &str = "sold out";
pub(super) const ORDERED: &str = "ordered";

async fn order(State(shop): State<Arc<Shop>>, Json(request): Json<OrderRequest>) -> (StatusCode, String) {
    match shop.order(&request).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::BAD_REQUEST, format!("cannot process the order now: {error}")),
    }
}

async fn metrics(State(shop): State<Arc<Shop>>) -> String {
    shop.protection.leases().map_or_else(String::new, |leases| leases.stats().prometheus())
}

impl Shop {
    fn database(&self) -> MutexGuard<'_, Connection> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn order(&self, request: &OrderRequest) -> Result<(StatusCode, String)> {
        let Some(stock) = self.stock_on_sale(request.product)? else {
            return Ok((StatusCode::BAD_REQUEST, "this product is not on sale".into()));
        };
        if stock == 0 && !self.has_ordered(request)? {
            return Ok((StatusCode::CONFLICT, SOLD_OUT.into()));
        }
        // Against two presses of one button, which may reach two instances.
        let buyer = [("user_id", request.buyer)];
        let Some(user) =
            self.protection.try_lock(|leases| Ok(leases.lock_policy("user")?.key(buyer))).await?
        else {
            return Ok((StatusCode::BAD_REQUEST, "another order of yours is being processed".into()));
        };
        let pass = self.protection.lock(|leases| self.product_lock(leases, request.product, stock)).await?;
        // The design with the stock in the name has no fence.
        let fence = if self.stock_in_name { i64::MAX } else { pass.fence() };
        let answer = self.sell(request, fence, stock).await;
        pass.release().await?;
        user.release().await?;
        answer
    }

    fn product_lock(&self, leases: &Leasehold, product: u64, stock: u64) -> leasehold::Result<Lock> {
        // With the stock in its name every unit has its own lock: an instance that read 7 and one that read 6 do not exclude
        // each other, although both will read the stock again and write it. It protects nothing.
        if self.stock_in_name {
            let values = [("product_id", product), ("current_stock", stock)];
            return Ok(leases.lock_policy("product-stock")?.key(values));
        }
        Ok(leases.lock_policy("product")?.key([("product_id", product)]))
    }

    /// Makes certain what is otherwise luck: that an order which holds the lock of an older stock and one which holds that of
    /// the present stock have both read before either writes. With a lock per product no two orders are here at once.
    async fn meet_another(&self, product: u64, is_late: bool) {
        let place = &self.waiting[(product - 1) as usize];
        let wait = {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(other) = place.take() {
                let _gone = other.send(());
                return;
            }
            let (here, met) = oneshot::channel();
            is_late.then(|| {
                *place = Some(here);
                met
            })
        };
        if let Some(met) = wait {
            let _alone = tokio::time::timeout(MEETING, met).await;
        }
    }

    fn stock_on_sale(&self, product: u64) -> Result<Option<u64>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        let sql = "select stock from products where id = ? and starts_ms <= ? and ends_ms > ?";
        Ok(self.database().query_row(sql, (product, now, now), |row| row.get(0)).optional()?)
    }

    fn has_ordered(&self, request: &OrderRequest) -> Result<bool> {
        let sql = "select 1 from orders where buyer = ? and product = ?";
        Ok(self.database().query_row(sql, (request.buyer, request.product), |_| Ok(())).optional()?.is_some())
    }

    /// Reads, decides, and writes under the fence. `seen` is the stock that was read before the lock.
    async fn sell(&self, request: &OrderRequest, fence: i64, seen: u64) -> Result<(StatusCode, String)> {
        // Before the read: an earlier holder that resumes now could otherwise write between our read and our write.
        let open = "update products set fence = ?1 where id = ?2 and fence <= ?1";
        if self.database().execute(open, (fence, request.product))? == 0 {
            return Err("the product's lock has had a later holder".into());
        }
        if self.has_ordered(request)? {
            return Ok((StatusCode::OK, ORDERED.into()));
        }
        let Some(stock) = self.stock_on_sale(request.product)?.filter(|stock| *stock > 0) else {
            return Ok((StatusCode::CONFLICT, SOLD_OUT.into()));
        };
        tokio::time::sleep(CHECK).await;
        if self.stock_in_name {
            self.meet_another(request.product, seen != stock).await;
        }
        let mut database = self.database();
        let change = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let sold = change.execute(
            "update products set stock = ?1, fence = ?2 where id = ?3 and fence <= ?2",
            (stock - 1, fence, request.product),
        )?;
        if sold == 0 {
            return Err("the product's lock has had a later holder".into());
        }
        change.execute(
            "insert into orders (product, buyer, status, shop) values (?, ?, 'PENDING', ?)",
            (request.product, request.buyer, &self.name),
        )?;
        change.execute("insert into queue (order_id) values (last_insert_rowid())", ())?;
        change.commit()?;
        Ok((StatusCode::OK, ORDERED.into()))
    }
}
