//! What the keeper and its leases are at the edges of their time.

use std::{sync::Arc, time::Duration};

use super::hints::WATCHED_WITHIN;
use crate::{
    Clock,
    client::{Client, ClientOptions},
    clock::BootInstant,
    config::Config,
    engine::{LossHint, Renewed, memory::Memory},
    lease::validity,
    name::Name,
};

fn client() -> Client {
    let clock = Clock::tokio();
    let engine = Arc::new(Memory::open("", clock.clone()));
    let (config, store) = (Config::default(), "memory:".into());
    Client::start(
        engine,
        ClientOptions { config, clock, observer: None, seed: None, store, policies: Vec::new() },
    )
    .unwrap()
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
    let _ = first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(watched(), 1);
    let handle = second.detach();
    assert_eq!(watched(), 0);
    let _ = handle.release(&leases).await.unwrap();
}

/// Takes what is due at a time; how many that are.
fn due(leases: &Client, at: BootInstant) -> usize {
    leases.core.keeper.due(at, None).0.len()
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_comes_while_a_renewal_is_under_way_is_followed_after_it() {
    let (leases, ttl) = (client(), Duration::from_secs(30));
    let changed = |name: &str| LossHint::Changed { name: Name::new(name).unwrap() };
    // Over which link the answer will come is not known yet.
    let hints = [changed("x"), LossHint::AllChanged { link: 7 }, LossHint::Unwatched { link: 7 }];
    for (hint, is_followed) in hints.into_iter().map(|hint| (hint, true)).chain([(changed("y"), false)]) {
        let guard = leases.lock("x").ttl(ttl).keep_alive().acquire().await.unwrap();
        let (keeper, now) = (&leases.core.keeper, leases.core.clock.now());
        assert_eq!(due(&leases, now + validity::renew_interval(ttl)), 1);
        keeper.may_be_lost(hint.clone());
        assert_eq!(due(&leases, now), 0, "{hint:?}");
        keeper.renewed(&guard.lease().state.hold, Ok(Renewed::Kept { since: now, link: Some(7) }));
        assert_eq!(due(&leases, now), usize::from(is_followed), "{hint:?}");
        let _ = guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn only_leases_that_are_kept_alive_are_renewed_for_a_hint() {
    let leases = client();
    let kept = leases.lock("kept").keep_alive().acquire().await.unwrap();
    let fixed = leases.lock("fixed").acquire().await.unwrap();
    for name in [kept.name(), fixed.name()] {
        leases.core.keeper.may_be_lost(LossHint::Changed { name: name.clone() });
    }
    let (renew, ..) = leases.core.keeper.due(leases.core.clock.now(), None);
    assert!(matches!(&renew[..], [hold] if hold.name == *kept.name()), "{renew:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_which_hints_keep_coming_is_checked_at_once_and_then_twice_a_second_at_most() {
    let leases = client();
    let guard = leases.lock("x").ttl(Duration::from_secs(300)).keep_alive().acquire().await.unwrap();
    let (keeper, began, mut checks) = (&leases.core.keeper, leases.core.clock.now(), Vec::new());
    for ms in 0..10_000 {
        let now = began + Duration::from_millis(ms);
        keeper.may_be_lost(LossHint::Changed { name: guard.name().clone() });
        if due(&leases, now) == 1 {
            checks.push(ms);
            keeper.renewed(&guard.lease().state.hold, Ok(Renewed::Kept { since: now, link: Some(7) }));
        }
    }
    assert_eq!(checks[0], 0);
    assert!((10..=20).contains(&checks.len()), "{checks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_just_begun_does_not_come_along_with_others() {
    let (leases, ttl) = (client(), Duration::from_secs(30));
    let [old, young] = ["old", "young"].map(|name| leases.lock(name).ttl(ttl).keep_alive());
    let old = old.acquire().await.unwrap();
    let now = leases.core.clock.now() + Duration::from_secs(2);
    tokio::time::advance(Duration::from_secs(2)).await;
    let young = young.acquire().await.unwrap();
    // As in a store that reports losses.
    for (guard, renew_at) in [(&old, now), (&young, now + WATCHED_WITHIN)] {
        leases.core.keeper.watch(guard.lease().state.clone(), Some(renew_at));
    }
    let (renew, ..) = leases.core.keeper.due(now, None);
    assert!(matches!(&renew[..], [hold] if hold.name == *old.name()), "{renew:?}");
}
