//! Other lock libraries, each in a small program in its own language that is a contestant.
//!
//! | where | what |
//! |---|---|
//! | `bench/peers/README.md` | what such a program does |
//! | `bench/peers/LANGUAGE/` | the program, with the exact versions of what it uses |
//! | [`toolchain`] | how it is built beside the build of this program |
//! | [`trial`] | every peer through every workload, once |

mod sources;
mod toolchain;
mod trial;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use self::toolchain::Toolchain;
pub(crate) use self::trial::run as try_all;
use crate::Failure;

/// A library that leasehold is compared with.
pub(crate) struct Peer {
    /// Also how its program calls it: `lib=NAME`.
    pub(crate) name: &'static str,
    toolchain: &'static Toolchain,
}

static PEERS: [Peer; 8] = [
    Peer { name: "redsync", toolchain: &toolchain::GO },
    Peer { name: "redislock", toolchain: &toolchain::GO },
    Peer { name: "redisson", toolchain: &toolchain::JAVA },
    Peer { name: "redisson-fenced", toolchain: &toolchain::JAVA },
    Peer { name: "redisson-fair", toolchain: &toolchain::JAVA },
    Peer { name: "redlock", toolchain: &toolchain::NODE },
    Peer { name: "redis-semaphore", toolchain: &toolchain::NODE },
    Peer { name: "redis-py", toolchain: &toolchain::PYTHON },
];

/// All peers with programs of their own; `rslock` is a crate, and part of this program.
pub(crate) fn all() -> &'static [Peer] {
    &PEERS
}

/// The folder for what is fetched and built: beside the build of this program, so that `cargo clean` removes it.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).ok_or("this program is in no target folder")?;
    Ok(target.join("peers"))
}

/// Builds the program of a peer, unless that is done; the error says why the peer is skipped.
pub(crate) fn prepare(peer: &Peer, folder: &Path) -> Result<Program, String> {
    let folder = peer.toolchain.build_in(folder)?;
    let mut program = Program { name: peer.name, folder, run: peer.toolchain.run, about: Value::Null };
    program.about = program.ask_version()?;
    Ok(program)
}

/// A peer that can be started.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    folder: PathBuf,
    run: &'static [&'static str],
    about: Value,
}

impl Program {
    /// Library, version and language, as the program reports them.
    pub(crate) fn version(&self) -> String {
        let text = |key: &str| self.about[key].as_str().unwrap_or("unknown");
        format!("{} {} ({})", text("library"), text("version"), text("language"))
    }

    /// Starts it as a contestant; the keys of the workload are for the caller to add.
    pub(crate) fn command(&self, workload: &str) -> Command {
        let mut command = toolchain::command_in(&self.folder, self.run);
        command.arg(workload).arg(format!("lib={}", self.name));
        command
    }

    fn ask_version(&self) -> Result<Value, String> {
        let log = self.folder.join("version.log");
        let printed = toolchain::output_of(&mut self.command("version"), &log)?;
        // A runtime may have warnings of its own.
        let about = printed.lines().find_map(|line| serde_json::from_str(line).ok());
        about.ok_or_else(|| format!("{} does not report its version: {printed}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_peer() {
        for peer in all() {
            assert_eq!(all().iter().filter(|other| other.name == peer.name).count(), 1, "{}", peer.name);
        }
    }
}
