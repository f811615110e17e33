//! Markers: set, asked for, cleared; many at once; guarded.

use std::time::Duration;

use leasehold::{Attempt, Error, ErrorKind, idempotency::Settled, marker::Cleared};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, LONG, SHORT};

async fn a_mark_is_seen_until_it_is_cleared(fixture: Fixture) {
    let (mine, theirs) = (fixture.leases.marker("processing"), fixture.other.marker("processing"));
    assert!(!mine.is_marked("a").await.unwrap());
    assert!(mine.mark("a").await.unwrap() && mine.mark("a").await.unwrap());
    assert!(theirs.is_marked("a").await.unwrap());
    assert!(!theirs.mark_if_absent("a").await.unwrap());
    assert_eq!(theirs.clear("a").await.unwrap(), Cleared::Cleared);
    assert_eq!(mine.clear("a").await.unwrap(), Cleared::NotMarked);
    assert!(mine.mark_if_absent("a").await.unwrap());
}

async fn a_mark_ends_by_itself(fixture: Fixture) {
    let marker = fixture.leases.marker("processing").ttl(Duration::from_millis(200));
    assert!(marker.mark(1u32).await.unwrap());
    eventually_async(LONG, "its end", || async { !marker.is_marked(1u32).await.unwrap() }).await;
    assert!(marker.mark_if_absent(1u32).await.unwrap());
}

async fn many_are_marked_asked_for_and_cleared_at_once(fixture: Fixture) {
    let marker = fixture.leases.marker("processing");
    let ids: Vec<u32> = (0..1000).collect();
    assert!(marker.mark_if_absent(7u32).await.unwrap());
    let set = marker.mark_many_if_absent(ids.iter().copied()).await.unwrap();
    assert_eq!((set.len(), set.iter().filter(|set| !**set).count(), set[7]), (1000, 1, false));
    assert!(marker.are_marked(ids.iter().copied()).await.unwrap().into_iter().all(|marked| marked));
    assert!(marker.clear_many(ids.iter().copied()).await.unwrap().into_iter().all(|cleared| cleared));
    assert!(!marker.are_marked(ids.iter().copied()).await.unwrap().contains(&true));
    assert!(marker.mark_many(ids).await.unwrap().into_iter().all(|set| set));
    assert_eq!(marker.mark_many(Vec::<u32>::new()).await.unwrap(), Vec::<bool>::new());
}

async fn ids_of_several_values_have_a_layout(fixture: Fixture) {
    let marker = fixture.leases.marker("processing").layout("processing:{account}:{file}");
    assert!(marker.mark(("acme", "a:b")).await.unwrap());
    let plain = fixture.leases.marker("x").layout("processing:acme:{rest}");
    assert!(plain.is_marked("a:b").await.unwrap(), "the value is escaped as in the other layout");
    assert!(!marker.is_marked(("acme:a", "b")).await.unwrap());
    let error = marker.mark("acme").await.unwrap_err();
    assert!(error.to_string().contains("2 values for processing:{account}:{file}"), "{error}");
    for bad in [
        fixture.leases.marker(""),
        fixture.leases.marker("x").layout("{a}{b}"),
        fixture.leases.marker("x").ttl(Duration::ZERO),
    ] {
        assert_eq!(bad.mark("a").await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(matches!(marker.mark(("", "a")).await, Err(Error::Invalid { .. })));
}

async fn a_guard_is_nobody_elses_to_clear(fixture: Fixture) {
    let (mine, theirs) = (fixture.leases.marker("processing"), fixture.other.marker("processing"));
    let guard = mine.guard("a").await.unwrap().held().unwrap();
    assert!(theirs.is_marked("a").await.unwrap());
    assert!(!theirs.mark("a").await.unwrap());
    assert!(!theirs.mark_if_absent("a").await.unwrap());
    assert_eq!(theirs.clear("a").await.unwrap(), Cleared::Guarded);
    assert!(matches!(theirs.guard("a").await.unwrap(), Attempt::Busy { holder: Some(_), .. }));
    assert_eq!(guard.finish().await.unwrap(), Settled::Stored);
    assert!(!theirs.is_marked("a").await.unwrap());
    // A plain mark is as good a reason to stay away.
    assert!(mine.mark("a").await.unwrap());
    assert!(matches!(theirs.guard("a").await.unwrap(), Attempt::Busy { holder: None, .. }));
}

async fn a_guard_that_is_dropped_is_cleared_and_one_that_ran_out_clears_nothing(fixture: Fixture) {
    let marker = fixture.leases.marker("processing");
    drop(marker.guard("a").await.unwrap());
    eventually_async(LONG, "it is cleared", || async { !marker.is_marked("a").await.unwrap() }).await;
    let late = fixture.die_at("processing:b", SHORT).await;
    eventually_async(LONG, "it ran out", || async { !marker.is_marked("b").await.unwrap() }).await;
    let next = marker.guard("b").await.unwrap().held().unwrap();
    assert_eq!(fixture.late(&late, b"").await, Settled::FencedOff { by: Some(next.fence()) });
    assert!(next.is_held() && marker.is_marked("b").await.unwrap());
}

on_every_store!(
    a_mark_is_seen_until_it_is_cleared,
    a_mark_ends_by_itself,
    many_are_marked_asked_for_and_cleared_at_once,
    ids_of_several_values_have_a_layout,
    a_guard_is_nobody_elses_to_clear,
    a_guard_that_is_dropped_is_cleared_and_one_that_ran_out_clears_nothing,
);
