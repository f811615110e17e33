//! The history checker finds engines that are wrong on purpose, and finds nothing wrong with the right one.
#![cfg(feature = "memory")]

use std::{sync::Arc, time::Duration};

use leasehold::{
    Clock, Guard, Leasehold,
    engine::{Engine, memory::Memory},
};
use leasehold_testkit::{
    conformance::{
        Slow, Wrapped,
        broken::{BareCounter, fence_from_a_counter, release_without_compare, validity_from_the_reply},
    },
    history::{Event, History, Violation, check},
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
