//! The application's own database, which all processes of a demo share. It is not the store of the locks.

use std::{path::Path, time::Duration};

use rusqlite::Connection;

use crate::Result;

/// Opens it. Writers wait for each other; a crash of a process loses nothing that it has committed.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(20))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    // Processes crash in a demo, the operating system does not.
    database.pragma_update(None, "synchronous", "off")?;
    Ok(database)
}

/// The ports that a query finds.
pub(crate) fn ports(database: &Connection, sql: &str) -> Result<Vec<u16>> {
    let mut found = database.prepare(sql)?;
    Ok(found.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

/// One number.
pub(crate) fn number(database: &Connection, sql: &str) -> Result<u64> {
    Ok(database.query_row(sql, [], |row| row.get::<_, Option<u64>>(0))?.unwrap_or(0))
}
