//! The libraries, and what each of them calls a lock.

use leasehold_peers::{self as peers, Peer};

use crate::{cases::Case, traps};

/// A library whose locks are plain strings with an expiry, as leasehold's.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) peer: &'static Peer,
    /// What it puts before a name by itself.
    pub(crate) adds: &'static str,
    /// What only this library does.
    pub(crate) traps: &'static [Case],
}

/// Uses the key that it is given.
const fn as_given(peer: &'static Peer) -> Library {
    Library { peer, adds: "", traps: &[] }
}

static LIBRARIES: [Library; 6] = [
    as_given(&peers::REDIS_PY),
    Library { peer: &peers::PYTHON_REDIS_LOCK, adds: "lock:", traps: traps::PYTHON_REDIS_LOCK },
    as_given(&peers::REDLOCK),
    Library { peer: &peers::REDIS_SEMAPHORE, adds: "mutex:", traps: &[] },
    as_given(&peers::REDSYNC),
    as_given(&peers::REDISLOCK),
];

pub(crate) fn all() -> &'static [Library] {
    &LIBRARIES
}

impl Library {
    pub(crate) fn name(&self) -> &'static str {
        self.peer.name
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
