//! A database that refuses a late writer: open the row under the fence, then read, then write.
//! `cargo run --example fenced_sql`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use leasehold::{Fence, Leasehold};
use rusqlite::{Connection, params};

/// Takes 30 from the account, unless somebody with a later fence has opened it.
fn withdraw(db: &mut Connection, fence: Fence) -> rusqlite::Result<bool> {
    let transaction = db.transaction()?;
    // First the fence. From here on an earlier holder changes nothing, and what is read below is not outdated.
    let open =
        format!("UPDATE accounts SET fence = ?1 WHERE id = 7 AND {}", Fence::sql_condition("fence", "?1"));
    if transaction.execute(&open, [fence.as_i64()])? == 0 {
        return Ok(false);
    }
    let balance: i64 =
        transaction.query_row("SELECT balance FROM accounts WHERE id = 7", [], |row| row.get(0))?;
    transaction.execute("UPDATE accounts SET balance = ?1 WHERE id = 7", params![balance - 30])?;
    transaction.commit()?;
    Ok(true)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let mut db = Connection::open_in_memory()?;
    db.execute_batch("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)")?;
    db.execute("INSERT INTO accounts VALUES (7, 100, NULL)", [])?;
    let leases = Leasehold::connect("memory:").await?;

    // A holder that is paused for longer than its lease, and the next one.
    let paused = leases.lock("account:7").ttl(Duration::from_millis(100)).acquire().await?;
    paused.lost().await;
    let next = leases.lock("account:7").acquire().await?;
    assert!(withdraw(&mut db, next.fence())?);
    assert!(!withdraw(&mut db, paused.fence())?, "the late write bounces");

    let balance: i64 = db.query_row("SELECT balance FROM accounts", [], |row| row.get(0))?;
    println!("balance {balance}; the paused holder: {:?}", paused.release().await?);
    assert_eq!(balance, 70);
    assert!(next.release().await?.was_held());
    Ok(leases.close().await?)
}
