//! What the keeper and its leases are at the edges of their time.

use std::{sync::Arc, time::Duration};

use crate::{
    Clock,
    client::{Client, ClientOptions},
    config::Config,
    engine::memory::Memory,
    lease::validity,
};

fn client() -> Client {
    let clock = Clock::tokio();
    let engine = Arc::new(Memory::open("", clock.clone()));
    let (config, store) = (Config::default(), "memory:".into());
    Client::start(engine, ClientOptions { config, clock, observer: None, seed: None, store }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn nothing_remains_of_a_lease_from_the_moment_at_which_it_is_not_held() {
    let (leases, ttl) = (client(), Duration::from_secs(10));
    let guard = leases.lock("x").ttl(ttl).acquire().await.unwrap();
    let lost_after = ttl - validity::drift(ttl) - validity::margin(ttl);
    tokio::time::advance(lost_after - Duration::from_millis(1)).await;
    assert!(!guard.remaining().is_zero() && guard.is_held());
    tokio::time::advance(Duration::from_millis(1)).await;
    // Valid for the margin still; asked before anything has noticed that it is lost.
    assert!(guard.remaining().is_zero() && !guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_over_and_detached_is_not_watched_any_more() {
    let leases = client();
    let watched = || leases.core.keeper.schedule().leases.len();
    let first = leases.lock("x").acquire().await.unwrap();
    let second = tokio::spawn(leases.lock("x").wait(Duration::from_secs(60)).acquire());
    while leases.inspect("x").await.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(watched(), 1);
    let handle = second.detach();
    assert_eq!(watched(), 0);
    handle.release(&leases).await.unwrap();
}
