//! A term: led by one, ended once, and not before its body has ended.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    engine::Released,
    error::{Error, Result},
    lease::{Guard, Lease, lease_methods},
    lock::{RunError, conclude, unless},
    name::Name,
    owner::Holder,
};

tokio::task_local! {
    /// The terms whose bodies this task runs: none of them can end while it waits for that.
    static BODIES_OF: Vec<usize>;
}

/// The lead of an [`Election`](super::Election), kept alive until it is given back or lost. Clones are the same leadership: it is
/// given back by [`Leadership::resign`], by [`Election::lead`](super::Election::lead) when its body has ended, or in the background
/// when the last clone is dropped.
///
/// Do not use it alone to protect something that cannot undo a late write: pass [`fence`](Leadership::fence) along and let
/// the resource check it.
#[derive(Clone)]
#[must_use = "the lead is given back when the leadership is dropped"]
pub struct Leadership {
    term: Arc<Term>,
}

struct Term {
    lease: Lease,
    end: tokio::sync::Mutex<End>,
    /// Somebody asked for its end.
    resigning: CancellationToken,
    /// Whether a body runs.
    body: watch::Sender<bool>,
    /// Whether the lease could be trusted until the end of the body.
    held_to_the_end: OnceLock<bool>,
    /// Who is to be next.
    successor: Mutex<Option<Holder>>,
}

struct End {
    guard: Guard,
    /// Once it is known.
    outcome: Option<Released>,
}

/// What asking to hand the lead over led to.
#[must_use = "a leader whose candidate does not wait leads on"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Yielded {
    /// The term has ended. [`Released::HandedOver`] has the fence of the next leader.
    Done(Released),
    /// That candidate does not wait. The term goes on.
    NotWaiting,
}

impl Leadership {
    pub(super) fn new(guard: Guard) -> Self {
        let lease = guard.lease();
        let end = tokio::sync::Mutex::new(End { guard, outcome: None });
        let (resigning, body) = (CancellationToken::new(), watch::Sender::new(false));
        let (held_to_the_end, successor) = (OnceLock::new(), Mutex::default());
        Self { term: Arc::new(Term { lease, end, resigning, body, held_to_the_end, successor }) }
    }

    lease_methods! { |leadership| &leadership.term.lease }

    /// Completes when somebody has asked for the end of this term, by [`resign`](Self::resign) or
    /// [`yield_to`](Self::yield_to): a body finishes what it is at and returns.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn resigning(&self) {
        self.term.resigning.cancelled().await;
    }

    /// Whether somebody has asked for the end of this term.
    pub fn is_resigning(&self) -> bool {
        self.term.resigning.is_cancelled()
    }

    /// Ends the term, and returns what had become of the lead. The body of [`Election::lead`](super::Election::lead) is told by
    /// [`resigning`](Self::resigning), and the lead is not given back before it has ended: this waits for it, however long that
    /// takes. A term ends once, and every call returns the same outcome.
    ///
    /// After an error call it again. It then reports what the store answers now: `Expired` or `Taken` may be the effect of the
    /// call before, whose answer was lost.
    ///
    /// # Cancel safety
    /// The body stays asked to end. Once it has, the lead is not renewed any more; call this again or drop all clones.
    ///
    /// # Errors
    /// The store's faults: the outcome is unknown, and the release is also repeated in the background. `unsupported` within
    /// the body itself, which would wait for its own end: return from it instead.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let (send, receive) = tokio::sync::oneshot::channel();
    /// let body = async |leadership: leasehold::Leadership| {
    ///     send.send(leadership.clone()).ok();
    ///     leadership.resigning().await;
    ///     "finished what it was at"
    /// };
    /// let shutdown = async {
    ///     let leadership = receive.await.expect("it leads");
    ///     leadership.resign().await
    /// };
    /// let (led, resigned) = tokio::join!(leases.election("scheduler").lead(body), shutdown);
    /// assert_eq!(led?, "finished what it was at");
    /// assert!(resigned?.was_held());
    /// # Ok(()) }
    /// ```
    pub async fn resign(&self) -> Result<Released> {
        self.term.resigning.cancel();
        self.term.body_has_ended().await?;
        self.term.give_up().await
    }

    /// Ends the term by handing the lead to a candidate that waits, ahead of the others and without a moment in which nobody
    /// holds it. Waits for a body to end, as [`resign`](Self::resign) does; if the candidate has left by then, the term ends as
    /// by `resign`. [`Election::candidates`](super::Election::candidates) lists who waits.
    ///
    /// # Cancel safety
    /// As [`Leadership::resign`].
    ///
    /// # Errors
    /// `unsupported` where the store cannot do it, and within the body itself; the store's faults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use leasehold::election::Yielded;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let leadership = leases.election("scheduler").campaign().await?;
    /// let next = tokio::spawn(leases.election("scheduler").label("new version").campaign());
    /// let candidate = loop {
    ///     tokio::task::yield_now().await;
    ///     if let Some(candidate) = leases.election("scheduler").candidates().await?.pop() {
    ///         break candidate;
    ///     }
    /// };
    /// assert!(matches!(leadership.yield_to(&candidate).await?, Yielded::Done(_)));
    /// assert!(next.await.expect("no panic")?.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn yield_to(&self, candidate: &Holder) -> Result<Yielded> {
        let (term, core, name) = (&self.term, &self.term.lease.core, self.name());
        if let Some(why) = core.engine.capabilities().no_hand_to {
            return Err(Error::unsupported(format!("handing \"{name}\" to a certain candidate"), why));
        }
        term.check_not_within()?;
        // A term is not ended for somebody who is gone.
        if !candidates(core, name).await?.contains(candidate) {
            return Ok(Yielded::NotWaiting);
        }
        *term.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(candidate.clone());
        self.resign().await.map(Yielded::Done)
    }

    /// [`yield_to`](Self::yield_to) the first candidate that is preferred, if there is one: by its label, for example. Without
    /// one the term goes on.
    ///
    /// # Cancel safety
    /// As [`Leadership::resign`].
    ///
    /// # Errors
    /// As [`Leadership::yield_to`].
    pub async fn prefer(&self, is_preferred: impl Fn(&Holder) -> bool) -> Result<Yielded> {
        let waiting = candidates(&self.term.lease.core, self.name()).await?;
        match waiting.iter().find(|candidate| is_preferred(candidate)) {
            Some(candidate) => self.yield_to(candidate).await,
            None => Ok(Yielded::NotWaiting),
        }
    }

    /// [`yield_to`](Self::yield_to) the candidate with the highest [`priority`](super::Election::priority), and of several to the
    /// one that has waited longest. Without a candidate the term goes on.
    ///
    /// # Cancel safety
    /// As [`Leadership::resign`].
    ///
    /// # Errors
    /// As [`Leadership::yield_to`].
    pub async fn prefer_highest(&self) -> Result<Yielded> {
        let waiting = candidates(&self.term.lease.core, self.name()).await?;
        // Of equal ones the last is the greatest.
        match waiting.iter().rev().max_by_key(|candidate| candidate.priority()) {
            Some(candidate) => self.yield_to(candidate).await,
            None => Ok(Yielded::NotWaiting),
        }
    }

    pub(super) async fn run<T>(self, body: impl AsyncFnOnce(Leadership) -> T) -> Result<T, RunError<T>> {
        // Dropped after the body, whatever ends it.
        let running = Running::begin(&self.term);
        let body = unless(self.term.lease.lost(), body(self.clone()));
        let ended = BODIES_OF.scope(self.term.bodies(), body).await;
        running.end();
        self.settle(ended).await
    }

    /// Runs a body that nothing can cancel, such as a closure; [`settle`](Self::settle) then ends the term.
    ///
    /// # Errors
    /// The panic of the body.
    pub fn run_blocking<T>(&self, body: impl FnOnce() -> T) -> thread::Result<T> {
        let running = Running::begin(&self.term);
        let ended = catch_unwind(AssertUnwindSafe(|| BODIES_OF.sync_scope(self.term.bodies(), body)));
        running.end();
        ended
    }

    /// Ends the term after a body that ended or was cancelled, and says what became of it.
    ///
    /// # Errors
    /// [`RunError::Lost`] when the lease had ended by then.
    pub async fn settle<T>(self, ended: Option<thread::Result<T>>) -> Result<T, RunError<T>> {
        self.term.resigning.cancel();
        // A failure is logged, and repeated in the background. Somebody who waited for the body may have been faster.
        let _logged = self.term.give_up().await;
        conclude(&self.term.lease, self.term.held_to_the_end.get() == Some(&true), ended)
    }
}

impl Term {
    /// The terms whose bodies the task runs that runs the body of this one.
    fn bodies(&self) -> Vec<usize> {
        let mut bodies = BODIES_OF.try_with(Vec::clone).unwrap_or_default();
        bodies.push(self.id());
        bodies
    }

    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn check_not_within(&self) -> Result<()> {
        let is_within = BODIES_OF.try_with(|bodies| bodies.contains(&self.id())).unwrap_or(false);
        if is_within && *self.body.borrow() {
            let why = "it would wait for its own end; return from the body instead";
            return Err(Error::unsupported(
                format!("resigning from \"{}\" within its body", self.lease.name()),
                why,
            ));
        }
        Ok(())
    }

    async fn body_has_ended(&self) -> Result<()> {
        self.check_not_within()?;
        let mut body = self.body.subscribe();
        body.wait_for(|is_running| !is_running).await.map(drop).expect("the sender is our own");
        Ok(())
    }

    /// Gives the lead back, once.
    async fn give_up(&self) -> Result<Released> {
        let mut end = self.end.lock().await;
        if let Some(outcome) = end.outcome {
            return Ok(outcome);
        }
        let successor = self.successor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let outcome = match successor.filter(|_| self.lease.is_held()) {
            Some(next) => end.guard.hand_to(&next).await?,
            // A lost lock with a lock-delay is left to its delay.
            None if end.guard.keeps_delay() => {
                end.guard.give_back_in_background();
                Released::Expired
            }
            None => end.guard.release_in_place().await?,
        };
        end.outcome = Some(outcome);
        Ok(outcome)
    }
}

/// A body that runs. Dropped before it has ended, it was cancelled from outside: the lead is given back in the background.
struct Running<'a> {
    term: &'a Term,
    is_cancelled: bool,
}

impl<'a> Running<'a> {
    fn begin(term: &'a Term) -> Self {
        term.body.send_replace(true);
        Self { term, is_cancelled: true }
    }

    fn end(mut self) {
        let _first = self.term.held_to_the_end.set(self.term.lease.is_held());
        self.is_cancelled = false;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Nobody else has it while a body runs.
        if self.is_cancelled
            && let Ok(mut end) = self.term.end.try_lock()
        {
            end.guard.give_back_in_background();
        }
        self.term.body.send_replace(false);
    }
}

pub(super) async fn candidates(core: &Core, name: &Name) -> Result<Vec<Holder>> {
    let answer = core.engine.inspector().inspect(name, core.command_until()).await;
    let found = answer.map_err(|error| core.failed(error, "inspecting", name))?;
    Ok(found.waiters.into_iter().map(|waiter| waiter.holder).collect())
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.term.lease.fmt(f)
    }
}
