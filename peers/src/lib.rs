//! Other lock libraries, each in a small program in its own language.
//!
//! | where | what |
//! |---|---|
//! | `peers/README.md` | what such a program does |
//! | `peers/LANGUAGE/` | the program, with the exact versions of what it uses |
//! | `toolchain.rs` | how it is built beside the build of this workspace |
//! | [`Process`] | a running one, which answers lines with lines |
//! | [`orders`] | the other end of it, for programs of this workspace |

mod orders;
mod process;
mod sources;
mod toolchain;

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use self::toolchain::Toolchain;
pub use self::{orders::orders, process::Process};

/// A library that leasehold is compared with, or shares locks with.
#[derive(Debug)]
pub struct Peer {
    /// Also how its program calls it: `lib=NAME`.
    pub name: &'static str,
    toolchain: &'static Toolchain,
}

macro_rules! peers {
    ($($(#[$doc:meta])* $peer:ident = $name:literal in $toolchain:ident;)+) => {$(
        $(#[$doc])*
        pub static $peer: Peer = Peer { name: $name, toolchain: &toolchain::$toolchain };
    )+

        #[cfg(test)]
        static ALL: &[&Peer] = &[$(&$peer),+];
    };
}

peers! {
    /// Go: github.com/go-redsync/redsync.
    REDSYNC = "redsync" in GO;
    /// Go: github.com/bsm/redislock.
    REDISLOCK = "redislock" in GO;
    /// Java: `RLock` of org.redisson:redisson.
    REDISSON = "redisson" in JAVA;
    /// Java: `RFencedLock` of org.redisson:redisson.
    REDISSON_FENCED = "redisson-fenced" in JAVA;
    /// Java: `getFairLock` of org.redisson:redisson.
    REDISSON_FAIR = "redisson-fair" in JAVA;
    /// Java: the read lock of `RReadWriteLock` of org.redisson:redisson.
    REDISSON_SHARED = "redisson-shared" in JAVA;
    /// Java: `RPermitExpirableSemaphore` of org.redisson:redisson.
    REDISSON_PERMITS = "redisson-permits" in JAVA;
    /// Node: redlock.
    REDLOCK = "redlock" in NODE;
    /// Node: `Mutex` of redis-semaphore.
    REDIS_SEMAPHORE = "redis-semaphore" in NODE;
    /// Python: `Lock` of redis.
    REDIS_PY = "redis-py" in PYTHON;
    /// Python: python-redis-lock.
    PYTHON_REDIS_LOCK = "python-redis-lock" in PYTHON;
}

/// The folder for what is fetched and built: beside the build of this program, so that `cargo clean` removes it.
pub fn folder() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2);
    let target = target.ok_or_else(|| io::Error::other("this program is in no target folder"))?;
    Ok(target.join("peers"))
}

/// Builds the program of a peer, unless that is done; the error says why the peer is skipped.
pub fn prepare(peer: &Peer, folder: &Path) -> Result<Program, String> {
    let folder = peer.toolchain.build_in(folder)?;
    let mut program = Program { name: peer.name, folder, run: peer.toolchain.run, about: Value::Null };
    program.about = program.ask_version()?;
    Ok(program)
}

/// A peer that can be started.
#[derive(Debug)]
pub struct Program {
    /// The peer's.
    pub name: &'static str,
    folder: PathBuf,
    run: &'static [&'static str],
    about: Value,
}

impl Program {
    /// Library, version and language, as the program reports them.
    pub fn version(&self) -> String {
        let text = |key: &str| self.about[key].as_str().unwrap_or("unknown");
        format!("{} {} ({})", text("library"), text("version"), text("language"))
    }

    /// Starts it for one workload; the keys of the workload are for the caller to add.
    pub fn command(&self, workload: &str) -> Command {
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
        for peer in ALL {
            assert_eq!(ALL.iter().filter(|other| other.name == peer.name).count(), 1, "{}", peer.name);
        }
    }
}
