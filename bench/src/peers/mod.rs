//! Other lock libraries that are measured too: contestants in their own languages.
//!
//! The crate leasehold-peers has their programs, and builds them; [`trial`] runs every peer through every workload, once.

mod trial;

use leasehold_peers::{self as peers, Peer};
pub(crate) use leasehold_peers::{Program, folder, prepare};

pub(crate) use self::trial::run as try_all;

static PEERS: [&Peer; 8] = [
    &peers::REDSYNC,
    &peers::REDISLOCK,
    &peers::REDISSON,
    &peers::REDISSON_FENCED,
    &peers::REDISSON_FAIR,
    &peers::REDLOCK,
    &peers::REDIS_SEMAPHORE,
    &peers::REDIS_PY,
];

/// All peers with programs of their own; `rslock` is a crate, and part of this program.
pub(crate) fn all() -> &'static [&'static Peer] {
    &PEERS
}
