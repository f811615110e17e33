//! The libraries, and what each of them calls a lock.

use leasehold::Format;
use leasehold_peers::{self as peers, Peer};

use crate::{
    cases::{self, Case},
    redisson,
    servers::Topology,
    traps,
};

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) peer: &'static Peer,
    /// What it puts before a name by itself.
    pub(crate) adds: &'static str,
    /// How its locks lie in Redis: as plain strings with an expiry, or as hashes.
    pub(crate) format: Format,
    /// Where it is tried.
    pub(crate) topologies: &'static [Topology],
    /// What only this library does.
    pub(crate) traps: &'static [Case],
}

/// Uses the key that it is given.
const fn as_given(peer: &'static Peer) -> Library {
    Library { peer, adds: "", format: Format::Plain, topologies: &[Topology::One], traps: &[] }
}

/// Its locks are hashes.
const fn of_redisson(peer: &'static Peer, traps: &'static [Case]) -> Library {
    let topologies = &[Topology::One, Topology::Cluster, Topology::Sentinel];
    Library { format: Format::Redisson, topologies, traps, ..as_given(peer) }
}

static LIBRARIES: [Library; 8] = [
    as_given(&peers::REDIS_PY),
    Library { adds: "lock:", traps: traps::PYTHON_REDIS_LOCK, ..as_given(&peers::PYTHON_REDIS_LOCK) },
    as_given(&peers::REDLOCK),
    Library { adds: "mutex:", ..as_given(&peers::REDIS_SEMAPHORE) },
    as_given(&peers::REDSYNC),
    as_given(&peers::REDISLOCK),
    of_redisson(&peers::REDISSON, redisson::PLAIN),
    of_redisson(&peers::REDISSON_FENCED, redisson::FENCED),
];

pub(crate) fn all() -> &'static [Library] {
    &LIBRARIES
}

impl Library {
    pub(crate) fn name(&self) -> &'static str {
        self.peer.name
    }

    /// What the report calls it there.
    pub(crate) fn on(&self, topology: Topology) -> String {
        match topology {
            Topology::One => self.name().to_owned(),
            Topology::Cluster => format!("{}, cluster", self.name()),
            Topology::Sentinel => format!("{}, sentinel", self.name()),
        }
    }

    /// What is tried with it.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &'static Case> {
        let of_strings = if self.format == Format::Plain { cases::OF_STRINGS } else { &[] };
        cases::SHARED.iter().chain(of_strings).chain(self.traps).chain([&cases::LAST])
    }

    /// The prefix that leasehold needs to use the same keys.
    pub(crate) fn prefix(&self) -> &'static str {
        if self.adds.is_empty() { "lock:" } else { self.adds }
    }

    /// How the library reaches a key: what its Redis client has to put before everything, and what the library is told.
    pub(crate) fn told<'a>(&self, key: &'a str) -> (&'a str, &'a str) {
        key.split_once(self.adds).expect("the key has what the library adds")
    }
}

/// For the command line.
pub(crate) fn find(name: &str) -> Result<&'static Library, String> {
    let names: Vec<_> = all().iter().map(Library::name).collect();
    let found = all().iter().find(|library| library.name() == name);
    found.ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn a_library_is_told_what_it_does_not_add_itself() {
        let told = |name, key| find(name).unwrap().told(key);
        assert_eq!(told("redsync", "lock:mutex:x"), ("", "lock:mutex:x"));
        assert_eq!(told("python-redis-lock", "lock:mutex:x"), ("", "mutex:x"));
        assert_eq!(told("redis-semaphore", "lock:mutex:x"), ("lock:", "x"));
        assert_eq!(find("redis-semaphore").unwrap().prefix(), "mutex:");
        assert!(find("redlok").unwrap_err().contains("redlock"));
    }

    #[test]
    fn the_page_names_every_library_in_the_version_that_is_installed() {
        let read = |path: &str| {
            fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
        };
        let page = read("docs/interop.md");
        let installed = [
            ("redis-py", "peers/python/requirements.txt", "redis=="),
            ("python-redis-lock", "peers/python/requirements.txt", "python-redis-lock=="),
            ("redlock", "peers/node/package.json", "    \"redlock\": \""),
            ("redis-semaphore", "peers/node/package.json", "    \"redis-semaphore\": \""),
            ("redsync", "peers/go/go.mod", "\tgithub.com/go-redsync/redsync/v4 v"),
            ("redislock", "peers/go/go.mod", "\tgithub.com/bsm/redislock v"),
            ("redisson", "peers/java/pom.xml", "      <artifactId>redisson</artifactId>\n      <version>"),
            (
                "redisson-fenced",
                "peers/java/pom.xml",
                "      <artifactId>redisson</artifactId>\n      <version>",
            ),
        ];
        assert_eq!(installed.map(|(name, ..)| name), LIBRARIES.each_ref().map(Library::name));
        for (name, file, before) in installed {
            let text = read(file);
            let version = text.split(&format!("\n{before}")).nth(1).unwrap();
            let version = version.split(['"', '\n', '<']).next().unwrap();
            let row = page.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
            assert!(row.contains(&format!("| {version} |")), "{name} {version}: {row}");
            let topologies = &find(name).unwrap().topologies;
            let words = topologies.iter().map(|topology| format!("{topology:?}").to_lowercase());
            let words = words.collect::<Vec<_>>().join(", ");
            assert!(row.ends_with(&format!("| {words} |")), "{name} on {words}: {row}");
        }
    }
}
