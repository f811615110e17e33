//! PostgreSQL as a fixture: a database for every namespace, behind a proxy that breaks the network.

use std::{
    collections::HashMap,
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
    bouncer: Option<PgBouncer>,
    /// The way to the server itself, for notifications: a pooler loses them.
    listen: FaultProxy,
    server: PostgresServer,
    databases: Mutex<Databases>,
}

/// A database is hundreds of files, so the few that cases use at the same time are used again.
#[derive(Default)]
struct Databases {
    by_namespace: HashMap<String, String>,
    free: Vec<String>,
    created: usize,
}

/// More than the cases that run at the same time.
const DATABASES_MAX: usize = 40;

fn database(number: usize) -> String {
    format!("case{number}")
}

impl PostgresFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        Some(Self::before(PostgresServer::start_or_skip()?, None))
    }

    pub(crate) fn through_pgbouncer_or_skip() -> Option<Self> {
        let server = PostgresServer::start_or_skip()?;
        let bouncer = PgBouncer::start_or_skip(&server, 20, (1..=DATABASES_MAX).map(database))?;
        Some(Self::before(server, Some(bouncer)))
    }

    fn before(server: PostgresServer, bouncer: Option<PgBouncer>) -> Self {
        server.install(&leasehold::engine::postgres::script());
        let at = bouncer.as_ref().map_or(server.addr(), PgBouncer::addr);
        let (proxy, listen) = (FaultProxy::start(at), FaultProxy::start(server.addr()));
        Self { proxy, bouncer, listen, server, databases: Mutex::default() }
    }

    /// The database of a namespace, which is empty when it is first asked for.
    fn database(&self, namespace: &str) -> String {
        let mut databases = self.databases.lock().unwrap();
        if let Some(name) = databases.by_namespace.get(namespace) {
            return name.clone();
        }
        let name = databases.free.pop().unwrap_or_else(|| {
            databases.created += 1;
            assert!(databases.created <= DATABASES_MAX, "cases do not give their databases back");
            let name = database(databases.created);
            self.server.database_named(&name);
            name
        });
        databases.by_namespace.insert(namespace.to_owned(), name.clone());
        name
    }
}

const TABLES: [&str; 11] = [
    "locks",
    "holders",
    "waiters",
    "ended",
    "records",
    "watchers",
    "latches",
    "parties",
    "pools",
    "deadlines",
    "dead",
];

fn deletes() -> String {
    TABLES.map(|table| format!("DELETE FROM leasehold.{table};\n")).concat()
}

impl Fixture for PostgresFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let (at, database) = (self.proxy.addr(), self.database(&namespace.name));
        let listen =
            self.bouncer.as_ref().map_or(String::new(), |_| format!("?listen={}", self.listen.addr()));
        let url = format!("postgres://leasehold@{at}/{database}{listen}");
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

    fn ended(&self, namespace: &str) {
        let Some(name) = self.databases.lock().unwrap().by_namespace.remove(namespace) else { return };
        // A call that is still under way must not add to the next case.
        let tables = TABLES.map(|table| format!("leasehold.{table}")).join(", ");
        let script = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = '{name}' AND pid <> pg_backend_pid();\n\
             BEGIN;\nLOCK TABLE {tables};\n{}COMMIT;",
            deletes()
        );
        let clean = || drop(self.server.sql(&name, &script));
        match &self.bouncer {
            Some(bouncer) => bouncer.without_clients(&name, clean),
            None => clean(),
        }
        self.databases.lock().unwrap().free.push(name);
    }

    fn wipe(&self) {
        // One session for all: a process for each takes longer than the case.
        let script: String = (self.databases.lock().unwrap().by_namespace.values())
            .map(|database| format!("\\c {database}\n{}", deletes()))
            .collect();
        self.server.sql("postgres", &script);
    }

    /// A black hole: connections stay open and nothing answers.
    fn cut(&self, _: &str) {
        self.proxy.hold();
        self.listen.hold();
    }

    fn mend(&self, _: &str) {
        self.proxy.pass();
        self.listen.pass();
    }
}
