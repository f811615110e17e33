//! A transaction of diesel-async that is committed only while its lock is held.
//! `cargo run -p leasehold-postgres-examples --bin with_diesel -- postgres://leasehold@127.0.0.1/app`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]
#![expect(missing_docs, reason = "the macro of a table writes none")]

use std::error::Error;

use diesel::{prelude::*, result::Error as DbError, sql_query};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use leasehold::{Guard, Leasehold};

diesel::table! {
    example_accounts (id) {
        id -> Integer,
        balance -> Integer,
    }
}

/// Takes 30 from the account, unless the lock was lost.
async fn withdraw(db: &mut AsyncPgConnection, guard: &Guard) -> Result<(), DbError> {
    use crate::example_accounts::dsl::{balance, example_accounts, id};

    db.transaction(async |db| {
        // First the check. From here to the commit nobody else is given the lock, however long that takes.
        sql_query(guard.assert_held_sql()).execute(db).await?;
        let account = example_accounts.filter(id.eq(7));
        diesel::update(account).set(balance.eq(balance - 30)).execute(db).await?;
        Ok(())
    })
    .await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("expected the URL of a database")?;
    let leases = Leasehold::builder(url.as_str()).connect_lazy()?;
    leases.schema()?.install().await?;
    let mut db = AsyncPgConnection::establish(&url).await?;
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
    println!("too late: {}", withdraw(&mut db, &guard).await.expect_err("the lock is gone"));
    leases.close().await?;
    Ok(())
}
