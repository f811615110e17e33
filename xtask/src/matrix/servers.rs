//! Server versions, and where each comes from: installed, or unpacked from another Debian release.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One version of a server.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) name: &'static str,
    /// The prefix of the output of `redis-server --version`.
    banner: &'static str,
    package: &'static str,
    /// Suites of the Debian archive that have it, best first.
    suites: &'static [&'static str],
}

pub(super) const VERSIONS: [Version; 4] = [
    Version {
        name: "redis-7.0",
        banner: "Redis server v=7.0",
        package: "redis-server",
        suites: &["bookworm"],
    },
    Version {
        name: "redis-8",
        banner: "Redis server v=8.",
        package: "redis-server",
        suites: &["trixie", "testing"],
    },
    Version { name: "valkey-8", banner: "Valkey server v=8.", package: "valkey-server", suites: &["trixie"] },
    Version {
        name: "valkey-9",
        banner: "Valkey server v=9.",
        package: "valkey-server",
        suites: &["testing", "unstable"],
    },
];

/// A server that runs on this machine.
pub(super) struct Server {
    /// The folder with its programs; `None` if they are on the search path.
    pub(super) folder: Option<PathBuf>,
    /// As `8.0.2`.
    pub(super) number: String,
}

/// Unpacks what apt downloads; see the file for how.
const FETCH: &str = include_str!("fetch.sh");

impl Version {
    /// The server as it is installed, or kept in `cache`.
    pub(super) fn find(&self, cache: &Path) -> Option<Server> {
        let bin = cache.join(self.name).join("bin");
        [(Path::new("redis-server").to_owned(), None), (bin.join("redis-server"), Some(bin))]
            .into_iter()
            .find_map(|(program, folder)| Some(Server { folder, number: self.number(&program)? }))
    }

    /// Fetches it into `cache` if it is missing. The error says why it is unavailable.
    pub(super) fn fetch(&self, cache: &Path) -> Result<Server, String> {
        let mut why = Vec::new();
        for suite in self.suites {
            if let Some(server) = self.find(cache) {
                return Ok(server);
            }
            println!("{}: unpacking {} of {suite}", self.name, self.package);
            match self.fetch_from(suite, cache) {
                Ok(()) => why.push(format!("{suite} has another version")),
                Err(error) => why.push(format!("{suite}: {error}")),
            }
        }
        self.find(cache).ok_or_else(|| why.join("; "))
    }

    fn fetch_from(&self, suite: &str, cache: &Path) -> Result<(), String> {
        let mut fetch = Command::new("sh");
        fetch.args(["-c", FETCH, "fetch.sh"]).arg(cache.join(self.name)).args([self.package, suite]);
        let output = fetch.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let words = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(()),
            false => Err(words.trim().lines().last().unwrap_or("no reason given").to_owned()),
        }
    }

    /// The exact version of a program, if it runs and is this one.
    fn number(&self, program: &Path) -> Option<String> {
        let output = Command::new(program).arg("--version").output().ok()?;
        let banner = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = banner.split(' ').find_map(|word| word.strip_prefix("v="))?;
        banner.starts_with(self.banner).then(|| number.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_taken_only_for_the_version_that_it_says_it_is() {
        let folder = std::env::temp_dir().join(format!("xtask-matrix-{}", std::process::id()));
        let says = |banner: &str| {
            let bin = folder.join("valkey-8/bin");
            std::fs::create_dir_all(&bin).unwrap();
            let program = bin.join("redis-server");
            std::fs::write(&program, format!("#!/bin/sh\necho '{banner}'\n")).unwrap();
            assert!(Command::new("chmod").arg("755").arg(&program).status().unwrap().success());
            VERSIONS[2].find(&folder).map(|server| server.number)
        };
        assert_eq!(says("Valkey server v=8.1.1 sha=0 bits=64").as_deref(), Some("8.1.1"));
        assert_eq!(says("Valkey server v=9.1.2 sha=0 bits=64"), None);
        assert_eq!(says("Redis server v=8.0.2 sha=0 bits=64"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
