//! One PostgreSQL that writes to disk before it replies.

use std::time::Duration;

use leasehold::engine::postgres::script;
use leasehold_testkit::PostgresServer;

use super::{Cure, Fault, Topology};
use crate::{Failure, fault_loop::Options};

/// Each process of the load has more tasks than the usual pool has connections.
const POOL: u32 = 24;

pub(crate) struct Postgres {
    server: PostgresServer,
    database: String,
}

impl Topology for Postgres {
    const FAULTS: &'static [Fault<Self>] = &[
        Fault::lasting(
            "crash",
            Cure::Hand,
            |this, _| {
                this.server.crash();
                vec![0]
            },
            |this, _| this.server.start_again(),
        ),
        Fault::lasting(
            "shut down",
            Cure::Hand,
            |this, _| {
                this.server.shutdown();
                vec![0]
            },
            |this, _| this.server.start_again(),
        ),
        Fault::passing("terminate backends", |this, _| {
            this.server.terminate_backends(&this.database);
            Vec::new()
        }),
        Fault::passing("lock the tables for a while", |this, dice| {
            let pause_ms = 100 + dice % 1000;
            let sql =
                format!("BEGIN; LOCK TABLE leasehold.locks; SELECT pg_sleep({pause_ms} / 1000.0); COMMIT;");
            this.server.sql(&this.database, &sql);
            Vec::new()
        }),
    ];

    const MAX_TTL: Duration = Duration::from_secs(2);

    fn start(_: &Options) -> Result<Self, Failure> {
        let Some(server) = PostgresServer::start_or_skip() else {
            return Err("PostgreSQL is not installed (Debian: postgresql)".into());
        };
        server.install(&script());
        let database = server.database();
        Ok(Self { server, database })
    }

    fn url(&self) -> String {
        format!("{}?pool={POOL}", self.server.url(&self.database))
    }

    fn await_whole(&self) {}
}
