//! `leasehold demo`: small systems that show what coordination is for.

use std::thread;

use clap::Args;
use leasehold_demos::{DEMOS, Options, find};
use serde::Serialize;

use super::Global;
use crate::exit::{Exit, Failure};

/// Run a small system whose processes are killed at random, and check its invariant
#[derive(Args)]
#[command(after_help = "\
Each demo runs several processes on a database and a store of its own, kills workers without warning, and checks the
database in a separate process at the end. --unsafe switches off the coordination calls and nothing else. On a store that
is given by --store all keys begin with demo: and are removed at the end.

Examples:
  leasehold demo                                 list them
  leasehold demo all                             run each with and without coordination, and compare
  leasehold demo flash-sale                      run one on the embedded store
  leasehold demo flash-sale --unsafe             see what breaks without coordination
  leasehold demo flash-sale --both               run it with and without, and compare
  leasehold demo escrow --store redis://HOST     run one on Redis
  leasehold demo escrow --topology postgres      run it with its money beside its locks, on a server that crashes

Exit codes: 0 the invariant held; 1 it broke; 64 there is no such demo or variant; 70 it could not be run to its end")]
pub(super) struct Demo {
    /// The demo, or "all" of them; without a name they are listed
    name: Option<String>,
    #[command(flatten)]
    options: Options,
}

impl Demo {
    pub(super) fn execute(self, global: &Global) -> Result<Exit, Failure> {
        let Some(name) = self.name else { return list(global) };
        let chosen = match (name.as_str(), find(&name)) {
            (_, Some(demo)) => vec![demo],
            ("all", None) => DEMOS.to_vec(),
            _ => {
                let names: Vec<_> = DEMOS.iter().map(|demo| demo.name).collect();
                return Err(
                    leasehold::Error::invalid("demo", name, format!("{}, all", names.join(", "))).into()
                );
            }
        };
        // Only a store that was named explicitly: a demo must not load a shared store by default.
        let options = Options { store: global.store.clone(), json: global.json, ..self.options };
        // It has a runtime of its own.
        let run = move || match chosen[..] {
            [demo] => leasehold_demos::run(demo, &options),
            _ => leasehold_demos::run_all(&chosen, &options),
        };
        let exit_code = thread::spawn(run).join();
        Ok(Exit(exit_code.unwrap_or(70)))
    }
}

fn list(global: &Global) -> Result<Exit, Failure> {
    #[derive(Serialize)]
    struct Listed {
        demos: Vec<Line>,
    }
    #[derive(Serialize)]
    struct Line {
        name: &'static str,
        line: &'static str,
    }
    let demos = DEMOS.iter().map(|demo| Line { name: demo.name, line: demo.line }).collect();
    let text = || DEMOS.iter().map(|demo| format!("{:<11} {}\n", demo.name, demo.line)).collect();
    global.output().print(Listed { demos }, text)?;
    Ok(Exit::OK)
}
