//! `memory:` — leases between the tasks of one process.
//!
//! `memory:` alone is a store of its own; `memory:NAME` is shared by all clients of this process that use the
//! same name. With [`Clock::tokio`] it is deterministic. Use it for tests and inside one process; it protects
//! nothing from another process.

mod deadlines;
mod records;
mod store;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use crate::{
    clock::{Clock, Until},
    engine::{
        Answer, Capabilities, Claim, Cursor, Engine, EngineError, Fut, Handover, Health, Held, Hold, Inspect,
        Inspection, Leases, Page, Reach, Released, Renewed, WakeSink, records::Records,
    },
    fence::Fence,
    name::{NAME_MAX_BYTES, Name},
};
use store::{Now, Store};

/// The engine behind `memory:`.
pub struct Memory {
    store: Arc<Mutex<Store>>,
    clock: Clock,
    sink: OnceLock<Weak<dyn WakeSink>>,
    capabilities: Capabilities,
}

impl Memory {
    /// Opens the store of that name; an empty name is a new store of its own.
    pub fn open(name: &str, clock: Clock) -> Self {
        let store = if name.is_empty() { Arc::default() } else { shared(name) };
        let capabilities = Capabilities::new("memory", Reach::Process, Handover::Push, false, NAME_MAX_BYTES)
            .without_acks("memory has no replicas");
        Self { store, clock, sink: OnceLock::new(), capabilities }
    }

    fn atomic<T: Send + 'static>(&self, operation: impl FnOnce(&mut Store, Now) -> T) -> Fut<'static, T> {
        self.fallible(|store, now| Ok(operation(store, now)))
    }

    /// Runs one atomic operation, then sends its wake-ups with the store unlocked: a sink may call back.
    fn fallible<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut Store, Now) -> Result<T, EngineError>,
    ) -> Fut<'static, T> {
        let now = self.clock.read();
        let (out, wakes) = {
            let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
            let out = operation(&mut store, now);
            (out, store.take_wakes())
        };
        for (sink, wake) in wakes {
            if let Some(sink) = sink.upgrade() {
                sink.wake(wake);
            }
        }
        Box::pin(std::future::ready(out))
    }

    fn sink(&self) -> Weak<dyn WakeSink> {
        self.sink.get().cloned().unwrap_or_else(|| Weak::<NoSink>::new())
    }
}

/// Drops wake-ups until a client has set its sink.
struct NoSink;
impl WakeSink for NoSink {
    fn wake(&self, _: super::Wake) {}
    fn link(&self, _: super::LinkChange) {}
}

fn shared(name: &str) -> Arc<Mutex<Store>> {
    static STORES: OnceLock<Mutex<HashMap<String, Weak<Mutex<Store>>>>> = OnceLock::new();
    let mut stores = STORES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    stores.retain(|_, store| store.strong_count() > 0);
    if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
        return store;
    }
    let store = Arc::default();
    stores.insert(name.into(), Arc::downgrade(&store));
    store
}

impl Engine for Memory {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn inspector(&self) -> &dyn Inspect {
        self
    }

    fn set_wake_sink(&self, sink: Weak<dyn WakeSink>) {
        let _first = self.sink.set(sink);
    }

    fn records(&self) -> Result<&dyn Records, &'static str> {
        Ok(self)
    }

    fn deadlines(&self) -> Result<&dyn super::deadlines::Deadlines, &'static str> {
        Ok(self)
    }

    fn connect(&self, _: Until) -> Fut<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn health(&self, _: Until) -> Fut<'_, Health> {
        self.atomic(|store, now| Health {
            facts: vec![
                ("engine".into(), "memory".into()),
                ("shared by".into(), "the tasks of this process".into()),
                ("names in use".into(), store.names_in_use(now).to_string()),
            ],
            warnings: Vec::new(),
        })
    }

    fn close(&self, _: Until) -> Fut<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Leases for Memory {
    fn claim<'a>(&'a self, claim: &'a Claim, _: Until) -> Fut<'a, Answer> {
        self.fallible(|store, now| store.claim(claim, self.sink(), now))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], _: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        let renew = |store: &mut Store, hold: &Hold, now| match hold.of {
            Held::Lock | Held::Closed => store.renew(hold, now),
            Held::Record => store.records.renew(hold, now),
        };
        self.atomic(|store, now| holds.iter().map(|hold| Ok(renew(store, hold, now))).collect())
    }

    fn release<'a>(&'a self, hold: &'a Hold, _: Until) -> Fut<'a, Released> {
        self.fallible(|store, now| store.release(&hold.name, now, |lock| lock.end(hold.owner.id(), now.boot)))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, _: Until) -> Fut<'a, ()> {
        self.fallible(|store, now| {
            store.ended.insert(claim.owner.id(), ());
            store.release(&claim.name, now, |lock| lock.end(claim.owner.id(), now.boot)).map(drop)
        })
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, _: Until) -> Fut<'a, Released> {
        self.fallible(|store, now| store.release(name, now, |lock| lock.force(seen, now.boot)))
    }
}

impl Inspect for Memory {
    fn inspect<'a>(&'a self, name: &'a Name, _: Until) -> Fut<'a, Inspection> {
        self.atomic(|store, now| store.inspect(name, now))
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        _: Until,
    ) -> Fut<'a, Page<Inspection>> {
        self.atomic(|store, now| store.scan(prefix, from.as_ref(), limit, now))
    }
}
