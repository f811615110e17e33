//! A store in PostgreSQL, as an operator uses it: sessions beside the store, and the rows that a run has left.

use std::time::Duration;

use leasehold::engine::postgres::Sessions;

use crate::{Result, leftovers};

/// Rows of killed workers may still be written during the first pass: their statements had arrived.
const PASSES_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn is_postgres(store: &str) -> bool {
    store.starts_with("postgres://") || store.starts_with("postgresql://")
}

/// Sessions beside the store.
pub(crate) fn sessions(store: &str) -> leasehold::Result<Sessions> {
    Sessions::open(store, &leftovers::options())
}

/// What the server says; the driver's error alone does not have it.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(answer), _) => answer.message().to_owned(),
        (None, Some(why)) => format!("{error}: {why}"),
        (None, None) => error.to_string(),
    }
}

/// Removes the rows whose names have a text in them, until a pass finds none.
pub(crate) async fn sweep(store: &str, text: &str) -> Result<()> {
    let client = sessions(store)?.connect().await?;
    let sql = include_str!("leftovers_postgres.sql").replace("RUN", text);
    for pass in 0..PASSES_MAX {
        let removed: i64 = client.query_one(&sql, &[]).await.map_err(|error| words(&error))?.try_get(0)?;
        if removed == 0 && pass > 0 {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
