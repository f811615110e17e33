//! What an operator should know about the database: a table of checks.

use tokio_postgres::Row;

use super::{Postgres, Result, pool::Purpose, reply};
use leasehold_core::{
    clock::Until,
    engine::{Health, Warning},
};

/// What one query of the server's state found.
struct Server {
    version: i32,
    settings: Settings,
    is_replica: bool,
    is_encrypted: bool,
    clock_offset_ms: i64,
    connections_free: i64,
    pool: usize,
    oldest_transaction_s: i64,
}

struct Settings {
    version: String,
    fsync: bool,
    full_page_writes: bool,
    synchronous_commit: String,
    isolation: String,
    idle_in_transaction_timeout: String,
}

/// One thing that can be wrong: its code, the cure, and what was found, if it is wrong.
struct Check(&'static str, &'static str, fn(&Server) -> Option<String>);

const CHECKS: [Check; 9] = [
    Check("old-version", "bring the server to a supported version", |server| {
        (server.version < 130_000).then(|| format!("the server is PostgreSQL {}", server.settings.version))
    }),
    Check("replica", "name the primary in the store URL", |server| {
        server.is_replica.then(|| "the server is a replica and refuses every lock".to_owned())
    }),
    Check("fsync-off", "set fsync = on and full_page_writes = on", |server| {
        let is_off = !server.settings.fsync || !server.settings.full_page_writes;
        is_off.then(|| "a crash of the host may damage the database, and forget who holds what".to_owned())
    }),
    Check("synchronous-commit", "set synchronous_commit = on for this user or database", |server| {
        (server.settings.synchronous_commit == "off").then(|| {
            "synchronous_commit is off: a crash forgets the last grants, and others get the same locks"
                .to_owned()
        })
    }),
    Check("isolation", "set default_transaction_isolation = 'read committed' for this user", |server| {
        (server.settings.isolation != "read committed").then(|| {
            format!(
                "transactions are {} by default: calls that meet are sent again, which costs time",
                server.settings.isolation
            )
        })
    }),
    Check("no-tls", "add ?sslmode=require to the store URL", |server| {
        (!server.is_encrypted)
            .then(|| "passwords and owner values can be read on the way to the server".to_owned())
    }),
    Check(
        "clock",
        "synchronise the clocks; leases are not affected, fences and deadlines follow the server's",
        |server| {
            (server.clock_offset_ms.abs() > 5_000).then(|| {
                format!("the server's clock differs from this host's by {} ms", server.clock_offset_ms)
            })
        },
    ),
    Check("connections", "raise max_connections, or put a pooler before the server", |server| {
        (server.connections_free < server.pool as i64 + 1).then(|| {
            format!(
                "{} connections are free, and a client may take {}",
                server.connections_free,
                server.pool + 1
            )
        })
    }),
    Check("old-transaction", "end it, and set idle_in_transaction_session_timeout", |server| {
        (server.oldest_transaction_s > 300).then(|| {
            let (age, timeout) = (server.oldest_transaction_s, &server.settings.idle_in_transaction_timeout);
            format!(
                "a transaction is open for {age} s (idle_in_transaction_session_timeout is {timeout}): vacuum keeps every old \
                 version of a row that it may still see"
            )
        })
    }),
];

/// Every code that a [`Warning`] of this store can have.
pub const WARNING_CODES: [&str; 9] = {
    let mut codes = [""; 9];
    let mut at = 0;
    while at < codes.len() {
        codes[at] = CHECKS[at].0;
        at += 1;
    }
    codes
};

impl Postgres {
    pub(super) async fn inspect_health(&self, until: Until) -> Result<Health> {
        let rows = self.pool.query(until, Purpose::Ask, include_str!("sql/health.sql"), &[]).await?;
        let row = reply::one(rows)?;
        let server = self.server(&row)?;
        let warnings = CHECKS.iter().filter_map(|Check(code, cure, finds)| {
            Some(Warning { code, found: finds(&server)?, cure: (*cure).into() })
        });
        let facts = [
            ("engine", "postgres".to_owned()),
            ("server", server.settings.version.clone()),
            ("database", reply::get(&row, "database")?),
            ("user", reply::get(&row, "username")?),
            ("role", if server.is_replica { "replica" } else { "primary" }.to_owned()),
            ("schema version", reply::get::<i32>(&row, "schema_version")?.to_string()),
            ("synchronous_commit", server.settings.synchronous_commit.clone()),
            ("synchronous replicas", reply::get::<i64>(&row, "replicas")?.to_string()),
            ("notifications", self.listener.state_in_words().to_owned()),
            ("names known", reply::get::<i64>(&row, "names")?.to_string()),
            ("waiters", reply::get::<i64>(&row, "waiters")?.to_string()),
        ];
        let facts = facts.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
        Ok(Health { facts, warnings: warnings.collect() })
    }

    fn server(&self, row: &Row) -> Result<Server> {
        let server_us: i64 = reply::get(row, "now_us")?;
        let here_us = i64::try_from(self.clock.wall_us()).unwrap_or(i64::MAX);
        Ok(Server {
            version: reply::get(row, "version_number")?,
            settings: Settings {
                version: reply::get(row, "version")?,
                fsync: reply::get(row, "fsync")?,
                full_page_writes: reply::get(row, "full_page_writes")?,
                synchronous_commit: reply::get(row, "synchronous_commit")?,
                isolation: reply::get(row, "isolation")?,
                idle_in_transaction_timeout: reply::get(row, "idle_in_transaction_timeout")?,
            },
            is_replica: reply::get(row, "is_replica")?,
            is_encrypted: self.pool.is_encrypted(),
            clock_offset_ms: (server_us - here_us) / 1000,
            connections_free: reply::get(row, "connections_free")?,
            pool: self.pool.size,
            oldest_transaction_s: reply::get(row, "oldest_transaction_s")?,
        })
    }
}
