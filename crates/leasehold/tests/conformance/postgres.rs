//! PostgreSQL as a fixture: a database of its own for every namespace, behind a proxy that breaks the network.

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
    /// Namespaces and their databases.
    databases: Mutex<HashMap<String, String>>,
}

impl PostgresFixture {
    pub(crate) fn start_or_skip() -> Option<Self> {
        let server = PostgresServer::start_or_skip()?;
        server.install(&leasehold::engine::postgres::script());
        Some(Self { proxy: FaultProxy::start(server.addr()), server, databases: Mutex::default() })
    }

    /// The database of a namespace, which is made when it is first asked for.
    fn database(&self, namespace: &str) -> String {
        let mut databases = self.databases.lock().unwrap();
        let number = databases.len();
        let made = databases.entry(namespace.to_owned()).or_insert_with(|| {
            let name = format!("case{number}");
            self.server.database_named(&name);
            name
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
        let tables =
            ["locks", "holders", "waiters", "ended", "records", "watchers", "pools", "deadlines", "dead"];
        let deletes: String =
            tables.iter().map(|table| format!("DELETE FROM leasehold.{table};\n")).collect();
        // One session for all: a process for each takes longer than the case.
        let script: String = (self.databases.lock().unwrap().values())
            .map(|database| format!("\\c {database}\n{deletes}"))
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
