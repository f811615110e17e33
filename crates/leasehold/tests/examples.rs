//! The examples, run by name as a reader would.
#![cfg(all(feature = "memory", feature = "redis", feature = "config", feature = "json"))]

use std::collections::BTreeSet;

#[path = "../examples/deadlines.rs"]
mod deadlines;
#[path = "../examples/election.rs"]
mod election;
#[path = "../examples/fenced_sql.rs"]
mod fenced_sql;
#[path = "../examples/idempotent_axum.rs"]
mod idempotent_axum;
#[path = "../examples/latch.rs"]
mod latch;
#[path = "../examples/lock.rs"]
mod lock;
#[path = "../examples/lock_all.rs"]
mod lock_all;
#[path = "../examples/marker.rs"]
mod marker;
#[path = "../examples/observer.rs"]
mod observer;
#[path = "../examples/once_per_interval.rs"]
mod once_per_interval;
#[path = "../examples/opentelemetry.rs"]
mod opentelemetry;
#[path = "../examples/policies.rs"]
mod policies;
#[path = "../examples/quorum.rs"]
mod quorum;
#[path = "../examples/read_write.rs"]
mod read_write;
#[path = "../examples/reentrant.rs"]
mod reentrant;
#[path = "../examples/run.rs"]
mod run;
#[path = "../examples/semaphore.rs"]
mod semaphore;
#[path = "../examples/try_lock.rs"]
mod try_lock;

macro_rules! examples {
    ($($name:ident)+) => {
        const NAMES: &[&str] = &[$(stringify!($name)),+];

        mod example {
            $(
                #[test]
                fn $name() {
                    super::$name::main().unwrap();
                }
            )+
        }
    };
}

examples! {
    deadlines election fenced_sql idempotent_axum latch lock lock_all marker observer once_per_interval
    opentelemetry policies quorum read_write reentrant run semaphore try_lock
}

#[test]
fn every_example_is_run() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let names: BTreeSet<_> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names, NAMES.iter().map(|&name| name.to_owned()).collect());
}
