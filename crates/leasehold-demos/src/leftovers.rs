//! Leaves nothing of a run in the store: keys of killed workers would stay until they expire, and some never do.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::TryStreamExt;
use leasehold::{
    Clock, Leasehold,
    engine::{EngineOptions, redis::Servers},
};
use rusqlite::{Connection, OpenFlags};

use crate::{Result, policy, postgres};

const PATIENCE: Duration = Duration::from_secs(5);

/// Where a run may leave something.
pub(crate) enum Leftovers {
    Servers {
        store: String,
        were_empty: bool,
        run: String,
    },
    File {
        path: PathBuf,
        run: String,
    },
    Postgres {
        store: String,
        run: String,
    },
    /// In etcd all that a run writes ends by itself, at the latest when it is a day old.
    Etcd {
        store: String,
        run: String,
    },
}

impl Leftovers {
    /// Looks at the store before the run begins.
    pub(crate) async fn before(store: &str, run: &str) -> Result<Self> {
        let run = policy::prefix(run);
        if let Some(path) = file_of(store) {
            return Ok(Self::File { path, run });
        }
        if store.starts_with("etcd") {
            return Ok(Self::Etcd { store: store.into(), run });
        }
        if postgres::is_postgres(store) {
            return Ok(Self::Postgres { store: store.into(), run });
        }
        // One that is down may have something.
        let were_empty = servers(store)?.are_empty().await.unwrap_or(false);
        Ok(Self::Servers { store: store.into(), were_empty, run })
    }

    /// Removes everything of the run, once its processes are gone.
    pub(crate) async fn remove(&self) -> Result<()> {
        match self {
            // Asked anew, for others may be primaries by now.
            Self::Servers { store, were_empty, run } => {
                let swept = servers(store)?.sweep(run, *were_empty).await;
                swept.map(drop).map_err(|error| error.to_string().into())
            }
            Self::File { path, run } => remove_rows(path, run),
            Self::Etcd { store, run } => release_all(store, run).await,
            Self::Postgres { store, run } => postgres::sweep(store, run).await,
        }
    }

    /// How a person finds what could not be removed.
    pub(crate) fn pattern(&self) -> String {
        let (Self::Servers { run, .. }
        | Self::File { run, .. }
        | Self::Etcd { run, .. }
        | Self::Postgres { run, .. }) = self;
        format!("*{run}*")
    }
}

fn servers(store: &str) -> leasehold::Result<Servers> {
    Servers::open(store, &options())
}

/// Of clients that are no part of the work.
pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        clock: Clock::system(),
        command_timeout: PATIENCE,
        prefix: String::new(),
        connections: 1,
        max_in_flight: 100,
        client_name: "leasehold demo".into(),
        max_ttl: Duration::from_secs(300),
    }
}

/// Locks of killed workers are free at once.
async fn release_all(store: &str, run: &str) -> Result<()> {
    let leases = Leasehold::connect(store).await?;
    let mut locks = leases.list(run);
    while let Some(lock) = locks.try_next().await? {
        for holder in &lock.holders.shown {
            // One that is gone by now was given back.
            let _released = leases.force_release(&lock.name, holder.fence).await?;
        }
    }
    Ok(leases.close().await?)
}

/// The file of an embedded store.
pub(crate) fn file_of(store: &str) -> Option<PathBuf> {
    let path = store.strip_prefix("sqlite:")?;
    Some(path.strip_prefix("//").unwrap_or(path).split('?').next()?.into())
}

fn remove_rows(path: &Path, run: &str) -> Result<()> {
    let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    file.busy_timeout(PATIENCE)?;
    Ok(file.execute_batch(&include_str!("leftovers.sql").replace("RUN", run))?)
}
