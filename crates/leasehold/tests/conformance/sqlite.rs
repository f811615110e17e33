//! `sqlite:` as a ground: a file of its own for every space.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex},
};

use leasehold::{Builder, Leasehold, engine::Engine};
use leasehold_testkit::conformance::{Breakable, Ground, Need, Plot, Wrapped};

pub(crate) struct SqliteGround {
    folder: tempfile::TempDir,
    switches: Mutex<HashMap<String, Breakable>>,
}

impl SqliteGround {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), switches: Mutex::default() }
    }

    fn switch(&self, space: &str) -> Breakable {
        self.switches.lock().unwrap().entry(space.to_owned()).or_default().clone()
    }

    fn plain(&self, plot: &Plot) -> Builder {
        let file = self.folder.path().join(format!("{}.db", plot.space));
        Leasehold::builder(format!("sqlite:{}", file.display())).clock(plot.clock.clone())
    }
}

impl Ground for SqliteGround {
    fn builder(&self, plot: &Plot) -> Builder {
        let builder = self.plain(plot);
        if plot.breakable {
            builder.engine(Arc::new(Wrapped::new(self.engine(plot), self.switch(&plot.space))))
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

    fn engine(&self, plot: &Plot) -> Arc<dyn Engine> {
        self.plain(plot).into_engine().unwrap()
    }

    fn wipe(&self) {
        for file in fs::read_dir(self.folder.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }

    fn cut(&self, space: &str) {
        self.switch(space).cut();
    }

    fn mend(&self, space: &str) {
        self.switch(space).mend();
    }
}
