//! First steps on `memory:`.
#![cfg(feature = "memory")]

use std::time::Duration;

use leasehold::{Attempt, Error, Leasehold, RunError, engine::Released};
use leasehold_testkit::{
    Recorder,
    history::{History, check},
    load::{Load, Tally},
};

#[tokio::test]
async fn a_lock_excludes_queues_and_hands_over() {
    let leases = Leasehold::connect("memory:").await.unwrap();
    let guard = leases.lock("x").acquire().await.unwrap();
    assert!(matches!(leases.lock("x").try_acquire().await.unwrap(), Attempt::Busy { .. }));
    let waiter = tokio::spawn(leases.lock("x").into_future());
    while leases.inspect("x").await.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let first = guard.fence();
    assert!(matches!(guard.release().await.unwrap(), Released::HandedOver { .. }));
    let second = waiter.await.unwrap().unwrap();
    assert!(second.fence() > first && second.is_held());
    assert_eq!(second.release().await.unwrap(), Released::Free);
    assert_eq!(leases.stats().handed_over, 1);
    leases.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_lost_when_its_time_is_over() {
    let leases = Leasehold::builder("memory:").clock(leasehold::Clock::tokio()).connect().await.unwrap();
    let guard = leases.lock("x").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let began = tokio::time::Instant::now();
    guard.lost().await;
    // 1 % and 2 ms for clocks that differ, and a margin of a twentieth of the ttl to stop in time.
    assert_eq!(began.elapsed().as_millis(), 1000 - 12 - 50);
    assert!(!guard.is_held());
    let out = leases
        .lock("y")
        .ttl(Duration::from_secs(1))
        .without_keep_alive()
        .run(async |_| tokio::time::sleep(Duration::from_secs(5)).await)
        .await;
    assert!(matches!(out, Err(RunError::Lost { value: None, .. })));
    let kept = leases.lock("z").ttl(Duration::from_secs(1)).run(async |lease| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        lease.fence()
    });
    assert!(tokio::spawn(kept).await.unwrap().is_ok());
    let error = leases.lock("").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }));
}

#[tokio::test(start_paused = true)]
async fn nothing_remains_of_a_lease_that_is_no_longer_held() {
    let leases = Leasehold::builder("memory:").clock(leasehold::Clock::tokio()).connect().await.unwrap();
    let guard = leases.lock("x").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let mut held = true;
    while held {
        // Asked first, so that no question about the loss precedes it.
        let remaining = guard.remaining();
        held = guard.is_held();
        assert_eq!(remaining.is_zero(), !held, "{remaining:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_lock_handed_to_a_client_that_closes_is_not_believed() {
    let url = "memory:a lock handed to a client that closes";
    let (one, two) = (Leasehold::connect(url).await.unwrap(), Leasehold::connect(url).await.unwrap());
    let guard = one.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn(two.lock("x").into_future());
    while one.inspect("x").await.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    // Handed over, and abandoned by the closing client before the waiter has run.
    let (released, closed) = tokio::join!(guard.release(), two.close());
    assert!(matches!(released.unwrap(), Released::HandedOver { .. }));
    closed.unwrap();
    let got = waiter.await.unwrap();
    let next = one.lock("x").try_acquire().await.unwrap();
    assert!(matches!(next, Attempt::Held(_)));
    assert!(matches!(got, Err(Error::Unsupported { .. })), "{got:?}");
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_stops_neither_renewals_nor_the_news_of_a_loss() {
    let leases = Leasehold::builder("memory:")
        .clock(leasehold::Clock::tokio())
        .observer(|event: &leasehold::Event| assert!(!matches!(event, leasehold::Event::Lost { .. })))
        .connect()
        .await
        .unwrap();
    let second = Duration::from_secs(1);
    let kept = leases.lock("kept").ttl(second).keep_alive().acquire().await.unwrap();
    let fixed = leases.lock("fixed").ttl(second).acquire().await.unwrap();
    tokio::time::sleep(10 * second).await;
    assert!(kept.is_held(), "nothing renews it any more");
    assert!(!fixed.is_held());
    tokio::time::timeout(second, fixed.lost()).await.expect("the loss is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_takes_and_gives_back_without_a_violation() {
    let folder = tempfile::tempdir().unwrap();
    let load = Load { tasks: 8, names: 2, ..Load::default() }.registers(folder.path()).unwrap();
    let clients = [Leasehold::connect("memory:load").await.unwrap()];
    let events = folder.path().join("events");
    let tally = load.run(&clients, Recorder::open(&events).unwrap(), 500).await;
    let history = History::from_files([&events]).unwrap();
    assert!(check(&history).is_empty(), "{:?}", check(&history));
    assert_eq!(tally, Tally { granted: history.granted() as u64, ..Tally::default() });
    let writes = History::from_events(load.writes().unwrap()).unwrap().writes;
    assert_eq!(writes.values().map(Vec::len).sum::<usize>(), history.granted());
}
