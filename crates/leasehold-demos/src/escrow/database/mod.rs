//! The database of the service: a SQLite file, or a schema of its own in the PostgreSQL that has the locks as well.
//!
//! Every statement is written once, in words that both know: parameters are ?1, ?2, and all numbers are `integer`. What
//! differs is how a late holder of a lock is refused. SQLite knows nothing of the locks: opening a row writes the fence
//! into it, and no earlier holder can write it from then on. PostgreSQL has them: a transaction begins with
//! `leasehold.assert_held` for each of its locks, and from there to its commit nobody else is given them.

mod postgres;
mod sqlite;
mod value;

use std::sync::{Mutex, PoisonError};

pub(super) use self::value::{Row, Value, values};
use crate::{Result, policy, postgres::is_postgres, protection::Held, worker::Worker};

/// The database, as one task uses it.
pub(super) enum Database {
    Sqlite(Mutex<rusqlite::Connection>),
    Postgres(Box<postgres::Postgres>),
}

/// What statements are sent to: a database, or a transaction of it.
pub(super) trait Statements {
    fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>>;

    /// Returns how many rows were written.
    fn execute(&self, sql: &str, values: &[Value]) -> Result<u64>;

    /// Opens a row for the holder of its lock; `None` if there is none, or a later holder has opened it.
    fn open(&self, table: &str, columns: &str, id: u64, held: &Held) -> Result<Option<Row>>;

    /// The first row.
    fn row(&self, sql: &str, values: &[Value]) -> Result<Option<Row>> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }

    /// One number.
    fn number(&self, sql: &str) -> Result<u64> {
        // The sum of numbers has another type in PostgreSQL.
        let found = self.row(&format!("select coalesce(cast(({sql}) as bigint), 0)"), &[])?;
        Ok(found.ok_or("no number")?.number(0)?.try_into()?)
    }
}

/// A connection.
trait Session: Statements {
    /// Statements without values.
    fn script(&self, sql: &str) -> Result<()>;

    /// What begins a transaction of whoever holds these locks.
    fn begin(&self, held: &[&Held]) -> String;
}

impl Database {
    /// The database of a run. A server is dialled by the first statement.
    pub(super) fn open(worker: &Worker) -> Result<Self> {
        if is_postgres(&worker.store) {
            return Self::in_schema(&worker.store, schema_of(worker));
        }
        Ok(Self::Sqlite(Mutex::new(worker.database()?)))
    }

    /// A schema of the PostgreSQL with this URL.
    pub(super) fn in_schema(store: &str, schema: String) -> Result<Self> {
        Ok(Self::Postgres(Box::new(postgres::Postgres::new(store, schema)?)))
    }

    /// One that is gone with the test, with these rows.
    #[cfg(test)]
    pub(super) fn in_memory(rows: &str) -> Self {
        let database = rusqlite::Connection::open_in_memory().unwrap();
        database.execute_batch(include_str!("../schema.sql")).unwrap();
        database.execute_batch(rows).unwrap();
        Self::Sqlite(Mutex::new(database))
    }

    /// Where the tables are, unless they are in a file.
    pub(super) fn schema(&self) -> Option<&str> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(database) => Some(database.schema()),
        }
    }

    /// Creates the tables, and what is in them from the beginning.
    pub(super) fn create(&self, fill: impl Fn(&dyn Statements) -> Result<()>) -> Result<()> {
        let tables = include_str!("../schema.sql");
        let tables = match self {
            Self::Sqlite(_) => tables.to_owned(),
            Self::Postgres(database) => database.in_its_words(tables),
        };
        self.transact(&[], |session| {
            session.script(&tables)?;
            fill(session)
        })
    }

    /// Removes the tables, unless they are in a file, which goes with the folder of the run.
    pub(super) fn remove(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(database) => database.remove(),
        }
    }

    /// All of it is committed, or nothing, and only while these locks are held. After an error it may be committed all the
    /// same: then the answer of the server was lost.
    pub(super) fn transaction<T>(
        &self,
        held: &[&Held],
        work: impl Fn(&dyn Statements) -> Result<T>,
    ) -> Result<T> {
        self.transact(held, |session| work(session))
    }

    fn transact<T>(&self, held: &[&Held], work: impl Fn(&dyn Session) -> Result<T>) -> Result<T> {
        self.once(|session| {
            let done = session.script(&session.begin(held)).and_then(|()| work(session));
            let done = done.and_then(|done| session.script("commit").map(|()| done));
            if done.is_err() {
                // Without a connection there is no transaction either.
                let _ended = session.script("rollback");
            }
            done
        })
    }

    fn once<T>(&self, work: impl Fn(&dyn Session) -> Result<T>) -> Result<T> {
        match self {
            Self::Sqlite(database) => work(&*database.lock().unwrap_or_else(PoisonError::into_inner)),
            Self::Postgres(database) => database.once(work),
        }
    }

    /// For a statement by itself. One without an answer is sent again, so it must do no harm if it is executed twice.
    fn again<T>(&self, work: impl Fn(&dyn Session) -> Result<T>) -> Result<T> {
        match self {
            Self::Sqlite(_) => self.once(work),
            Self::Postgres(database) => database.again(work),
        }
    }
}

impl Statements for Database {
    fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Row>> {
        self.again(|session| session.rows(sql, values))
    }

    fn execute(&self, sql: &str, values: &[Value]) -> Result<u64> {
        self.again(|session| session.execute(sql, values))
    }

    fn open(&self, table: &str, columns: &str, id: u64, held: &Held) -> Result<Option<Row>> {
        self.again(|session| session.open(table, columns, id, held))
    }
}

/// Where a run has its tables in PostgreSQL.
fn schema_of(worker: &Worker) -> String {
    policy::prefix(&worker.run).trim_end_matches(':').replace(':', "_")
}
