//! The history checker finds engines that are wrong on purpose, and finds nothing wrong with the right one.
#![cfg(feature = "memory")]

use std::{sync::Arc, time::Duration};

use leasehold::{
    Clock, Guard, Leasehold,
    engine::{Engine, memory::Memory},
};
use leasehold_testkit::{
    Recorder,
    conformance::{
        Slow, Wrapped,
        broken::{
            BareCounter, fence_from_a_counter, one_permit_too_many, readers_apart_from_writers,
            release_without_compare, released_before_the_body_ended, validity_from_the_reply,
        },
    },
    history::{Event, History, Violation, check},
    load::{Kind, Load},
    now,
};

const LATE: Duration = Duration::from_millis(300);
const TTL: Duration = Duration::from_millis(800);

/// Three clients of one store take a lock in turn: the first hears of its grant late, lets its lease run out and
/// releases while the second holds.
struct Story {
    store: &'static str,
    wrong: fn(Arc<dyn Engine>) -> Arc<dyn Engine>,
    events: Vec<Event>,
}

impl Story {
    /// A client whose answers come that late, as over a slow network.
    async fn client(&self, by: Duration) -> Leasehold {
        let memory = Arc::new(Memory::open(self.store, Clock::system()));
        let engine = (self.wrong)(Arc::new(Wrapped::new(memory, Slow::claims(by))));
        Leasehold::builder(self.store).engine(engine).connect().await.unwrap()
    }

    async fn acquire(&mut self, client: &Leasehold, process: &str, wait: Duration) -> Option<Guard> {
        let (process, attempt) = (process.to_owned(), 1);
        let name = "job".to_owned();
        self.events.push(Event::Invoked { process: process.clone(), attempt, name, at: now() });
        let Ok(guard) = client.lock("job").ttl(TTL).wait(wait).acquire().await else {
            self.events.push(Event::Failed { process, attempt });
            return None;
        };
        let at = now();
        let (fence, valid_until) = (guard.fence().get(), at + guard.remaining().as_nanos() as u64);
        self.events.push(Event::Granted { process, attempt, fence, at, valid_until });
        Some(guard)
    }

    async fn violations(mut self) -> Vec<Violation> {
        let keep_open = Memory::open(self.store, Clock::system());
        let prompt = Duration::ZERO;
        let (one, two, three) =
            (self.client(LATE).await, self.client(prompt).await, self.client(prompt).await);
        let wait = Duration::from_secs(20);
        let late = self.acquire(&one, "one", wait).await.unwrap();
        let second = self.acquire(&two, "two", wait).await.unwrap();
        let _ = late.release().await.unwrap();
        let third = self.acquire(&three, "three", Duration::ZERO).await;
        drop((second, third));
        for client in [one, two, three] {
            client.close().await.unwrap();
        }
        drop(keep_open);
        let history = History::from_events(self.events).unwrap();
        assert!(history.granted() >= 2);
        check(&history)
    }
}

async fn violations(store: &'static str, wrong: fn(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Vec<Violation> {
    Story { store, wrong, events: Vec::new() }.violations().await
}

#[tokio::test]
async fn the_right_engine_breaks_no_promise() {
    assert_eq!(violations("memory:right", |engine| engine).await, []);
}

#[tokio::test]
async fn a_release_without_compare_lets_two_hold() {
    let found = violations("memory:release", release_without_compare).await;
    assert!(found.iter().any(|found| matches!(found, Violation::Overlap { .. })), "{found:?}");
}

#[tokio::test]
async fn validity_counted_from_the_reply_lets_two_hold() {
    let found = violations("memory:reply", |engine| validity_from_the_reply(engine, Clock::system())).await;
    assert!(found.iter().any(|found| matches!(found, Violation::Overlap { .. })), "{found:?}");
}

#[tokio::test]
async fn a_counter_that_restarts_repeats_fences() {
    let found =
        violations("memory:counter", |engine| fence_from_a_counter(engine, BareCounter::default())).await;
    assert!(found.iter().any(|found| matches!(found, Violation::DuplicateFence { .. })), "{found:?}");
}

/// What is found in a load of some kind, by tasks of two clients.
async fn under_load(
    kind: Kind,
    store: &str,
    wrong: fn(Arc<dyn Engine>) -> Arc<dyn Engine>,
) -> Vec<Violation> {
    let mut clients = Vec::new();
    for _ in 0..2 {
        let engine = wrong(Arc::new(Memory::open(store, Clock::system())));
        clients.push(Leasehold::builder("memory:").engine(engine).connect().await.unwrap());
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let load = Load { kind, names: 1, tasks: 6, operates: false, ..Load::default() };
    let tally = load.run(&clients, Recorder::open(file.path()).unwrap(), 200).await;
    assert!(tally.errors.is_empty(), "{tally:?}");
    check(&History::from_files([file.path()]).unwrap())
}

#[tokio::test]
async fn the_right_engine_breaks_no_promise_of_any_kind() {
    for kind in Kind::ALL {
        assert_eq!(under_load(kind, &format!("right {kind}"), |engine| engine).await, [], "{kind}");
    }
}

#[tokio::test]
async fn a_semaphore_that_admits_one_more_has_too_many_permits() {
    let found = under_load(Kind::Permits, "one more", one_permit_too_many).await;
    let is_one_more =
        |found: &Violation| matches!(found, Violation::TooManyPermits { taken: 6, limit: 5, .. });
    assert!(!found.is_empty() && found.iter().all(is_one_more), "{found:?}");
}

#[tokio::test]
async fn readers_counted_apart_read_beside_a_writer() {
    let found = under_load(Kind::ReadWrite, "readers apart", readers_apart_from_writers).await;
    let is_beside = |found: &Violation| match found {
        Violation::Overlap { first, second, .. } => first.mode != second.mode,
        _ => false,
    };
    assert!(found.iter().any(is_beside), "{found:?}");
}

#[tokio::test]
async fn a_leader_released_before_its_body_ended_leads_beside_the_next() {
    let found = under_load(Kind::Election, "gives way", released_before_the_body_ended).await;
    assert!(found.iter().any(|found| matches!(found, Violation::Overlap { .. })), "{found:?}");
}
