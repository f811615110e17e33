//! Latches and barriers on real servers: what the script decides, how it lies in Redis, and what faults do to it.
#![cfg(feature = "redis")]

#[path = "../each_right/mod.rs"]
mod each_right;
#[path = "../every_server/mod.rs"]
mod every_server;
#[cfg(feature = "memory")]
#[path = "../latch_walk/mod.rs"]
mod latch_walk;
mod layout;
mod moving;
mod rights;
#[path = "../security_md/mod.rs"]
mod security_md;

use std::sync::Arc;

use every_server::{LONG, soon};
use leasehold::{
    engine::{
        Engine,
        latches::{Answer, Kind, Op, Request, Said},
    },
    name::Name,
    owner::{Holder, Owner},
};

fn owner(random: u128) -> Owner {
    Owner::new(random, &Holder::this_process(&random.to_string(), 1))
}

/// A request about a latch of two.
fn request(random: u128, name: &str, op: Op) -> Request {
    let (name, count) = (Name::new(name).unwrap(), 2.try_into().unwrap());
    Request { name, kind: Kind::Latch, count, owner: owner(random), op }
}

async fn ask(engine: &Arc<dyn Engine>, request: &Request) -> Answer {
    engine.latches().unwrap().ask(request, soon()).await.unwrap()
}

const JOIN: Op = Op::Join { ttl: LONG };

/// Takes part in a latch of two; returns its generation.
async fn join(engine: &Arc<dyn Engine>, random: u128, name: &str) -> u64 {
    let answer = ask(engine, &request(random, name, JOIN)).await;
    assert_eq!(answer.said, Said::Joined);
    answer.generation
}

#[tokio::test]
async fn a_quorum_refuses_them_and_says_why() {
    let leases = leasehold::Leasehold::builder("redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
        .connect_lazy()
        .unwrap();
    let latch = leases.latch("x", 2).join().await.map(drop).unwrap_err();
    let barrier = leases.barrier("x", 2).join().await.map(drop).unwrap_err();
    let waiting = leases.latch("x", 2).wait(LONG).await.map(drop).unwrap_err();
    let state = leases.latch("x", 2).state().await.map(drop).unwrap_err();
    for error in [latch, barrier, waiting, state] {
        assert_eq!(error.kind(), leasehold::ErrorKind::Unsupported);
        assert!(error.to_string().contains("cannot agree on who was counted"), "{error}");
    }
}

/// On one server; others have the same script, and get a few.
#[cfg(feature = "memory")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_decides_as_the_pure_decider_does() {
    for servers in every_server::Servers::all() {
        let is_one = matches!(servers, every_server::Servers::One(_));
        let walks = if is_one { 24 } else { 6 };
        let said = latch_walk::walk(&every_server::open(servers.url()), walks).await;
        if is_one {
            latch_walk::assert_varied(&said);
        }
    }
}
