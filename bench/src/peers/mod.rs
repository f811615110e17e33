//! Other lock libraries that are measured too: contestants in their own languages.
//!
//! The crate leasehold-peers has their programs, and builds them; [`trial`] runs every peer through every workload, once.

mod trial;

use leasehold_peers::{self as peers, Peer};
pub(crate) use leasehold_peers::{Program, folder, prepare};

pub(crate) use self::trial::run as try_all;

static PEERS: [&Peer; 10] = [
    &peers::REDSYNC,
    &peers::REDISLOCK,
    &peers::REDISSON,
    &peers::REDISSON_FENCED,
    &peers::REDISSON_FAIR,
    &peers::REDLOCK,
    &peers::REDIS_SEMAPHORE,
    &peers::REDIS_PY,
    &peers::REDISSON_SHARED,
    &peers::REDISSON_PERMITS,
];

/// Those that are no exclusive locks.
static FAMILY: [&Peer; 2] = [&peers::REDISSON_SHARED, &peers::REDISSON_PERMITS];

/// Whether a peer's locks exclude everybody else.
pub(crate) fn is_exclusive(program: &Program) -> bool {
    FAMILY.iter().all(|peer| peer.name != program.name)
}

/// All peers with programs of their own; `rslock` is a crate, and part of this program.
pub(crate) fn all() -> &'static [&'static Peer] {
    &PEERS
}
