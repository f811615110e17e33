//! A lease file and a host whose clocks stand still until they are moved.

use std::time::Duration;

use rusqlite::Connection;

use crate::{
    fault::Failure,
    file,
    store::{Now, Store},
};
use leasehold_core::clock::BootInstant;

/// One hour after boot, in nanoseconds.
pub(crate) const START: u64 = 3600 * 1_000_000_000;
pub(crate) const WALL_US: u64 = 1_700_000_000_000_000;

pub(crate) struct Host {
    pub(crate) db: Connection,
    pub(crate) boot: &'static str,
    pub(crate) boot_ns: u64,
    pub(crate) wall_us: u64,
    pub(crate) hints: Vec<String>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(Connection::open_in_memory().unwrap())
    }

    pub(crate) fn with(db: Connection) -> Self {
        file::prepare(&db).unwrap();
        Self { db, boot: "this boot", boot_ns: START, wall_us: WALL_US, hints: Vec::new() }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.boot_ns += time.as_nanos() as u64;
        self.wall_us += time.as_micros() as u64;
    }

    pub(crate) fn now(&self) -> BootInstant {
        BootInstant::from_nanos(self.boot_ns)
    }

    /// Runs one operation; keeps the hints it sends, as labels of those they are for.
    pub(crate) fn run<T>(
        &mut self,
        operation: impl FnOnce(&mut Store<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut store = Store::new(&self.db, self.boot, Now { boot: self.now(), wall_us: self.wall_us });
        let out = operation(&mut store);
        let number = |id: &[u8]| u128::from_str_radix(std::str::from_utf8(id).unwrap(), 16).unwrap();
        let hints = store.hints.iter().flat_map(|(wake, owner_ids)| {
            owner_ids.as_bytes().chunks(32).map(move |id| format!("{}@{wake}", number(id)))
        });
        self.hints = hints.collect();
        out
    }

    /// The host restarts, and is off for a while.
    pub(crate) fn restart(&mut self, off: Duration) {
        self.boot = "next boot";
        self.boot_ns = START;
        self.wall_us += off.as_micros() as u64;
    }

    pub(crate) fn rows(&self, table: &str) -> i64 {
        self.db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }
}
