//! The hot paths of leasehold, one at a time, for `cargo xtask bench --check`.
//!
//! `leasehold-bench-check PATH COUNT` warms up, then does COUNT operations inside of [`counted`], which is where
//! `valgrind --tool=callgrind --toggle-collect` counts. Everything runs on one thread, so the count hardly varies.

mod paths;
mod server;

use std::{io::Write, process::ExitCode};

use tokio::runtime::{Builder, Runtime};

use paths::HotPath;

/// Anything that ends a run.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(count)) = (words.next(), words.next()) else {
        return Err("expected PATH and COUNT".into());
    };
    let (path, count) = (HotPath::named(&path).ok_or("no such path")?, count.parse()?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let bench = runtime.block_on(path.start())?;
    runtime.block_on(path.run(&bench, path.warm_up()))?;
    counted(&runtime, path.run(&bench, count))
}

/// What is counted. Not inlined, because callgrind finds it by its name.
#[inline(never)]
fn counted<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    runtime.block_on(work)
}
