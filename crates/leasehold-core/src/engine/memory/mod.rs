//! `memory:` — leases between the tasks of one process.
//!
//! `memory:` alone is a store of its own; `memory:NAME` is shared by all clients of this process that use the
//! same name. With [`Clock::tokio`] it is deterministic. Use it for tests and inside one process; it protects
//! nothing from another process.

mod deadlines;
mod latches;
mod records;
mod watchers;

use std::{
    collections::{BTreeMap, HashMap},
    mem::take,
    num::NonZeroU32,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use crate::{
    clock::{Clock, Now, Until},
    decide::lock,
    engine::{
        Answer, AnswerAll, Capabilities, Claim, Converted, Cursor, Engine, EngineError, Fut, HandedTo,
        Handover, Health, Held, Hold, Inspect, Inspection, Leases, Mode, Page, Reach, Released, Renewed,
        Wake, WakeSink,
        records::Records,
        registry::{EndedAttempts, ended_error},
    },
    fence::Fence,
    name::{NAME_MAX_BYTES, Name},
    owner::{Holder, OwnerId},
};
use deadlines::Pools;
use latches::LatchStore;
use records::RecordStore;

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
            .without_acks("memory has no replicas")
            .with_all_modes()
            .with_claim_all()
            .with_hand_to();
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
            let Store { wakes, records, latches, .. } = &mut *store;
            wakes.append(&mut records.wakes);
            wakes.append(&mut latches.wakes);
            (out, take(wakes))
        };
        for (sink, wake) in wakes {
            if let Some(sink) = sink.upgrade() {
                sink.wake(wake);
            }
        }
        Box::pin(std::future::ready(out))
    }

    fn check(&self, store: &Store, claim: &Claim) -> Result<(), EngineError> {
        self.capabilities.check(claim)?;
        if store.ended.contains(claim.owner.id()) { Err(ended_error()) } else { Ok(()) }
    }

    fn sink(&self) -> Weak<dyn WakeSink> {
        self.sink.get().cloned().unwrap_or_else(|| Weak::<NoSink>::new())
    }
}

const SWEEP_EVERY_CLAIMS: u64 = 4096;
const DAY_US: u64 = 86_400_000_000;

/// A wake-up, and where it goes.
type Woken = (Weak<dyn WakeSink>, Wake);
type Lock = lock::Lock<Weak<dyn WakeSink>>;

/// The state behind a store.
#[derive(Default)]
struct Store {
    // Ordered, so that scans have a cursor and nothing depends on a hash's order.
    locks: BTreeMap<Name, Lock>,
    /// The highest fence of the names that were forgotten.
    floor: Fence,
    claims: u64,
    ended: EndedAttempts,
    wakes: Vec<Woken>,
    records: RecordStore,
    latches: LatchStore,
    pools: Pools,
}

impl Store {
    fn in_use(&self, now: Now) -> impl Iterator<Item = (&Name, &Lock)> {
        self.locks.iter().filter(move |(_, lock)| lock.is_in_use(now.boot))
    }

    fn claim(&mut self, claim: &Claim, sink: Weak<dyn WakeSink>, now: Now) -> Result<Answer, EngineError> {
        self.claims += 1;
        if self.claims.is_multiple_of(SWEEP_EVERY_CLAIMS) {
            self.forget_unused(now);
        }
        let new = || Lock::new(Handover::Push, self.floor);
        let lock = self.locks.entry(claim.name.clone()).or_insert_with(new);
        hand_over(lock, Some(claim.owner.id()), now, &mut self.wakes)?;
        lock.claim(claim, now.boot, sink, now)
    }

    /// Frees a lock, if `free` finds it the one that is meant, for the next waiter.
    fn release(
        &mut self,
        name: &Name,
        mode: Mode,
        now: Now,
        free: impl FnOnce(&mut Lock) -> bool,
    ) -> Result<Released, EngineError> {
        let Some(lock) = self.locks.get_mut(name) else { return Ok(Released::Expired) };
        let was_ours = free(lock);
        let handed = hand_over(lock, None, now, &mut self.wakes)?;
        Ok(lock.released(was_ours, mode, &handed, now.boot))
    }

    /// Leases that ran out and that nobody asks for again would stay forever otherwise.
    fn forget_unused(&mut self, now: Now) {
        self.locks.retain(|_, lock| {
            drop_unreachable(lock, now);
            // A limit stays for a day: the fence of the last grant is not before the time of it.
            let has_limit = lock.limit.is_some() && lock.last.get() + DAY_US > now.wall_us;
            let is_kept = has_limit || lock.holders(now.boot).next().is_some() || !lock.queue.is_empty();
            if !is_kept {
                self.floor = self.floor.max(lock.last);
            }
            is_kept
        });
    }
}

/// Hands what is free to those in turn, but not to the one who asks; returns their fences.
fn hand_over(
    lock: &mut Lock,
    asks: Option<OwnerId>,
    now: Now,
    wakes: &mut Vec<Woken>,
) -> Result<Vec<Fence>, EngineError> {
    drop_unreachable(lock, now);
    let mut fences = Vec::new();
    for (waiter, fence) in lock.hand_over(asks, now)? {
        wakes.push((waiter.wake, Wake::Granted { owner: waiter.owner.id(), fence, link: 0 }));
        fences.push(fence);
    }
    Ok(fences)
}

/// Waiters whose client is gone or whose time limit has passed never claim again.
fn drop_unreachable(lock: &mut Lock, now: Now) {
    lock.queue.retain(|waiter| waiter.wake.strong_count() > 0 && waiter.gives_up > now.boot);
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

    fn latches(&self) -> Result<&dyn super::latches::Latches, &'static str> {
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
                ("names in use".into(), store.in_use(now).count().to_string()),
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
        self.fallible(|store, now| {
            self.check(store, claim)?;
            store.claim(claim, self.sink(), now)
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], _: Until) -> Fut<'a, AnswerAll> {
        self.fallible(|store, now| {
            for (place, claim) in claims.iter().enumerate() {
                self.check(store, claim)?;
                let Some(lock) = store.locks.get_mut(&claim.name) else { continue };
                hand_over(lock, Some(claim.owner.id()), now, &mut store.wakes)?;
                match lock.refuses(claim, now) {
                    Ok(None) => {}
                    Ok(Some(holders)) => return Ok(AnswerAll::Busy { claim: place, holders }),
                    Err(error) => return Ok(AnswerAll::Refused { claim: place, error }),
                }
            }
            let mut grants = Vec::with_capacity(claims.len());
            for claim in claims {
                let Answer::Granted(grant) = store.claim(claim, self.sink(), now)? else {
                    unreachable!("nothing came in between")
                };
                grants.push(grant);
            }
            Ok(AnswerAll::Granted(grants))
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], _: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        let renew = |store: &mut Store, hold: &Hold, now: Now| match hold.of {
            Held::Record => store.records.renew(hold, now),
            Held::Latch => store.latches.renew(hold, now),
            Held::Lock | Held::Closed => {
                store.locks.get_mut(&hold.name).is_some_and(|lock| lock.renew(hold, now.boot))
            }
        };
        self.atomic(|store, now| {
            let since = now.boot;
            let answer =
                |is_kept| Ok(if is_kept { Renewed::Kept { since, link: None } } else { Renewed::Gone });
            holds.iter().map(|hold| answer(renew(store, hold, now))).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold, _: Until) -> Fut<'a, Released> {
        self.fallible(|store, now| {
            store.release(&hold.name, hold.mode, now, |lock| lock.end(hold.owner.id(), now.boot))
        })
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, _: Until) -> Fut<'a, ()> {
        self.fallible(|store, now| {
            store.ended.insert(claim.owner.id(), ());
            let end = |lock: &mut Lock| lock.end(claim.owner.id(), now.boot);
            store.release(&claim.name, claim.mode, now, end).map(drop)
        })
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, _: Until) -> Fut<'a, Released> {
        let mode = Mode::Exclusive;
        self.fallible(|store, now| store.release(name, mode, now, |lock| lock.force(seen, now.boot)))
    }

    fn convert<'a>(&'a self, hold: &'a Hold, to: Mode, _: Until) -> Fut<'a, Converted> {
        self.fallible(|store, now| {
            let Some(lock) = store.locks.get_mut(&hold.name) else { return Ok(Converted::Gone) };
            let converted = lock.convert(hold, to, now.boot, now)?;
            hand_over(lock, None, now, &mut store.wakes).map(|_| converted)
        })
    }

    fn hand_to<'a>(&'a self, hold: &'a Hold, next: &'a Holder, _: Until) -> Fut<'a, HandedTo> {
        self.fallible(|store, now| {
            let Some(lock) = store.locks.get_mut(&hold.name) else { return Ok(HandedTo::Gone) };
            drop_unreachable(lock, now);
            let (handed, waiter) = lock.hand_to(hold, next, now)?;
            if let (HandedTo::Done { fence }, Some(waiter)) = (handed, waiter) {
                let wake = Wake::Granted { owner: waiter.owner.id(), fence, link: 0 };
                store.wakes.push((waiter.wake, wake));
            }
            Ok(handed)
        })
    }

    fn set_limit<'a>(&'a self, name: &'a Name, limit: NonZeroU32, _: Until) -> Fut<'a, ()> {
        self.fallible(|store, now| {
            let new = || Lock::new(Handover::Push, store.floor);
            let lock = store.locks.entry(name.clone()).or_insert_with(new);
            lock.set_limit(limit, now)?;
            hand_over(lock, None, now, &mut store.wakes).map(drop)
        })
    }
}

impl Inspect for Memory {
    fn inspect<'a>(&'a self, name: &'a Name, _: Until) -> Fut<'a, Inspection> {
        self.atomic(|store, now| {
            let unused = || Inspection::unused(name.clone());
            store.locks.get(name).map_or_else(unused, |lock| lock.inspect(name, now.boot))
        })
    }

    fn page<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        _: Until,
    ) -> Fut<'a, Page<Inspection>> {
        let after = from.as_ref().map_or("", Cursor::as_str);
        self.atomic(|store, now| {
            let is_asked_for = |name: &str| name.starts_with(prefix) && name > after;
            let found = store.in_use(now).filter(|(name, _)| is_asked_for(name.as_str()));
            let found = found.map(|(name, lock)| lock.inspect(name, now.boot));
            Page::first(found, limit, |lock| lock.name.as_str())
        })
    }
}
