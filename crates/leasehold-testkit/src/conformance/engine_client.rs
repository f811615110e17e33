//! A client of the engine contract: an engine, and the wake-ups it has received. Several of them share a store.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{
    Clock, Holder, Name,
    clock::Until,
    engine::{
        Acks, Claim, Engine, Format, Leases, LinkChange, Mode, Wake, WakeSink, deadlines::Deadlines,
        latches::Latches, records::Records,
    },
    owner::Owner,
};

use super::{TestContext, context::ms};

/// The limit of calls that must succeed, however busy the machine is.
const LIMIT_MS: u64 = 20_000;

pub(super) struct EngineClient {
    engine: Arc<dyn Engine>,
    woken: Arc<Woken>,
    clock: Clock,
    namespace: String,
}

#[derive(Default)]
struct Woken(Mutex<Vec<Wake>>);

impl WakeSink for Woken {
    fn wake(&self, wake: Wake) {
        self.0.lock().unwrap().push(wake);
    }
    fn link(&self, _: LinkChange) {}
}

impl EngineClient {
    pub(super) async fn connect(test: &TestContext) -> Self {
        let (engine, woken, clock) = (test.engine(), Arc::<Woken>::default(), Clock::system());
        let sink: Arc<dyn WakeSink> = woken.clone();
        engine.set_wake_sink(Arc::downgrade(&sink));
        let client = Self { engine, woken, clock, namespace: test.namespace().to_owned() };
        client.engine.connect(client.until()).await.unwrap();
        client
    }

    /// Closes its connections and files.
    pub(super) async fn close(self) {
        self.engine.close(self.until()).await.unwrap();
    }

    pub(super) fn until(&self) -> Until {
        self.clock.now() + ms(LIMIT_MS)
    }

    pub(super) fn now(&self) -> leasehold::clock::BootInstant {
        self.clock.now()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.wall_us() / 1000
    }

    pub(super) fn leases(&self) -> &dyn Leases {
        self.engine.leases()
    }

    pub(super) fn records(&self) -> &dyn Records {
        self.engine.records().expect("the case needs records")
    }

    pub(super) fn deadlines(&self) -> &dyn Deadlines {
        self.engine.deadlines().expect("the case needs deadlines")
    }

    pub(super) fn latches(&self) -> &dyn Latches {
        self.engine.latches().expect("the case needs latches")
    }

    /// A name in this case's namespace.
    pub(super) fn name(&self, text: &str) -> Name {
        Name::new(format!("{}:{text}", self.namespace)).unwrap()
    }

    /// A claim under an owner value of its own, which asks once.
    pub(super) fn claim_lock(&self, name: &str, mode: Mode) -> Claim {
        Claim {
            name: self.name(name),
            owner: owner("conformance"),
            mode,
            format: Format::Plain,
            ttl: ms(60_000),
            lock_delay: Duration::ZERO,
            queue: None,
            acks: Acks::None,
        }
    }

    /// Whether this owner was woken to read again.
    pub(super) fn was_woken(&self, owner: &Owner) -> bool {
        let is_for_owner =
            |wake: &Wake| matches!(wake, Wake::LookAgain { owner: woken } if *woken == owner.id());
        self.woken.0.lock().unwrap().iter().any(is_for_owner)
    }
}

/// A unique owner value.
pub(super) fn owner(label: &str) -> Owner {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let random = u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | u128::from(std::process::id());
    Owner::new(random, &Holder::this_process(label, Clock::system().wall_us()))
}
