//! A client that asks for much at once, on a machine that is busy with other things.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream};
use leasehold_testkit::eventually_async;

use crate::fixture::{LONG, client, ms, nothing_is_left, quorum};

const MAX_TTL: Duration = Duration::from_secs(60);

/// Threads that do nothing but keep all cores busy.
struct Spinners(Arc<AtomicBool>);

impl Spinners {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let stop = stop.clone();
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
        }
        Self(stop)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_loses_no_lease_to_its_own_load() {
    const LEASES: usize = 3_000;
    let Some(set) = quorum(3, MAX_TTL).await else { return };
    let leases = client(&set, MAX_TTL);
    let _ = leases.lock("warm up").acquire().await.unwrap().release().await.unwrap();
    let spinners = Spinners::start();
    let locks = (0..LEASES)
        .map(|number| leases.lock(format!("{number}")).ttl(ms(6_000)).keep_alive().wait(LONG).acquire());
    let guards: Vec<_> = join_all(locks).await.into_iter().collect::<Result<_, _>>().unwrap();
    eventually_async(LONG, "each to be renewed twice", || async {
        leases.stats().renewed >= 2 * LEASES as u64
    })
    .await;
    assert_eq!(leases.stats().lost, 0);
    assert!(guards.iter().all(|guard| guard.is_held()));
    let mut released = stream::iter(guards).map(|guard| guard.release()).buffer_unordered(64);
    while let Some(outcome) = released.next().await {
        let _ = outcome.unwrap();
    }
    drop(spinners);
    nothing_is_left(&set).await;
}
