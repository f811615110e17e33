//! `sqlite:` as a ground: a file of its own for every space.

use leasehold::{Builder, Leasehold};
use leasehold_testkit::conformance::{Ground, Plot};

pub(crate) struct SqliteGround {
    folder: tempfile::TempDir,
}

impl SqliteGround {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
}

impl Ground for SqliteGround {
    fn builder(&self, plot: &Plot) -> Builder {
        let file = self.folder.path().join(format!("{}.db", plot.space));
        Leasehold::builder(format!("sqlite:{}", file.display())).clock(plot.clock.clone())
    }
}
