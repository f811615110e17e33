//! A transaction of tokio-postgres that is committed only while its lock is held.
//! `cargo run -p leasehold-postgres-examples --bin with_tokio_postgres -- postgres://leasehold@127.0.0.1/app`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use leasehold::{Fence, Guard, Leasehold};
use tokio_postgres::{Client, NoTls};

/// Takes 30 from the account, unless the lock was lost.
async fn withdraw(db: &mut Client, guard: &Guard) -> Result<(), tokio_postgres::Error> {
    let transaction = db.transaction().await?;
    // First the check. From here to the commit nobody else is given the lock, however long that takes.
    let (name, fence) = (guard.name().as_str(), guard.fence().as_i64());
    transaction.execute(Fence::ASSERT_HELD_SQL, &[&name, &fence]).await?;
    transaction.execute("UPDATE example_accounts SET balance = balance - 30 WHERE id = 7", &[]).await?;
    transaction.commit().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("expected the URL of a database")?;
    let leases = Leasehold::builder(url.as_str()).connect_lazy()?;
    leases.schema()?.install().await?;
    let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    db.batch_execute(
        "CREATE TABLE IF NOT EXISTS example_accounts (id int PRIMARY KEY, balance int);
         INSERT INTO example_accounts VALUES (7, 100) ON CONFLICT (id) DO UPDATE SET balance = 100",
    )
    .await?;

    let guard = leases.lock("account:7").acquire().await?;
    withdraw(&mut db, &guard).await?;
    println!("in time: committed under fence {}", guard.fence());

    // An operator ends the lease of a holder that does not know of it yet.
    assert!(leases.force_release("account:7", guard.fence()).await?.was_held());
    let late = withdraw(&mut db, &guard).await.expect_err("the lock is gone");
    println!("too late: {}", late.as_db_error().map_or("no answer", |error| error.message()));
    leases.close().await?;
    Ok(())
}
