//! `sqlite:PATH` — leases between the processes of one host, without a server.
//!
//! The file is an ordinary SQLite database on a local disk; every process that opens the same path shares its
//! locks. Times are those of the host's boot clock, so neither a step of the wall clock nor a suspended laptop
//! changes who holds what, and a restart of the host frees everything. Results, marks and deadlines outlive it, by the
//! wall clock, and a power loss as well.
//!
//! Use it for programs of one host. Containers share locks if they share the directory (not only the file: SQLite
//! keeps two more beside it) and the kernel. What cannot be shared safely is refused when the file is opened: see
//! `docs/stores.md`.
//!
//! Do not remove the file while programs use it; they notice and begin a new one, but holders lose their leases.
//! A program that is stopped (`SIGSTOP`) within one of its transactions, a fraction of a millisecond each, keeps
//! all others waiting until it goes on or ends; their calls then fail in time and say so.

mod boot;
mod checks;
mod deadlines;
mod fault;
mod file;
mod file_system;
mod health;
mod path;
mod records;
mod store;
#[cfg(test)]
mod tests;
mod wake;
mod worker;

use std::sync::{Arc, Weak};

use crate::{
    clock::{Clock, Until},
    engine::{
        Answer, Capabilities, Claim, Cursor, Engine, EngineError, Fut, Handover, Health, Hold, Inspection,
        Leases, Page, Reach, Released, Renewed, WakeSink, connect::EngineOptions, deadlines::Deadlines,
        records::Records,
    },
    error::{Error, Result},
    fence::Fence,
    name::{NAME_MAX_BYTES, Name},
};
use path::DatabasePath;
use wake::Wakes;
use worker::{Purpose, ThreadState, Worker};

/// The engine behind `sqlite:`.
pub struct Sqlite {
    worker: Worker,
    wakes: Arc<Wakes>,
    path: DatabasePath,
    clock: Clock,
    capabilities: Capabilities,
}

impl Sqlite {
    /// Checks the path that follows `sqlite:` in a store URL. The file is opened, or created, by the first call.
    pub(crate) fn open(url: &str, options: &EngineOptions) -> Result<Self> {
        let path = DatabasePath::parse(url)?;
        let boot = boot::id(path.shared_by())?;
        let clock = options.clock.clone();
        let wakes = Arc::new(Wakes::new(rand::random()));
        let state = ThreadState {
            path: path.clone(),
            boot,
            clock: clock.clone(),
            wakes: Arc::clone(&wakes),
            file: None,
        };
        let worker = Worker::start(state, options.max_in_flight).map_err(|error| Error::Overloaded {
            doing: format!("opening sqlite:{url}"),
            why: format!("cannot start a thread: {error}"),
        })?;
        let capabilities = Capabilities::new("sqlite", Reach::Host, Handover::Pull, true, NAME_MAX_BYTES)
            .without_acks("a file has no replicas");
        Ok(Self { worker, wakes, path, clock, capabilities })
    }
}

impl Engine for Sqlite {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn leases(&self) -> &dyn Leases {
        self
    }

    fn records(&self) -> std::result::Result<&dyn Records, &'static str> {
        Ok(self)
    }

    fn round_trips(&self) -> Option<u64> {
        Some(self.worker.calls())
    }

    fn deadlines(&self) -> std::result::Result<&dyn Deadlines, &'static str> {
        Ok(self)
    }

    fn dial(&self, until: Until) -> Fut<'_, ()> {
        // A file that cannot be written shows here and not at the first lock.
        Box::pin(self.worker.write(until, Purpose::Ask, |_| Ok(())))
    }

    fn health(&self, until: Until) -> Fut<'_, Health> {
        let path = self.path.clone();
        Box::pin(self.worker.read(until, move |store| health::inspect(store, &path)))
    }

    fn close(&self, until: Until) -> Fut<'_, ()> {
        self.wakes.close();
        Box::pin(self.worker.close(until))
    }
}

impl Leases for Sqlite {
    fn claim<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, Answer> {
        Box::pin(async move {
            if claim.owner.has_ended() {
                return Err(store::ended());
            }
            if claim.queue_for.is_some() {
                self.wakes.listen();
            }
            let (since, asked, wake) = (self.clock.now(), claim.clone(), self.wakes.id().to_owned());
            self.worker
                .write(until, Purpose::Ask, move |store| {
                    // Its end may have been sent while it waited for the thread, and is behind it then.
                    if asked.owner.has_ended() {
                        return Err(store::ended().into());
                    }
                    store.claim(&asked, since, &wake)
                })
                .await
        })
    }

    fn wake_into(&self, sink: Weak<dyn WakeSink>) {
        self.wakes.wake_into(sink);
    }

    fn renew<'a>(
        &'a self,
        holds: &'a [Hold],
        until: Until,
    ) -> Fut<'a, Vec<std::result::Result<Renewed, EngineError>>> {
        Box::pin(async move {
            let (since, holds) = (self.clock.now(), holds.to_vec());
            self.worker
                .write(until, Purpose::Keep, move |store| {
                    holds.iter().map(|hold| Ok(Ok(store.renew(hold, since)?))).collect()
                })
                .await
        })
    }

    fn release<'a>(&'a self, hold: &'a Hold, until: Until) -> Fut<'a, Released> {
        let hold = hold.clone();
        Box::pin(self.worker.write(until, Purpose::End, move |store| store.release(&hold.name, &hold.owner)))
    }

    fn abandon<'a>(&'a self, claim: &'a Claim, until: Until) -> Fut<'a, ()> {
        let claim = claim.clone();
        Box::pin(self.worker.write(until, Purpose::End, move |store| {
            store.release(&claim.name, &claim.owner)?;
            Ok(())
        }))
    }

    fn inspect<'a>(&'a self, name: &'a Name, until: Until) -> Fut<'a, Inspection> {
        let name = name.clone();
        Box::pin(self.worker.read(until, move |store| store.inspect(&name)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        from: Option<Cursor>,
        limit: u32,
        until: Until,
    ) -> Fut<'a, Page<Inspection>> {
        let prefix = prefix.to_owned();
        Box::pin(self.worker.read(until, move |store| store.scan(&prefix, from.as_ref(), limit)))
    }

    fn force_release<'a>(&'a self, name: &'a Name, seen: Fence, until: Until) -> Fut<'a, Released> {
        let name = name.clone();
        Box::pin(self.worker.write(until, Purpose::Ask, move |store| store.force_release(&name, seen)))
    }
}
