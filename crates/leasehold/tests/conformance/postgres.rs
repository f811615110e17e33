//! PostgreSQL as a fixture: a database of its own for every namespace, behind a proxy that breaks the network.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    FaultProxy, PgBouncer, PostgresServer,
    conformance::{Fixture, Namespace, Need},
};

pub(crate) struct PostgresFixture {
    // Declared before the server: they end before it does.
    proxy: FaultProxy,
    _bouncer: Option<PgBouncer>,
    server: PostgresServer,
    /// Namespaces and their databases.
    databases: Mutex<HashMap<String, String>>,
}

/// More than the suite has cases.
const DATABASES_MAX: usize = 1000;

fn database(number: usize) -> String {
    format!("case{number}")
}

impl PostgresFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        let server = PostgresServer::start_or_skip()?;
        let at = server.addr();
        Some(Self::before(server, at, None))
    }

    pub(crate) fn through_pgbouncer_or_skip() -> Option<Self> {
        let server = PostgresServer::start_or_skip()?;
        let bouncer = PgBouncer::start_or_skip(&server, 20, (0..DATABASES_MAX).map(database))?;
        let at = bouncer.addr();
        Some(Self::before(server, at, Some(bouncer)))
    }

    fn before(server: PostgresServer, at: SocketAddr, bouncer: Option<PgBouncer>) -> Self {
        server.install(&leasehold::engine::postgres::script());
        Self { proxy: FaultProxy::start(at), _bouncer: bouncer, server, databases: Mutex::default() }
    }

    /// The database of a namespace, which is made when it is first asked for.
    fn database(&self, namespace: &str) -> String {
        let mut databases = self.databases.lock().unwrap();
        let number = databases.len();
        let made = databases.entry(namespace.to_owned()).or_insert_with(|| {
            assert!(number < DATABASES_MAX, "more cases than databases");
            self.server.database_named(&database(number));
            database(number)
        });
        made.clone()
    }
}

impl Fixture for PostgresFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let url = format!("postgres://leasehold@{}/{}", self.proxy.addr(), self.database(&namespace.name));
        Leasehold::builder(url).clock(namespace.clock.clone())
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract, Need::Outage, Need::Wipe]
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        self.builder(namespace).into_engine().unwrap()
    }

    fn leftovers(&self, namespace: &str) -> Vec<String> {
        let sql = "SELECT 'lock ' || name FROM leasehold.locks WHERE id IS NOT NULL AND ends > leasehold.now_us() \
                   UNION ALL SELECT 'holder of ' || name FROM leasehold.holders WHERE ends > leasehold.now_us() \
                   UNION ALL SELECT 'waiter of ' || name FROM leasehold.waiters";
        self.server.sql(&self.database(namespace), sql).lines().map(str::to_owned).collect()
    }

    fn wipe(&self) {
        for database in self.databases.lock().unwrap().values() {
            let sql = "TRUNCATE leasehold.locks, leasehold.holders, leasehold.waiters, leasehold.ended, \
                       leasehold.records, leasehold.watchers, leasehold.pools, leasehold.deadlines, leasehold.dead";
            self.server.sql(database, sql);
        }
    }

    /// A black hole: connections stay open and nothing answers.
    fn cut(&self, _: &str) {
        self.proxy.hold();
    }

    fn mend(&self, _: &str) {
        self.proxy.pass();
    }
}
