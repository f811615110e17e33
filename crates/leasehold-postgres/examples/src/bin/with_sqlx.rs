//! A transaction of sqlx that is committed only while its lock is held.
//! `cargo run -p leasehold-postgres-examples --bin with_sqlx -- postgres://leasehold@127.0.0.1/app`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use leasehold::{Fence, Guard, Leasehold};
use sqlx::{PgPool, raw_sql};

/// Takes 30 from the account, unless the lock was lost.
async fn withdraw(db: &PgPool, guard: &Guard) -> sqlx::Result<()> {
    let mut transaction = db.begin().await?;
    // First the check. From here to the commit nobody else is given the lock, however long that takes.
    sqlx::query(Fence::ASSERT_HELD_SQL)
        .bind(guard.name().as_str())
        .bind(guard.fence().as_i64())
        .execute(&mut *transaction)
        .await?;
    sqlx::query("UPDATE example_accounts SET balance = balance - 30 WHERE id = 7")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("expected the URL of a database")?;
    let leases = Leasehold::builder(url.as_str()).connect_lazy()?;
    leases.schema()?.install().await?;
    let db = PgPool::connect(&url).await?;
    raw_sql(
        "CREATE TABLE IF NOT EXISTS example_accounts (id int PRIMARY KEY, balance int);
         INSERT INTO example_accounts VALUES (7, 100) ON CONFLICT (id) DO UPDATE SET balance = 100",
    )
    .execute(&db)
    .await?;

    let guard = leases.lock("account:7").acquire().await?;
    withdraw(&db, &guard).await?;
    println!("in time: committed under fence {}", guard.fence());

    // An operator ends the lease of a holder that does not know of it yet.
    assert!(leases.force_release("account:7", guard.fence()).await?.was_held());
    let late = withdraw(&db, &guard).await.expect_err("the lock is gone");
    println!("too late: {}", late.as_database_error().map_or("no answer", |error| error.message()));
    leases.close().await?;
    Ok(())
}
