//! The schema `leasehold`: what is installed, and whether this program can work with it.
//!
//! Tables have a version; functions are replaced by every migration. Programs of two versions can share a database as long
//! as both know a layout from which the other one works: see `works_from` in `sql/schema.sql`.

use std::{fmt::Write, sync::Arc};

use sha2::{Digest, Sha256};
use tokio_postgres::{Row, types::Type};

use super::{
    Result,
    pool::{Checkout, Param, Pool, Purpose},
    reply,
    url::StoreUrl,
};
use leasehold_core::{
    clock::Until,
    engine::{EngineError, EngineOptions, Fault},
    error::{self, Error, Refusal},
};

/// The layout that this program installs and works with.
pub const SCHEMA_VERSION: i32 = 1;
/// The oldest layout whose programs can work with it.
const WORKS_FROM: i32 = 1;

/// Tables, one file for each version: what it adds to the one before.
const LAYOUTS: [&str; SCHEMA_VERSION as usize] = [include_str!("sql/schema.sql")];
/// Functions, replaced by every migration.
const FUNCTIONS: [&str; 8] = [
    include_str!("sql/common.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/records.sql"),
    include_str!("sql/hold.sql"),
    include_str!("sql/check.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/deadlines.sql"),
];
/// Two migrations take turns: a key of advisory locks that nobody else has.
const TURNS: &str = "SELECT pg_advisory_xact_lock(7811883302)";

/// How the schema of a database stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Installed {
    /// It is not there.
    Nothing,
    /// It is of another version, or has been changed by hand.
    Differs {
        /// The version that is installed.
        version: i32,
        /// Whether this program works with it all the same.
        works: bool,
    },
    /// It is what this program installs.
    Current,
}

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

/// Installs the schema, or brings it to this program's version. Returns how it stood before. Nothing changes if it is
/// current, or of a later version that this program works with.
///
/// # Errors
/// When the database cannot be reached, or the user may not create what is needed.
pub async fn migrate(url: &str, options: &EngineOptions) -> error::Result<Installed> {
    let (pool, until) = connect(url, options)?;
    let migrated = async {
        let mut connection = pool.checkout(until, Purpose::Ask).await?;
        connection.batch(until, &format!("BEGIN;{TURNS}")).await?;
        let stood = installed(&mut connection, until).await;
        let changes = match &stood {
            Err(error) => Err(error.clone()),
            Ok(Installed::Current) => Ok(String::new()),
            Ok(Installed::Differs { version, .. }) if *version > SCHEMA_VERSION => Ok(String::new()),
            Ok(Installed::Nothing) => Ok(LAYOUTS.concat() + &FUNCTIONS.concat() + &note()),
            Ok(Installed::Differs { version, .. }) => {
                let missing = LAYOUTS.iter().skip(usize::try_from(*version).unwrap_or(0)).copied();
                Ok(missing.collect::<String>() + &FUNCTIONS.concat() + &note())
            }
        };
        let done = match changes {
            Ok(sql) => connection.batch(until, &format!("{sql}\nCOMMIT")).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            let _ = connection.batch(until, "ROLLBACK").await;
        }
        done.and(stood)
    };
    migrated.await.map_err(|source| refused(&pool, "installing the schema leasehold", source))
}

/// How the schema of a database stands. Changes nothing.
///
/// # Errors
/// When the database cannot be reached.
pub async fn check(url: &str, options: &EngineOptions) -> error::Result<Installed> {
    let (pool, until) = connect(url, options)?;
    let found = async { installed(&mut pool.checkout(until, Purpose::Ask).await?, until).await };
    found.await.map_err(|source| refused(&pool, "checking the schema leasehold", source))
}

fn connect(url: &str, options: &EngineOptions) -> error::Result<(Arc<Pool>, Until)> {
    let target = StoreUrl::parse(url)?.target(options)?;
    let until = options.clock.now() + options.command_timeout * 10;
    Ok((Pool::new(target, 2, options), until))
}

fn refused(pool: &Pool, doing: &str, source: EngineError) -> Error {
    let (store, doing) = (pool.shown().to_owned(), doing.to_owned());
    match source.fault {
        Fault::Refused(refusal) => Error::StoreRefused { store, doing, refusal, source },
        _ => Error::StoreUnreachable { store, doing, source },
    }
}

/// What is installed, with its version and the oldest program that works with it.
async fn read(connection: &mut Checkout, until: Until) -> Result<Option<Row>> {
    let params: [Param<'_>; 1] = [(&"leasehold.schema_version", Type::TEXT)];
    let found = connection.query(until, "SELECT to_regclass($1) IS NOT NULL AS found", &params, || ()).await?;
    if !reply::get::<bool>(&reply::one(found)?, "found")? {
        return Ok(None);
    }
    let sql = "SELECT version, works_from, checksum FROM leasehold.schema_version";
    Ok(connection.query(until, sql, &[], || ()).await?.pop())
}

async fn installed(connection: &mut Checkout, until: Until) -> Result<Installed> {
    let Some(row) = read(connection, until).await? else { return Ok(Installed::Nothing) };
    let (version, works_from): (i32, i32) = (reply::get(&row, "version")?, reply::get(&row, "works_from")?);
    if version == SCHEMA_VERSION && reply::get::<&str>(&row, "checksum")? == checksum() {
        return Ok(Installed::Current);
    }
    Ok(Installed::Differs { version, works: version >= SCHEMA_VERSION && works_from <= SCHEMA_VERSION })
}

/// Refuses a database whose schema this program cannot work with.
pub(super) async fn check_version(pool: &Arc<Pool>, until: Until) -> Result<()> {
    let refuse = |why: String| Err(EngineError::new(Fault::Refused(Refusal::Other), why));
    match installed(&mut pool.checkout(until, Purpose::Ask).await?, until).await? {
        Installed::Current | Installed::Differs { works: true, .. } => Ok(()),
        Installed::Nothing => {
            refuse("the database has no schema leasehold; install it with: leasehold migrate --store URL".into())
        }
        Installed::Differs { version, .. } if version < SCHEMA_VERSION => refuse(format!(
            "the schema leasehold has version {version}, and this program needs {SCHEMA_VERSION}; bring it up to date with: \
             leasehold migrate --store URL"
        )),
        Installed::Differs { version, .. } => refuse(format!(
            "the schema leasehold has version {version}, which is too new for this program: it knows {SCHEMA_VERSION}; use a \
             later version of the program"
        )),
    }
}
