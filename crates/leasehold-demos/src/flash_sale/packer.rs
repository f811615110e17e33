//! Takes orders from the queue and confirms them. If it is killed in between, it confirms the same order again, which is
//! idempotent.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior::Immediate};

use crate::{Result, worker::Worker};

pub(super) async fn pack(worker: Worker) -> Result<()> {
    let mut database = worker.database()?;
    loop {
        if !pack_one(&mut database)? {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn pack_one(database: &mut Connection) -> Result<bool> {
    let change = database.transaction_with_behavior(Immediate)?;
    let sql = "select order_id from queue order by rowid limit 1";
    let Some(order) = change.query_row(sql, [], |row| row.get::<_, u64>(0)).optional()? else {
        return Ok(false);
    };
    change.execute("update orders set status = 'CONFIRMED' where id = ?", [order])?;
    change.execute("delete from queue where order_id = ?", [order])?;
    change.commit()?;
    Ok(true)
}
