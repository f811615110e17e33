//! The thread that owns the connection: SQLite blocks, callers do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread, time::Duration};

use rand::RngExt;
use rusqlite::{Transaction, TransactionBehavior};
use tokio::sync::{Semaphore, oneshot};

use leasehold_core::clock::{Clock, Until};
use leasehold_core::engine::{EngineError, Fault, Fut};

use super::{fault::Result, file::LeaseFile, path::DatabasePath, store::Store, wake::Wakes};

/// First and longest pause while another process writes; a transaction takes well below a millisecond.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(4);

/// A handle of the thread; it ends when this is dropped and its work is done.
pub(super) struct Worker {
    jobs: Sender<Job>,
    asking: Arc<Semaphore>,
    clock: Clock,
    pub(super) calls: AtomicU64,
}

type Job = Box<dyn FnOnce(&mut ThreadState) + Send>;

/// What a call is for: whether it may be refused or skipped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To ask for something: waits while too many do, and is refused or skipped when its caller's time is over.
    Ask,
    /// To keep something: never refused, or a crowd that asks would cost this client the leases it has.
    Keep,
    /// To end something: never refused, and tried once also when nobody waits for the answer any more.
    End,
}

/// What a call does to the file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It changes nothing, and runs beside those who write.
    Read,
    Write,
    /// Its effect must survive a power loss.
    WriteToLast,
}

/// What the thread works with.
pub(super) struct ThreadState {
    pub(super) path: DatabasePath,
    pub(super) boot: &'static str,
    pub(super) clock: Clock,
    pub(super) wakes: Arc<Wakes>,
    pub(super) file: Option<LeaseFile>,
}

/// Methods of a trait that are one operation of the store each: what it is for, what it does to the file, and its name in
/// the store. What is lent comes first, and is copied for the thread.
macro_rules! on_thread {
    ($($method:ident(&$($lent:ident: $of:ty),+ $(; $($arg:ident: $type:ty),+)?) -> $out:ty
        => $purpose:ident $access:ident $operation:ident;)+) => {$(
        fn $method<'a>(&'a self, $($lent: &'a $of,)+ $($($arg: $type,)+)? until: Until) -> Fut<'a, $out> {
            $(let $lent = $lent.to_owned();)+
            let operation = move |store: &mut Store<'_>| store.$operation($(&$lent,)+ $($($arg),+)?);
            self.worker.call(until, Purpose::$purpose, Access::$access, operation)
        }
    )+};
}

pub(super) use on_thread;

impl Worker {
    /// Starts the thread. At most `asking_max` calls that ask for something may wait for it.
    pub(super) fn start(mut state: ThreadState, asking_max: usize) -> io::Result<Self> {
        let (jobs, received): (_, Receiver<Job>) = channel();
        let asking = Arc::new(Semaphore::new(asking_max.max(1)));
        let clock = state.clock.clone();
        thread::Builder::new().name("leasehold-sqlite".into()).spawn(move || {
            for job in received {
                job(&mut state);
            }
        })?;
        Ok(Self { jobs, asking, clock, calls: AtomicU64::new(0) })
    }

    /// Runs an operation in a transaction of its own.
    pub(super) fn call<T: Send + 'static>(
        &self,
        until: Until,
        purpose: Purpose,
        access: Access,
        operation: impl FnOnce(&mut Store<'_>) -> Result<T> + Send + 'static,
    ) -> Fut<'_, T> {
        Box::pin(self.run(until, purpose, move |state| state.transact(access, until, operation)))
    }

    /// Closes the file; a later call opens it again.
    pub(super) fn close(&self, until: Until) -> Fut<'_, ()> {
        Box::pin(self.run(until, Purpose::End, |state| {
            state.file = None;
            Ok(())
        }))
    }

    async fn run<T: Send + 'static>(
        &self,
        until: Until,
        purpose: Purpose,
        work: impl FnOnce(&mut ThreadState) -> Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let permit = match purpose {
            Purpose::Ask => match self.clock.bounded(until, self.asking.clone().acquire_owned()).await {
                Some(Ok(permit)) => Some(permit),
                _ => {
                    return Err(EngineError::new(Fault::Overloaded, "too many operations wait for the file"));
                }
            },
            Purpose::Keep | Purpose::End => None,
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move |state: &mut ThreadState| {
            drop(permit);
            let in_time = purpose == Purpose::End || state.clock.now() < until;
            let result = if in_time { work(state) } else { Err(EngineError::no_answer().into()) };
            // Nobody may be waiting any more.
            let _ = answer.send(result);
        });
        // A job that cannot be sent is dropped, and its answer with it.
        let _ = self.jobs.send(job);
        match self.clock.bounded(until, answered).await {
            Some(Ok(result)) => Ok(result?),
            Some(Err(_)) => Err(EngineError::new(Fault::Unreachable, "the store's thread has ended")),
            None => Err(EngineError::no_answer()),
        }
    }
}

impl ThreadState {
    fn transact<T>(
        &mut self,
        access: Access,
        until: Until,
        operation: impl FnOnce(&mut Store<'_>) -> Result<T>,
    ) -> Result<T> {
        let clock = self.clock.clone();
        // A little less than the caller's time, so that the reason still reaches it.
        let remaining = until.since(clock.now());
        let busy_until = until - (remaining / 10).min(Duration::from_millis(20));
        retry_while_busy(&clock, busy_until, || self.open_file())?;
        let file = self.file.as_ref().expect("opened above");
        file.sync(access == Access::WriteToLast)?;
        let transaction = retry_while_busy(&clock, busy_until, || begin(&file.db, access))?;
        // Read while nobody else can write: what was committed before is not in the future.
        let mut store = Store::new(&transaction, self.boot, clock.read());
        let out = operation(&mut store)?;
        let hints = store.hints;
        transaction.commit()?;
        self.wakes.send(hints);
        Ok(out)
    }

    fn open_file(&mut self) -> Result<()> {
        if self.file.as_ref().is_some_and(|file| file.is_still_at(&self.path)) {
            return Ok(());
        }
        if self.file.take().is_some() {
            tracing::warn!(path = %self.path.path.display(), "the database file was removed or replaced");
        }
        self.file = Some(LeaseFile::open(&self.path)?);
        Ok(())
    }
}

/// Begins a transaction, with its snapshot taken, so that nothing after it finds the file busy.
fn begin(db: &rusqlite::Connection, access: Access) -> Result<Transaction<'_>> {
    if access != Access::Read {
        return Ok(Transaction::new_unchecked(db, TransactionBehavior::Immediate)?);
    }
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Deferred)?;
    db.prepare_cached("SELECT EXISTS (SELECT 1 FROM lock)")?.query_row([], |_| Ok(()))?;
    Ok(transaction)
}

/// Repeats what fails because another process has locked the file. SQLite's own waiting is made for longer
/// transactions: it would sleep up to 100 ms where ours are over in a fraction of one.
fn retry_while_busy<T>(clock: &Clock, until: Until, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut pause = PAUSE_MIN;
    loop {
        match attempt() {
            Err(failure) if failure.is_busy() && clock.now() < until => {
                let left = until.since(clock.now());
                thread::sleep(pause.mul_f64(rand::rng().random_range(0.5..1.5)).min(left));
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
    }
}
