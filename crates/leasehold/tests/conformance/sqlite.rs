//! `sqlite:` as a fixture: a file of its own for every namespace.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::conformance::{Breakable, Fixture, Namespace, Need, Wrapped};

pub(crate) struct SqliteFixture {
    folder: tempfile::TempDir,
    switches: Mutex<HashMap<String, Breakable>>,
}

impl SqliteFixture {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), switches: Mutex::default() }
    }

    fn switch(&self, namespace: &str) -> Breakable {
        self.switches.lock().unwrap().entry(namespace.to_owned()).or_default().clone()
    }

    fn plain(&self, namespace: &Namespace) -> Builder {
        let file = self.folder.path().join(format!("{}.db", namespace.name));
        let builder = Leasehold::builder(format!("sqlite:{}", file.display())).clock(namespace.clock.clone());
        // A disk that others keep busy takes seconds to sync.
        builder.command_timeout(Duration::from_secs(20))
    }
}

impl Fixture for SqliteFixture {
    fn builder(&self, namespace: &Namespace) -> Builder {
        let builder = self.plain(namespace);
        if namespace.breakable {
            builder.engine(Arc::new(Wrapped::new(self.engine(namespace), self.switch(&namespace.name))))
        } else {
            builder
        }
    }

    fn offers(&self) -> &[Need] {
        &[Need::Contract, Need::Outage, Need::Wipe]
    }

    fn disturbs(&self, need: Need) -> bool {
        need == Need::Wipe
    }

    fn engine(&self, namespace: &Namespace) -> Arc<dyn Engine> {
        self.plain(namespace).into_engine().unwrap()
    }

    fn wipe(&self) {
        for file in fs::read_dir(self.folder.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }

    fn cut(&self, namespace: &str) {
        self.switch(namespace).cut();
    }

    fn mend(&self, namespace: &str) {
        self.switch(namespace).mend();
    }
}
