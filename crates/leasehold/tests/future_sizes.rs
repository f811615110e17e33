//! Futures on the path of every lock stay small: a large one is moved around, and allocated where it is boxed.
#![cfg(all(feature = "memory", feature = "redis"))]

use std::time::Duration;

use leasehold::{
    Clock, Fence, Leasehold,
    engine::{Acks, Claim, Mode, Queue},
    name::Name,
    owner::{Holder, Owner},
};

const BYTES_MAX: usize = 2048;

fn claim() -> Claim {
    Claim {
        name: Name::new("x").unwrap(),
        owner: Owner::new(7, &Holder::Foreign),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(30),
        format: leasehold::engine::Format::Plain,
        lock_delay: Duration::ZERO,
        queue: Some(Queue { wait: Duration::from_secs(5), poll_every: Duration::from_secs(5) }),
        acks: Acks::None,
    }
}

fn check(what: &str, sizes: &[(&str, usize)]) {
    assert!(sizes.iter().all(|(_, size)| *size <= BYTES_MAX), "{what}: {sizes:?}");
}

#[tokio::test]
async fn callers_await_small_futures() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let lock = || leases.lock("x");
    let guard = lock().acquire().await.unwrap();
    let borrowing = [("extend", size_of_val(&guard.extend())), ("lost", size_of_val(&guard.lost()))];
    let sizes = [
        ("acquire", size_of_val(&lock().acquire())),
        ("acquire_or_proceed", size_of_val(&lock().acquire_or_proceed())),
        ("try_acquire", size_of_val(&lock().try_acquire())),
        ("release", size_of_val(&guard.release())),
    ];
    check("a guard", &borrowing);
    check("a client", &sizes);
}

/// None of them is polled, so no server is needed.
#[tokio::test]
async fn engines_box_small_futures() {
    let (claim, until) = (claim(), Clock::system().now());
    let hold = claim.hold(Fence::new(1));
    for url in [
        "memory:",
        "redis://127.0.0.1:1",
        "redis-cluster://127.0.0.1:1",
        "redis-sentinel://127.0.0.1:1/mymaster",
        "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
    ] {
        let engine = Leasehold::builder(url).into_engine().unwrap();
        let leases = engine.leases();
        let sizes = [
            ("claim", size_of_val(&*leases.claim(&claim, until))),
            ("release", size_of_val(&*leases.release(&hold, until))),
        ];
        check(url, &sizes);
    }
}
