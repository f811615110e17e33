//! The functions decide as the pure decider does.

use leasehold::Leasehold;
use leasehold_testkit::walk::compare;

use super::{database, engine};

const WALKS: u64 = 24;

/// SQLite has turns as PostgreSQL has, and decides in Rust.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_decide_as_the_pure_decider_does() {
    let Some((server, database)) = database() else { return };
    let dir = tempfile::tempdir().unwrap();
    let store = engine(&server.url(&database));
    let reference = format!("sqlite:{}", dir.path().join("reference.db").display());
    let reference = Leasehold::builder(reference).into_engine().unwrap();
    for seed in 0..WALKS {
        compare(store.clone(), reference.clone(), seed).await;
    }
}
