//! PostgreSQL as a fixture: a database for every namespace, behind a proxy that breaks the network.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::{
    FaultProxy, PostgresServer,
    conformance::{Fixture, Namespace, Need},
};

pub(crate) struct PostgresFixture {
    // Declared before the server: they end before it does.
    proxy: FaultProxy,
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

impl PostgresFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        let server = PostgresServer::start_or_skip()?;
        server.install(&leasehold::engine::postgres::script());
        Some(Self { proxy: FaultProxy::start(server.addr()), server, databases: Mutex::default() })
    }

    /// The database of a namespace, which is empty when it is first asked for.
    fn database(&self, namespace: &str) -> String {
        let mut databases = self.databases.lock().unwrap();
        if let Some(name) = databases.by_namespace.get(namespace) {
            return name.clone();
        }
        let name = databases.free.pop().unwrap_or_else(|| {
            databases.created += 1;
            let name = format!("case{}", databases.created);
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
        self.server.sql(&name, &script);
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
    }

    fn mend(&self, _: &str) {
        self.proxy.pass();
    }
}
