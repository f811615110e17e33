//! A store with a client, and an engine beside it for what a client never does.

use std::{sync::Arc, time::Duration};

use leasehold::{
    Clock, Fence, Holder, Leasehold, Name,
    engine::{
        Engine,
        records::{Begin, Begun, Fingerprint, Outcome, Settle, Settled},
    },
    owner::Owner,
};

pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Of an execution that dies: as short as a busy machine allows.
pub(crate) const SHORT: Duration = Duration::from_millis(600);

pub(crate) struct Fixture {
    pub(crate) leases: Leasehold,
    /// Another client of the same store.
    pub(crate) other: Leasehold,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
}

impl Fixture {
    pub(crate) async fn memory() -> Self {
        static STORES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = STORES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self::with(&format!("memory:idempotency-{number}"), Clock::tokio()).await
    }

    pub(crate) async fn at(store: &str) -> Self {
        Self::with(store, Clock::system()).await
    }

    async fn with(store: &str, clock: Clock) -> Self {
        let builder = || Leasehold::builder(store).clock(clock.clone());
        Self {
            leases: builder().connect().await.unwrap(),
            other: builder().connect().await.unwrap(),
            engine: builder().into_engine().unwrap(),
            clock,
        }
    }

    /// Begins as somebody who then neither renews nor ends it.
    pub(crate) async fn die_at(&self, key: &str, lease: Duration) -> Dead {
        let begin = Begin {
            key: Name::new(key).unwrap(),
            owner: Owner::new(rand(), &Holder::this_process("dead", 1)),
            fingerprint: None,
            lease,
            wake: false,
        };
        let records = self.engine.records().unwrap();
        match records.begin(&begin, self.clock.now() + LONG).await.unwrap() {
            Begun::Yours(grant) => Dead { begin, fence: grant.fence },
            other => panic!("{other:?}"),
        }
    }

    /// What comes of it when the dead one ends after all.
    pub(crate) async fn late(&self, dead: &Dead, result: &'static [u8]) -> Settled {
        let settle = Settle {
            hold: dead.begin.hold(dead.fence),
            fingerprint: None,
            outcome: Outcome::Completed(result.into()),
            keep: LONG,
        };
        self.engine.records().unwrap().settle(&settle, self.clock.now() + LONG).await.unwrap()
    }
}

pub(crate) struct Dead {
    begin: Begin,
    pub(crate) fence: Fence,
}

/// A number that no other attempt of these tests has.
fn rand() -> u128 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    u128::from(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) << 64 | u128::from(std::process::id())
}

/// As the library does it.
pub(crate) fn print_of(text: &str) -> Fingerprint {
    Fingerprint::of(text)
}
