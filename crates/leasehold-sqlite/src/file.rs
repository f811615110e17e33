//! Opening a database file: whose it is, its layout and its settings.
//!
//! # Why `synchronous = NORMAL` is enough for locks
//! In WAL mode it syncs at checkpoints only. A power loss may take the last commits back, but never tears the file, and
//! it ends every holder and waiter of the host anyway. A fence may be forgotten; the next one is still higher, because it
//! is at least the wall clock. Results, marks and deadlines outlive a power loss: their commits are synced (`FULL`).

use std::cell::Cell;

use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior};

use super::fault::{Failure, Result};
use super::path::{DatabasePath, FileId};

/// The layout that this build reads and writes.
pub(super) const LAYOUT: i64 = LAYOUTS as i64;
const LAYOUTS: usize = ADDITIONS.len();
/// "Leas": marks a file as ours.
const APPLICATION_ID: i64 = 0x4C65_6173;
const STATEMENTS_CACHED: usize = 64;
/// What each layout adds to the one before it.
const ADDITIONS: [&str; 4] = [
    include_str!("schema.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

const SYNC_EACH: &str = "PRAGMA synchronous = FULL";
const SYNC_SELDOM: &str = "PRAGMA synchronous = NORMAL";

/// An open database file.
pub(super) struct LeaseFile {
    pub(super) db: Connection,
    id: Option<FileId>,
    synced: Cell<bool>,
}

impl LeaseFile {
    /// Opens the file, and creates it first if it is missing. Never waits: a busy file is a failure.
    pub(super) fn open(path: &DatabasePath) -> Result<Self> {
        path.create()?;
        // Looked up first: if the file is replaced before it is open, the next operation sees a change.
        let id = path.file_id();
        let real = path.check()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&real, flags | OpenFlags::SQLITE_OPEN_NOFOLLOW)?;
        prepare(&db)?;
        // The log may have been planted since the first check; from now on it is in use.
        path.check()?;
        Ok(Self { db, id, synced: Cell::new(false) })
    }

    /// Whether the next commit waits until it is on the disk.
    pub(super) fn sync(&self, synced: bool) -> Result<()> {
        if self.synced.get() != synced {
            self.db.execute_batch(if synced { SYNC_EACH } else { SYNC_SELDOM })?;
            self.synced.set(synced);
        }
        Ok(())
    }

    /// Whether the path still leads to this file. Processes that had another one open would not exclude us.
    pub(super) fn is_still_at(&self, path: &DatabasePath) -> bool {
        self.id.is_some() && self.id == path.file_id()
    }
}

/// Makes a connection ready for a store, and the file too if it is empty or of an older layout.
pub(super) fn prepare(db: &Connection) -> Result<()> {
    db.busy_timeout(std::time::Duration::ZERO)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // Before anything is changed: it may be somebody else's file.
    let found = layout(db)?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    db.execute_batch(SYNC_SELDOM)?;
    if found < LAYOUTS {
        let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
        // Another process may have been faster. Programs that know the older layout only and have the file open go on:
        // nothing of theirs is changed.
        for addition in &ADDITIONS[layout(db)?..] {
            db.execute_batch(addition)?;
        }
        db.pragma_update(None, "application_id", APPLICATION_ID)?;
        db.pragma_update(None, "user_version", LAYOUT)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The layout of the file, 0 if it is empty; refuses one that is not ours, or newer.
fn layout(db: &Connection) -> Result<usize> {
    // In one statement, or another process that creates the layout may come in between.
    let sql = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) \
               FROM pragma_application_id, pragma_user_version";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let (application, layout, tables): (i64, i64, i64) = db.query_row(sql, [], read)?;
    match (application, usize::try_from(layout)) {
        (0, Ok(0)) if tables == 0 => Ok(0),
        (APPLICATION_ID, Ok(known @ 1..=LAYOUTS)) => Ok(known),
        (APPLICATION_ID, _) => Err(Failure::refused(format!(
            "the file has layout {layout}, this program knows layouts up to {LAYOUT} only: update the program"
        ))),
        _ => Err(Failure::refused("the file is another program's database: choose another path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TempDir;
    use leasehold_core::{
        engine::{EngineError, Fault},
        error::Refusal,
    };

    fn refusal(result: Result<(), Failure>) -> String {
        let error = EngineError::from(result.expect_err("must be refused"));
        assert_eq!(error.fault, Fault::Refused(Refusal::Other), "{error}");
        error.why
    }

    #[test]
    fn an_empty_file_gets_the_layout_and_is_read_again() {
        let db = Connection::open_in_memory().unwrap();
        prepare(&db).unwrap();
        prepare(&db).unwrap();
        assert_eq!(layout(&db).unwrap(), LAYOUTS);
    }

    #[test]
    fn an_older_layout_is_extended_and_keeps_what_it_has() {
        let dir = TempDir::new();
        let path = dir.path("old.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(ADDITIONS[0]).unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        old.execute_batch("INSERT INTO lock VALUES ('deal', 7, 'owner', 'boot', 9)").unwrap();
        let path = DatabasePath::parse(&path).unwrap();
        let file = LeaseFile::open(&path).unwrap();
        assert_eq!(layout(&file.db).unwrap(), LAYOUTS);
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            file.db.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        assert_eq!(["lock", "record", "deadline", "member", "latch"].map(count), [1, 0, 0, 0, 0]);
        // A program that had it open before goes on.
        old.execute_batch("UPDATE lock SET fence = 8").unwrap();
        LeaseFile::open(&path).unwrap();
    }

    #[test]
    fn a_newer_layout_is_refused() {
        let db = Connection::open_in_memory().unwrap();
        prepare(&db).unwrap();
        db.pragma_update(None, "user_version", LAYOUT + 1).unwrap();
        assert!(refusal(prepare(&db)).contains("layout 5"));
    }

    #[test]
    fn another_programs_database_is_refused_and_left_alone() {
        let dir = TempDir::new();
        let path = dir.path("other.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE mail (text)").unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        let path = DatabasePath::parse(&path).unwrap();
        assert!(refusal(LeaseFile::open(&path).map(drop)).contains("another program's"));
        assert_eq!(std::fs::read(&path.path).unwrap(), before);
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_left_alone() {
        let dir = TempDir::new();
        let path = dir.path("notes.txt");
        std::fs::write(&path, "not a database at all\n".repeat(100)).unwrap();
        let path = DatabasePath::parse(&path).unwrap();
        assert!(refusal(LeaseFile::open(&path).map(drop)).contains("not a SQLite database"));
        assert!(std::fs::read_to_string(&path.path).unwrap().starts_with("not a database"));
    }
}
