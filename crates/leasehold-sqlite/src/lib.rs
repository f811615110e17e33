//! `sqlite:PATH` — leases between the processes of one host, without a server.
//!
//! The file is an ordinary SQLite database on a local disk; every process that opens the same path shares its
//! locks. Times are those of the host's boot clock, so neither a step of the wall clock nor a suspended laptop
//! changes who holds what, and a restart of the host frees everything. Results, marks, deadlines and counts
//! of latches outlive it, by the wall clock, and a power loss as well.
//!
//! Use it for programs of one host. Containers share locks if they share the directory (not only the file: SQLite
//! keeps two more beside it) and the kernel. What cannot be shared safely is refused when the file is opened: see
//! `docs/stores.md`.
//!
//! Do not remove the file while programs use it; they notice and begin a new one, but holders lose their leases.
//! A program that is stopped (`SIGSTOP`) within one of its transactions, a fraction of a millisecond each, keeps
//! all others waiting until it goes on or ends; their calls then fail in time and say so.

mod deadlines;
mod fault;
mod file;
mod health;
mod kernel;
mod latches;
mod path;
mod records;
mod store;
#[cfg(test)]
mod tests;
mod wake;
mod worker;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, Weak, atomic::Ordering};

use leasehold_core::clock::{Clock, Until};
use leasehold_core::engine::registry::{EndedAttempts, ended_error};
use leasehold_core::engine::{
    Answer, AnswerAll, Capabilities, Claim, Converted, Cursor, Engine, EngineError, EngineOptions, Fault,
    Fut, HandedTo, Handover, Health, Held, Hold, Inspect, Inspection, Leases, Mode, Page, Reach, Released,
    Renewed, WakeSink, deadlines::Deadlines, latches::Latches, records::Records,
};
use leasehold_core::name::{NAME_MAX_BYTES, Name};
use leasehold_core::{Error, Fence, Holder, error, owner::Owner};
use path::DatabasePath;
use store::Store;
use wake::Wakes;
use worker::{Access, Purpose, ThreadState, Worker, on_thread};

/// The engine behind `sqlite:`.
pub struct Sqlite {
    worker: Worker,
    wakes: Arc<Wakes>,
    path: DatabasePath,
    clock: Clock,
    ended: Arc<Mutex<EndedAttempts>>,
    capabilities: Capabilities,
}

impl Sqlite {
    /// Checks the path that follows `sqlite:` in a store URL. The file is opened, or created, by the first call.
    pub fn open(url: &str, options: &EngineOptions) -> error::Result<Self> {
        let path = DatabasePath::parse(url)?;
        let boot = kernel::boot_id(path.shared_by)?;
        let clock = options.clock.clone();
        let wakes = Arc::new(Wakes::new(rand::random()));
        let (at, times, tell) = (path.clone(), clock.clone(), wakes.clone());
        let thread = ThreadState { path: at, boot, clock: times, wakes: tell, file: None };
        let worker = Worker::start(thread, options.max_in_flight).map_err(|error| Error::Overloaded {
            doing: format!("opening sqlite:{url}"),
            source: EngineError::new(Fault::Overloaded, format!("cannot start a thread: {error}")),
        })?;
        let capabilities = Capabilities::new("sqlite", Reach::Host, Handover::Pull, true, NAME_MAX_BYTES)
            .without_acks("a file has no replicas")
            .with_all_modes()
            .with_claim_all()
            .with_hand_to();
        Ok(Self { worker, wakes, path, clock, ended: Arc::default(), capabilities })
    }

    /// Checks a claim once the thread has come to it.
    fn check(&self, claim: &Claim) -> impl FnOnce(&Claim) -> Result<(), EngineError> + Send + use<> {
        let (ended, supported) = (self.ended.clone(), self.capabilities.check(claim));
        move |claim| {
            supported?;
            // Its end may have overtaken it on the way to the thread.
            let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            if ended.contains(claim.owner.id()) { Err(ended_error()) } else { Ok(()) }
        }
    }

    /// Ends an attempt. From here on nothing of it takes effect, also if it still waits for the thread.
    fn end(&self, name: &Name, mode: Mode, owner: &Owner, until: Until) -> Fut<'_, Released> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.id(), ());
        let (name, owner) = (name.clone(), owner.clone());
        self.worker.call(until, Purpose::End, Access::Write, move |store| store.release(&name, mode, &owner))
    }
}

impl Engine for Sqlite {
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
        self.wakes.set_sink(sink);
    }

    fn records(&self) -> Result<&dyn Records, &'static str> {
        Ok(self)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.worker.calls.load(Ordering::Relaxed))
    }

    fn deadlines(&self) -> Result<&dyn Deadlines, &'static str> {
        Ok(self)
    }

    fn latches(&self) -> Result<&dyn Latches, &'static str> {
        Ok(self)
    }

    fn connect(&self, until: Until) -> Fut<'_, ()> {
        // A file that cannot be written shows here and not at the first lock.
        self.worker.call(until, Purpose::Ask, Access::Write, |_| Ok(()))
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        let path = self.path.clone();
        self.worker.call(until, Purpose::Ask, Access::Read, move |store| health::inspect(store, &path))
    }

    fn close(&self, until: Until) -> Fut<'_, ()> {
        self.wakes.close();
        self.worker.close(until)
    }
}

impl Leases for Sqlite {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        if claim.queue.is_some() {
            self.wakes.listen();
        }
        let (since, claim, wake) = (self.clock.now(), claim.clone(), self.wakes.id.clone());
        let check = self.check(&claim);
        self.worker.call(until, Purpose::Ask, Access::Write, move |store| {
            check(&claim)?;
            store.claim(&claim, since, &wake)
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim], until: Until) -> Fut<'a, AnswerAll> {
        let (since, claims, wake) = (self.clock.now(), claims.to_vec(), self.wakes.id.clone());
        let checks: Vec<_> = claims.iter().map(|claim| self.check(claim)).collect();
        self.worker.call(until, Purpose::Ask, Access::Write, move |store| {
            claims.iter().zip(checks).try_for_each(|(claim, check)| check(claim))?;
            store.claim_all(&claims, since, &wake)
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold], until: Until) -> Fut<'a, Vec<Result<Renewed, EngineError>>> {
        let (since, holds) = (self.clock.now(), holds.to_vec());
        self.worker.call(until, Purpose::Keep, Access::Write, move |store| {
            let renew = |hold: &Hold| match hold.of {
                Held::Lock | Held::Closed => store.renew(hold, since),
                Held::Record => store.renew_record(hold, since),
                Held::Latch => store.renew_party(hold, since),
            };
            holds.iter().map(|hold| Ok(Ok(renew(hold)?))).collect()
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        self.end(&hold.name, hold.mode, &hold.owner, until)
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        let ended = self.end(&claim.name, claim.mode, &claim.owner, until);
        Box::pin(async { ended.await.map(drop) })
    }

    fn convert<'a>(&'a self, hold: &'a Hold, to: Mode, until: Until) -> Fut<'a, Converted> {
        let (since, hold) = (self.clock.now(), hold.clone());
        self.worker.call(until, Purpose::Keep, Access::Write, move |store| store.convert(&hold, to, since))
    }

    fn hand_to<'a>(&'a self, hold: &'a Hold, next: &'a Holder, until: Until) -> Fut<'a, HandedTo> {
        let (hold, next) = (hold.clone(), next.clone());
        self.worker.call(until, Purpose::Keep, Access::Write, move |store| store.hand_to(&hold, &next))
    }

    on_thread! {
        set_limit(&name: Name; limit: NonZeroU32) -> () => Ask Write set_limit;
        force_release(&name: Name; seen: Fence) -> Released => Ask Write force_release;
    }
}

impl Inspect for Sqlite {
    on_thread! {
        inspect(&name: Name) -> Inspection => Ask Read inspect;
        page(&prefix: str; from: Option<Cursor>, limit: u32) -> Page<Inspection> => Ask Read scan;
    }
}
