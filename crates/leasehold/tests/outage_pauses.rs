//! A waiter whose store refuses for a while asks again at its own pace, however often it is disturbed.
#![cfg(feature = "memory")]

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Clock, Leasehold,
    clock::Until,
    engine::{
        Capabilities, Engine, EngineError, Fault, Fut, Health, Inspect, Leases, Wake, WakeSink,
        memory::Memory,
    },
    error::Refusal,
};
use leasehold_testkit::{
    conformance::{Tamper, Wrapped},
    eventually_async,
};

const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Refuses {
    now: Arc<AtomicBool>,
    calls: Arc<AtomicU32>,
}

impl Tamper for Refuses {
    fn before(&self) -> Result<(), EngineError> {
        if !self.now.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::new(Fault::Refused(Refusal::ReadOnly), "a replica"))
    }
}

/// A store that can be made to wake all who wait.
struct Wakes {
    inner: Wrapped<Refuses>,
    sink: Mutex<Option<Weak<dyn WakeSink>>>,
}

impl Engine for Wakes {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn leases(&self) -> &dyn Leases {
        self.inner.leases()
    }
    fn inspector(&self) -> &dyn Inspect {
        self.inner.inspector()
    }
    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        *self.sink.lock().unwrap() = Some(sink.clone());
        self.inner.set_wake_sink(sink);
    }
    fn connect(&self, until: Until) -> Fut<'_, ()> {
        self.inner.connect(until)
    }
    fn health(&self, until: Until) -> Fut<'_, Health> {
        self.inner.health(until)
    }
    fn close(&self, until: Until) -> Fut<'_, ()> {
        self.inner.close(until)
    }
}

/// As after every break of a link: with many waiters each of them asking at once would be a storm.
#[tokio::test(start_paused = true)]
async fn a_break_does_not_end_the_pause_of_a_waiter_that_was_refused() {
    let (clock, refuses) = (Clock::tokio(), Refuses::default());
    let memory = Arc::new(Memory::open("a break does not end a pause", clock.clone()));
    let inner = Wrapped::new(memory, refuses.clone());
    let engine = Arc::new(Wakes { inner, sink: Mutex::default() });
    let builder = Leasehold::builder("wakes:").clock(clock).engine(engine.clone());
    let leases = builder.connect().await.unwrap();
    let guard = leases.lock("x").ttl(LONG).acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lock("x").wait(LONG).into_future());
    let waits = async || leases.inspect("x").await.unwrap().waiting == 1;
    eventually_async(LONG, "the waiter is queued", waits).await;

    refuses.now.store(true, Ordering::Relaxed);
    let sink = engine.sink.lock().unwrap().clone().unwrap().upgrade().unwrap();
    for _ in 0..500 {
        sink.wake(Wake::LookAgainAll);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let calls = refuses.calls.load(Ordering::Relaxed);
    assert!((2..=10).contains(&calls), "{calls} claims in 5 s");

    refuses.now.store(false, Ordering::Relaxed);
    let _ = guard.release().await.unwrap();
    let _ = waiter.await.unwrap().unwrap().release().await.unwrap();
}
