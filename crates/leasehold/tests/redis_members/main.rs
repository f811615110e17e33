//! Readers and permits on real servers: what the scripts decide, how it lies in Redis, and what faults do to it.
#![cfg(feature = "redis")]

#[path = "../each_right/mod.rs"]
mod each_right;
#[path = "../every_server/mod.rs"]
mod every_server;
mod faults;
mod layout;
mod rights;
#[path = "../security_md/mod.rs"]
mod security_md;
#[cfg(feature = "memory")]
mod walk;

use std::{num::NonZeroU32, time::Duration};

use every_server::LONG;
use leasehold::{
    Leasehold,
    engine::{Acks, Claim, Mode},
    name::Name,
    owner::{Holder, Owner},
};
use leasehold_testkit::eventually_async;

async fn client(url: impl AsRef<str>) -> Leasehold {
    Leasehold::builder(url).command_timeout(LONG).connect().await.unwrap()
}

async fn waiting(leases: &Leasehold, name: &str, count: u32) {
    let arrived = || async { leases.inspect(name).await.unwrap().waiting == count };
    eventually_async(LONG, "waiters", arrived).await;
}

fn permits(take: u32, of: u32) -> Mode {
    let number = |number| NonZeroU32::new(number).unwrap();
    Mode::Permits { take: number(take), of: number(of) }
}

/// A claim that asks once.
fn claim(random: u128, name: &str, mode: Mode) -> Claim {
    Claim {
        name: Name::new(name).unwrap(),
        owner: Owner::new(random, &Holder::this_process(&random.to_string(), 1)),
        ttl: LONG,
        format: leasehold::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        mode,
        queue: None,
        acks: Acks::None,
    }
}
