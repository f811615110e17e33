//! What of each attempt is under way to a store, so that its end knows what may still come after it.
//!
//! A store that is reached over connections can get the copies of a claim in any order: one that waited in a broken
//! connection may arrive after the end of its attempt, and would then lock for nobody. The registry knows on which
//! connections a copy is unanswered. It lets none leave after the end, and tells the end whether one may arrive later.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use tokio::task::unconstrained;

use super::{EngineError, Fault};
use crate::{clock::BootInstant, owner::OwnerId};

/// Attempts that one registry keeps.
const ATTEMPTS_MAX: usize = 100_000;
/// Nothing of an attempt arrives this long after it left: a kernel gives up sending to a peer that does not answer after
/// about a quarter of an hour.
pub const LATEST: Duration = Duration::from_secs(1200);
/// Ended attempts that are remembered, so that no claim of them leaves.
const ENDED_MAX: usize = 4096;

/// The attempts of one client that a store may know. `W` is how one waits there.
pub struct Registry<W>(Mutex<Attempts<W>>);

struct Attempts<W> {
    open: HashMap<OwnerId, Attempt<W>>,
    ended: EndedAttempts,
}

impl<W> Default for Registry<W> {
    fn default() -> Self {
        Self(Mutex::new(Attempts { open: HashMap::new(), ended: EndedAttempts::default() }))
    }
}

struct Attempt<W> {
    /// Calls that have not returned.
    callers: u32,
    /// Copies that are about to enter some connection's queue.
    leaving: u32,
    /// The connection of each copy that is unanswered.
    unanswered: Vec<u64>,
    /// How it waits in the store, if it may.
    waits: Option<W>,
    end: End,
    asked_at: BootInstant,
}

/// How far an attempt's end has come. From its beginning on no copy leaves any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    UnderWay,
    Answered,
}

impl<W> Attempt<W> {
    fn new(asked_at: BootInstant) -> Self {
        let unanswered = Vec::new();
        Self { callers: 0, leaving: 0, unanswered, waits: None, end: End::Open, asked_at }
    }

    fn is_over(&self) -> bool {
        let knows_nothing = self.leaving == 0 && self.unanswered.is_empty() && self.waits.is_none();
        self.callers == 0 && (knows_nothing || self.end == End::Answered)
    }

    /// A copy is no longer where it was.
    fn remove(&mut self, copy: CopyState) {
        match copy {
            CopyState::None => {}
            CopyState::Leaving => self.leaving -= 1,
            CopyState::Left(connection) => {
                let at = self.unanswered.iter().position(|other| *other == connection);
                at.map(|at| self.unanswered.swap_remove(at));
            }
        }
    }
}

/// What the end of an attempt has to do away with.
#[derive(Debug)]
pub struct Remains<W> {
    /// How it may wait.
    pub waits: Option<W>,
    /// A copy of a claim may arrive later than the end.
    pub may_come_late: bool,
}

impl<W: Clone> Registry<W> {
    fn all(&self) -> MutexGuard<'_, Attempts<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins.
    ///
    /// # Errors
    /// `Overloaded` when too many attempts are under way.
    pub fn enter(self: &Arc<Self>, owner: OwnerId, now: BootInstant) -> Result<Call<W>, EngineError> {
        let open = &mut self.all().open;
        if open.len() >= ATTEMPTS_MAX && !open.contains_key(&owner) {
            // Those that nobody ended, and of which nothing can be on its way any more.
            open.retain(|_, attempt| attempt.callers > 0 || now.since(attempt.asked_at) < LATEST);
            if open.len() >= ATTEMPTS_MAX {
                let why = format!("{ATTEMPTS_MAX} attempts are under way already");
                return Err(EngineError::new(Fault::Overloaded, why));
            }
        }
        let attempt = open.entry(owner).or_insert_with(|| Attempt::new(now));
        attempt.callers += 1;
        attempt.asked_at = now;
        Ok(Call { registry: self.clone(), owner, copy: Mutex::new(CopyState::None) })
    }

    /// The attempt ends: no copy of it leaves from here on.
    pub fn end(&self, owner: OwnerId) {
        let mut all = self.all();
        all.ended.insert(owner);
        if let Some(attempt) = all.open.get_mut(&owner) {
            attempt.end = End::UnderWay;
        }
    }

    /// What an end that leaves over this connection must do. What left over the same connection arrives before it.
    pub fn remains(&self, owner: OwnerId, connection: u64) -> Remains<W> {
        let all = self.all();
        let Some(attempt) = all.open.get(&owner) else {
            return Remains { waits: None, may_come_late: false };
        };
        let elsewhere = attempt.unanswered.iter().any(|other| *other != connection);
        Remains { waits: attempt.waits.clone(), may_come_late: attempt.leaving > 0 || elsewhere }
    }

    /// The store has answered the end.
    pub fn ended(&self, owner: OwnerId) {
        let open = &mut self.all().open;
        if let Some(attempt) = open.get_mut(&owner) {
            attempt.end = End::Answered;
            if attempt.is_over() {
                open.remove(&owner);
            }
        }
    }

    /// Reads or changes how an attempt waits. One that is not known waits in no way.
    pub fn waits<R>(&self, owner: OwnerId, look: impl FnOnce(&mut Option<W>) -> R) -> R {
        let open = &mut self.all().open;
        match open.get_mut(&owner) {
            None => look(&mut None),
            Some(attempt) => {
                let found = look(&mut attempt.waits);
                if attempt.is_over() {
                    open.remove(&owner);
                }
                found
            }
        }
    }

    /// The attempts that wait, if `which` of their ways to wait says so.
    pub fn waiting(&self, which: impl Fn(&W) -> bool) -> Vec<OwnerId> {
        let all = self.all();
        let waiting = all.open.iter().filter(|(_, attempt)| attempt.waits.as_ref().is_some_and(&which));
        waiting.map(|(owner, _)| *owner).collect()
    }

    /// How many attempts it keeps.
    pub fn len(&self) -> usize {
        self.all().open.len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A claim, or something else that counts as one, whose caller waits.
pub struct Call<W: Clone> {
    registry: Arc<Registry<W>>,
    owner: OwnerId,
    copy: Mutex<CopyState>,
}

/// Where the copy of a claim is that its caller waits for.
#[derive(Clone, Copy)]
enum CopyState {
    /// Not sent, or answered.
    None,
    /// About to enter some connection's queue.
    Leaving,
    /// In this connection's queue, or beyond.
    Left(u64),
}

impl<W: Clone> Call<W> {
    fn change<T>(&self, change: impl FnOnce(&mut Attempt<W>, &mut CopyState, &EndedAttempts) -> T) -> T {
        let all = &mut *self.registry.all();
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        // It is there as long as a call is: only the last one removes it.
        let attempt = all.open.entry(self.owner).or_insert_with(|| Attempt::new(BootInstant::from_nanos(0)));
        change(attempt, &mut copy, &all.ended)
    }

    /// A copy is about to leave, which may make the attempt wait there. One that left before is unanswered for good.
    ///
    /// # Errors
    /// `Ended` after the attempt's end.
    pub fn leaves(&self, waits: Option<&W>) -> Result<(), EngineError> {
        self.change(|attempt, copy, ended| {
            if attempt.end != End::Open || ended.contains(self.owner) {
                return Err(ended_error());
            }
            attempt.leaving += 1;
            *copy = CopyState::Leaving;
            if let Some(waits) = waits {
                attempt.waits = Some(waits.clone());
            }
            Ok(())
        })
    }

    /// It is in the connection's queue: what leaves over it later arrives later. One that had no effect elsewhere may leave
    /// again.
    pub fn left(&self, connection: u64) {
        self.change(|attempt, copy, _| {
            attempt.remove(std::mem::replace(copy, CopyState::Left(connection)));
            attempt.unanswered.push(connection);
        });
    }

    /// It was answered, or never left.
    pub fn answered(&self) {
        self.change(|attempt, copy, _| attempt.remove(std::mem::replace(copy, CopyState::None)));
    }

    /// Whether the attempt has ended: no copy of it may leave.
    pub fn has_ended(&self) -> bool {
        self.change(|attempt, _, ended| attempt.end != End::Open || ended.contains(self.owner))
    }

    /// It got what it waited for.
    pub fn waits_no_longer(&self) {
        self.change(|attempt, _, _| attempt.waits = None);
    }
}

impl<W: Clone> Drop for Call<W> {
    fn drop(&mut self) {
        let over = self.change(|attempt, copy, _| {
            // What has left stays unanswered; what has not never will.
            if let CopyState::Leaving = copy {
                attempt.remove(CopyState::Leaving);
            }
            attempt.callers -= 1;
            attempt.is_over()
        });
        if over {
            self.registry.all().open.remove(&self.owner);
        }
    }
}

/// Sends something, and notes at once that it is in its connection's queue, or in line for it.
pub async fn send_noted<T>(send: impl Future<Output = T>, left: impl FnOnce()) -> T {
    // A task's budget must not delay the first poll.
    let mut send = pin!(unconstrained(send));
    let first = poll_fn(|context| Poll::Ready(send.as_mut().poll(context))).await;
    left();
    match first {
        Poll::Ready(answer) => answer,
        Poll::Pending => send.await,
    }
}

/// Attempts that have ended lately: a claim of them must not take effect.
#[derive(Debug, Default)]
pub struct EndedAttempts {
    known: HashSet<OwnerId>,
    order: VecDeque<OwnerId>,
}

impl EndedAttempts {
    /// Remembers one, and forgets the oldest of too many.
    pub fn insert(&mut self, owner: OwnerId) {
        if !self.known.insert(owner) {
            return;
        }
        self.order.push_back(owner);
        if self.order.len() > ENDED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether it has ended.
    pub fn contains(&self, owner: OwnerId) -> bool {
        self.known.contains(&owner)
    }
}

/// What a claim after its attempt's end is answered.
pub fn ended_error() -> EngineError {
    EngineError::new(Fault::Ended, "this attempt has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{Holder, Owner};

    const NOW: BootInstant = BootInstant::from_nanos(5_000);

    fn begin() -> (Arc<Registry<()>>, OwnerId, Call<()>) {
        let (attempts, owner) = (Arc::<Registry<()>>::default(), Owner::new(1, &Holder::Foreign).id());
        let call = attempts.enter(owner, NOW).unwrap();
        (attempts, owner, call)
    }

    fn may_come_late(attempts: &Registry<()>, owner: OwnerId, connection: u64) -> bool {
        attempts.remains(owner, connection).may_come_late
    }

    #[test]
    fn only_a_copy_on_another_connection_can_come_after_the_end() {
        let (attempts, owner, call) = begin();
        assert!(!may_come_late(&attempts, owner, 1));
        call.leaves(None).unwrap();
        assert!(may_come_late(&attempts, owner, 1), "it is in no queue yet");
        call.left(1);
        assert!(!may_come_late(&attempts, owner, 1));
        assert!(may_come_late(&attempts, owner, 2));

        let again = attempts.enter(owner, NOW).unwrap();
        again.leaves(None).unwrap();
        again.left(2);
        assert!(may_come_late(&attempts, owner, 2), "the first copy is unanswered");
        call.answered();
        assert!(!may_come_late(&attempts, owner, 2));
        assert!(may_come_late(&attempts, owner, 3));
        again.answered();
        assert!(!may_come_late(&attempts, owner, 3));
    }

    #[test]
    fn a_copy_that_never_left_cannot_come_after_the_end_and_one_that_was_redirected_left_once() {
        let (attempts, owner, call) = begin();
        call.leaves(None).unwrap();
        drop(call);
        assert!(!may_come_late(&attempts, owner, 1));
        assert_eq!(attempts.len(), 0);

        let call = attempts.enter(owner, NOW).unwrap();
        call.leaves(None).unwrap();
        call.left(1);
        call.left(2);
        assert!(!may_come_late(&attempts, owner, 2));
        call.answered();
        assert!(!may_come_late(&attempts, owner, 3));
    }

    #[test]
    fn an_unanswered_copy_is_remembered_until_the_end_and_an_answered_one_is_not() {
        let (attempts, owner, call) = begin();
        call.leaves(None).unwrap();
        call.left(1);
        drop(call);
        assert!(may_come_late(&attempts, owner, 2));
        attempts.end(owner);
        attempts.ended(owner);
        assert_eq!(attempts.len(), 0);

        // Also if the caller still waits for the answer when the end was answered.
        let (attempts, owner, call) = begin();
        call.leaves(None).unwrap();
        call.left(1);
        attempts.end(owner);
        attempts.ended(owner);
        drop(call);
        assert_eq!(attempts.len(), 0);

        let (attempts, _, call) = begin();
        call.leaves(None).unwrap();
        call.left(1);
        call.answered();
        drop(call);
        assert_eq!(attempts.len(), 0);
    }

    #[test]
    fn nothing_leaves_after_the_end() {
        let (attempts, owner, call) = begin();
        attempts.end(owner);
        attempts.ended(owner);
        assert_eq!(call.leaves(None).unwrap_err().fault, Fault::Ended);
        drop(call);
        assert_eq!(attempts.len(), 0);

        // Nor when it was not known any more.
        let call = attempts.enter(owner, NOW).unwrap();
        assert_eq!(call.leaves(None).unwrap_err().fault, Fault::Ended);
    }

    #[test]
    fn attempts_that_nobody_ended_make_room_when_they_are_old() {
        let attempts = Arc::<Registry<()>>::default();
        for random in 0..ATTEMPTS_MAX as u128 {
            let call = attempts.enter(Owner::new(random, &Holder::Foreign).id(), NOW).unwrap();
            call.leaves(None).unwrap();
            call.left(1);
        }
        let another = Owner::new(u128::MAX, &Holder::Foreign).id();
        let fault = attempts.enter(another, NOW).err().map(|error| error.fault);
        assert_eq!(fault, Some(Fault::Overloaded));
        assert!(attempts.enter(another, NOW + LATEST).is_ok());
        assert_eq!(attempts.len(), 0);
    }
}
