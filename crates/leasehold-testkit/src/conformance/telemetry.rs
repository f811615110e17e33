//! Counters and events.

use std::sync::{Arc, Mutex};

use leasehold::{Event, Leasehold, Mode, engine::Released};

use super::{
    TestContext,
    context::{enqueue, is_closed, ms, sleep, soon, until_waiting},
    eventually,
};

cases! {
    a_story_is_counted_exactly,
    clones_share_their_counters,
    clients_count_apart,
    latencies_and_hold_times_are_recorded,
    the_success_rate_is_that_of_ended_attempts,
    a_fixed_lease_held_too_long_is_counted,
    a_hand_over_is_counted_by_its_receiver: Push,
    prometheus_text_has_every_counter,
    an_observer_sees_events_in_order,
    an_observer_sees_no_owner_value,
}

async fn a_story_is_counted_exactly(test: TestContext) {
    let (client, other) = (test.client().await, test.client().await);
    // Acquired and released, twice.
    for _ in 0..2 {
        assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    }
    // Refused once, timed out once, cancelled once: each found it held.
    let held = other.lock("held").ttl(ms(60_000)).acquire().await.unwrap();
    assert!(client.lock("held").try_acquire().await.unwrap().held().is_none());
    client.lock("held").wait(ms(100)).acquire().await.unwrap_err();
    until_waiting(&other, "held", 0).await;
    let waiter = tokio::spawn(client.lock("held").wait(ms(60_000)).acquire());
    // In the queue, with a progress report.
    eventually("it waits", async || client.stats().contended == 3).await;
    waiter.abort();
    until_waiting(&other, "held", 0).await;
    assert!(held.release().await.unwrap().was_held());
    // Dropped once.
    drop(client.lock("dropped").acquire().await.unwrap());
    // Lost once, and released too late.
    let lost = client.lock("lost").ttl(ms(150)).acquire().await.unwrap();
    eventually("the lease expires", async || !is_closed(&other, "lost").await).await;
    assert!(!lost.release().await.unwrap().was_held());
    // Extended once.
    let extended = client.lock("extended").acquire().await.unwrap();
    extended.extend().await.unwrap();
    assert!(extended.release().await.unwrap().was_held());

    let stats = client.stats();
    assert_eq!((stats.attempts, stats.acquired, stats.refused), (8, 5, 1), "{stats:?}");
    assert_eq!((stats.timed_out, stats.failed, stats.cancelled), (1, 0, 1), "{stats:?}");
    assert_eq!((stats.contended, stats.handed_over, stats.degraded), (3, 0, 0), "{stats:?}");
    assert_eq!((stats.released, stats.release_not_ours, stats.release_failed), (3, 1, 0), "{stats:?}");
    assert_eq!((stats.dropped, stats.lost, stats.overheld), (1, 1, 1), "{stats:?}");
    assert_eq!((stats.renewed, stats.renew_miss, stats.disconnected), (1, 0, 0), "{stats:?}");
    assert_eq!((stats.acquire_latency.count(), stats.hold_time.count()), (5, 5), "{stats:?}");
}

async fn clones_share_their_counters(test: TestContext) {
    let client = test.client().await;
    let clone = client.clone();
    assert!(clone.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    assert_eq!((client.stats().acquired, clone.stats().acquired), (2, 2));
    assert_eq!(client.stats(), clone.stats());
}

async fn clients_count_apart(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    assert!(one.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    assert_eq!((one.stats().acquired, two.stats().acquired), (1, 0));
    assert_eq!((two.stats().attempts, two.stats().released), (0, 0));
}

async fn latencies_and_hold_times_are_recorded(test: TestContext) {
    let client = test.client().await;
    for _ in 0..3 {
        let guard = client.lock("job").acquire().await.unwrap();
        sleep(ms(20)).await;
        assert!(guard.release().await.unwrap().was_held());
    }
    let stats = client.stats();
    assert_eq!((stats.acquire_latency.count(), stats.hold_time.count()), (3, 3));
    assert!(stats.hold_time.sum() >= ms(60));
    assert!(stats.hold_time.quantile(0.5).unwrap() >= ms(20));
}

async fn the_success_rate_is_that_of_ended_attempts(test: TestContext) {
    let client = test.client().await;
    assert_eq!(client.stats().success_rate(), None);
    let guard = client.lock("job").acquire().await.unwrap();
    assert_eq!(client.stats().success_rate(), Some(1.0));
    assert!(client.lock("job").try_acquire().await.unwrap().held().is_none());
    assert_eq!(client.stats().success_rate(), Some(0.5));
    assert!(guard.release().await.unwrap().was_held());
}

async fn a_fixed_lease_held_too_long_is_counted(test: TestContext) {
    let client = test.client().await;
    let long = client.lock("long").ttl(ms(800)).acquire().await.unwrap();
    let short = client.lock("short").ttl(ms(60_000)).acquire().await.unwrap();
    let kept = client.lock("kept").ttl(ms(800)).keep_alive().acquire().await.unwrap();
    sleep(ms(450)).await;
    for guard in [long, short, kept] {
        assert!(guard.release().await.unwrap().was_held());
    }
    assert_eq!(client.stats().overheld, 1);
}

async fn a_hand_over_is_counted_by_its_receiver(test: TestContext) {
    let (one, two) = (test.client().await, test.client().await);
    let guard = one.lock("job").acquire().await.unwrap();
    let waiter = enqueue(&one, two.lock("job"), "job", 0).await;
    assert!(guard.release().await.unwrap().was_held());
    let guard = soon("its turn", waiter).await.unwrap();
    assert_eq!((one.stats().handed_over, two.stats().handed_over), (0, 1));
    assert!(guard.release().await.unwrap().was_held());
}

async fn prometheus_text_has_every_counter(test: TestContext) {
    let client = test.client().await;
    assert!(client.lock("secret-name").acquire().await.unwrap().release().await.unwrap().was_held());
    let mut stats = client.stats();
    let text = stats.prometheus();
    // The fields of the struct are the list: a new counter without a line fails here.
    stats.by_mode.clear();
    let shown = format!("{stats:?}");
    let numbers = shown.split(['{', ',']).filter_map(|field| field.trim().split_once(": "));
    let counters: Vec<_> = numbers.filter(|(_, value)| value.bytes().all(|b| b.is_ascii_digit())).collect();
    assert!(counters.len() >= 18, "{counters:?}");
    for (name, value) in counters {
        let lines =
            ["", "{mode=\"exclusive\"}"].map(|label| format!("\nleasehold_{name}_total{label} {value}\n"));
        assert!(lines.iter().any(|line| text.contains(line)), "no {name} in\n{text}");
        assert!(text.contains(&format!("# TYPE leasehold_{name}_total counter")));
    }
    for histogram in ["acquire_latency", "hold_time"] {
        assert!(text.contains(&format!(
            "leasehold_{histogram}_seconds_bucket{{mode=\"exclusive\",le=\"+Inf\"}} 1\n"
        )));
        assert!(text.contains(&format!("leasehold_{histogram}_seconds_count{{mode=\"exclusive\"}} 1\n")));
    }
    assert!(!text.contains("secret-name"), "names are unbounded");
}

/// A client whose events are recorded.
async fn observed(test: &TestContext) -> (Leasehold, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    let observer = move |event: &Event| sink.lock().unwrap().push(event.clone());
    (test.client_with(|builder| builder.observer(observer)).await, events)
}

async fn an_observer_sees_events_in_order(test: TestContext) {
    let (client, events) = observed(&test).await;
    let guard = client.lock("job").acquire().await.unwrap();
    let first = guard.fence();
    assert!(guard.release().await.unwrap().was_held());
    let guard = client.lock("job").ttl(ms(200)).acquire().await.unwrap();
    let second = guard.fence();
    soon("the loss is reported", guard.lost()).await;
    eventually("the lease expires", async || !is_closed(&client, "job").await).await;
    assert!(!guard.release().await.unwrap().was_held());
    let events = events.lock().unwrap();
    let reported: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Acquired { name, fence, mode: Mode::Exclusive, .. } => {
                Some(("acquired", name.to_string(), *fence, None))
            }
            Event::Released { name, fence, mode: Mode::Exclusive, outcome } => {
                Some(("released", name.to_string(), *fence, Some(*outcome)))
            }
            Event::Lost { name, fence, mode: Mode::Exclusive } => {
                Some(("lost", name.to_string(), *fence, None))
            }
            _ => None,
        })
        .collect();
    let job = || "job".to_owned();
    assert_eq!(
        reported,
        [
            ("acquired", job(), first, None),
            ("released", job(), first, Some(Released::Free)),
            ("acquired", job(), second, None),
            ("lost", job(), second, None),
            ("released", job(), second, Some(Released::Expired)),
        ]
    );
}

async fn an_observer_sees_no_owner_value(test: TestContext) {
    let (client, events) = observed(&test).await;
    let handle = client.lock("job").acquire().await.unwrap().detach();
    assert!(handle.release(&client).await.unwrap().was_held());
    assert!(client.lock("job").acquire().await.unwrap().release().await.unwrap().was_held());
    let shown = format!("{:?}", events.lock().unwrap());
    let hex = shown.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 32);
    assert!(!hex, "{shown}");
}
