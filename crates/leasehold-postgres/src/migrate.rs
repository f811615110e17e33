//! The schema `leasehold`: what is installed, and whether this program can work with it.
//!
//! Tables have a version; functions are replaced by every migration. Programs of two versions can share a database as long
//! as both know a layout from which the other one works: see `works_from` in `sql/schema.sql`.

use std::{fmt::Write, sync::Arc};

use sha2::{Digest, Sha256};
use tokio_postgres::{Row, types::Type};

use super::{
    Postgres, Result,
    pool::{Checkout, Param, Pool, Purpose},
    reply,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, Fault, Fut, Installed, Schema},
    error::Refusal,
};

/// The layout that this program installs and works with.
pub const SCHEMA_VERSION: u32 = 2;
/// The oldest layout whose programs can work with it.
const WORKS_FROM: u32 = 1;

/// Tables, one file for each version: what it adds to the one before.
const LAYOUTS: [&str; SCHEMA_VERSION as usize] =
    [include_str!("sql/schema.sql"), include_str!("sql/schema_2.sql")];
/// Functions, replaced by every migration.
const FUNCTIONS: [&str; 10] = [
    include_str!("sql/common.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/records.sql"),
    include_str!("sql/hold.sql"),
    include_str!("sql/check.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/deadlines.sql"),
    include_str!("sql/latches.sql"),
    include_str!("sql/prune.sql"),
];
/// Two migrations take turns: a key of advisory locks that nobody else has.
const TURNS: &str = "SELECT pg_advisory_xact_lock(7811883302)";

/// All SQL that a migration of an empty database runs, as one script.
pub fn script() -> String {
    let mut script = format!("BEGIN;\n{TURNS};\n\n");
    for part in LAYOUTS.iter().chain(&FUNCTIONS) {
        script.push_str(part);
        script.push('\n');
    }
    let _ = write!(script, "{}\nCOMMIT;\n", note());
    script
}

/// Notes what was installed.
fn note() -> String {
    format!(
        "DELETE FROM leasehold.schema_version;\n\
         INSERT INTO leasehold.schema_version (version, works_from, checksum) VALUES ({SCHEMA_VERSION}, {WORKS_FROM}, '{}');",
        checksum()
    )
}

fn checksum() -> String {
    let mut hash = Sha256::new();
    LAYOUTS.iter().chain(&FUNCTIONS).for_each(|part| hash.update(part));
    hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

impl Schema for Postgres {
    fn script(&self) -> String {
        script()
    }

    fn check(&self, until: Until) -> Fut<'_, Installed> {
        Box::pin(async move { installed(&mut self.pool.checkout(until, Purpose::Ask).await?, until).await })
    }

    fn install(&self, until: Until) -> Fut<'_, Installed> {
        Box::pin(async move {
            let mut connection = self.pool.checkout(until, Purpose::Ask).await?;
            connection.batch(until, &format!("BEGIN; {TURNS};")).await?;
            let done = migrate(&mut connection, until).await;
            if done.is_err() {
                // A connection that does not answer is closed, which ends the transaction as well.
                let _ = connection.batch(until, "ROLLBACK").await;
            }
            done
        })
    }
}

/// Brings the schema to this program's version within a transaction, and commits.
async fn migrate(connection: &mut Checkout, until: Until) -> Result<Installed> {
    let found = installed(connection, until).await?;
    let missing = match found {
        Installed::Nothing => Some(0),
        Installed::Differs { version, works, .. } if !(works && version > SCHEMA_VERSION) => {
            refuse_newer(version)?;
            Some(version as usize)
        }
        _ => None,
    };
    let change = missing.map(|from| format!("{}{}{}", LAYOUTS[from..].concat(), FUNCTIONS.concat(), note()));
    connection.batch(until, &format!("{}\nCOMMIT;", change.unwrap_or_default())).await?;
    Ok(found)
}

/// What is installed, with its version and the oldest program that works with it.
async fn read(connection: &mut Checkout, until: Until) -> Result<Option<Row>> {
    let params: [Param<'_>; 1] = [(&"leasehold.schema_version", Type::TEXT)];
    let found =
        connection.query(until, "SELECT to_regclass($1) IS NOT NULL AS found", &params, || ()).await?;
    if !reply::get::<bool>(&reply::one(found)?, "found")? {
        return Ok(None);
    }
    let sql = "SELECT version, works_from, checksum FROM leasehold.schema_version";
    Ok(connection.query(until, sql, &[], || ()).await?.pop())
}

async fn installed(connection: &mut Checkout, until: Until) -> Result<Installed> {
    let Some(row) = read(connection, until).await? else { return Ok(Installed::Nothing) };
    let number = |column| Ok::<_, EngineError>(reply::get::<i32>(&row, column)?.max(0).unsigned_abs());
    let (version, works_from) = (number("version")?, number("works_from")?);
    if version == SCHEMA_VERSION && reply::get::<&str>(&row, "checksum")? == checksum() {
        return Ok(Installed::Current { version });
    }
    let works = version >= SCHEMA_VERSION && works_from <= SCHEMA_VERSION;
    Ok(Installed::Differs { version, wanted: SCHEMA_VERSION, works })
}

fn refused<T>(why: String) -> Result<T> {
    Err(EngineError::new(Fault::Refused(Refusal::Other), why))
}

fn refuse_newer(version: u32) -> Result<()> {
    if version <= SCHEMA_VERSION {
        return Ok(());
    }
    refused(format!(
        "the schema leasehold has version {version}, which is too new for this program: it knows {SCHEMA_VERSION}; use a later \
         version of the program"
    ))
}

/// Refuses a database whose schema this program cannot work with.
pub(super) async fn check_version(pool: &Arc<Pool>, until: Until) -> Result<()> {
    match installed(&mut pool.checkout(until, Purpose::Ask).await?, until).await? {
        Installed::Nothing => refused(
            "the database has no schema leasehold; install it with: leasehold migrate --store URL".into(),
        ),
        Installed::Differs { version, works: false, .. } => {
            refuse_newer(version)?;
            refused(format!(
                "the schema leasehold has version {version}, and this program needs {SCHEMA_VERSION}; bring it up to date \
                 with: leasehold migrate --store URL"
            ))
        }
        _ => Ok(()),
    }
}
