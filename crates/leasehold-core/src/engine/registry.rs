//! What of each attempt is under way to a store, so that its end knows what may still come after it.
//!
//! A store that is reached over connections can get the copies of a claim in any order: one that waited in a broken
//! connection may arrive after the end of its attempt, and would then lock for nobody. The registry knows on which
//! connections a copy is unanswered. It lets none leave after the end, and tells the end whether one may arrive later.

use std::{
    collections::VecDeque,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::task::unconstrained;

use super::{EngineError, Fault};
use crate::{
    clock::BootInstant,
    owner::{OwnerId, OwnerMap},
};

/// Attempts that one registry keeps.
const ATTEMPTS_MAX: usize = 100_000;
/// Nothing of an attempt arrives this long after it left: a kernel gives up sending to a peer that does not answer after
/// about a quarter of an hour.
pub const LATEST: Duration = Duration::from_secs(1200);
/// Ended attempts that are remembered.
const ENDED_MAX: usize = 10_000;

/// The attempts of one client that a store may know. `W` is how one waits there.
pub struct Registry<W>(Mutex<Attempts<W>>);

struct Attempts<W> {
    open: OwnerMap<Attempt<W>>,
    ended: EndedAttempts,
}

impl<W> Default for Registry<W> {
    fn default() -> Self {
        Self(Mutex::new(Attempts { open: OwnerMap::default(), ended: EndedAttempts::default() }))
    }
}

struct Attempt<W> {
    /// Calls that have not returned.
    callers: u32,
    copies: Copies,
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

/// Where a copy of a claim is that has no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimCopy {
    /// About to enter some connection's queue.
    Leaving,
    /// In this connection's queue, or beyond.
    Left(u64),
}

/// The copies of a claim that are unanswered. Seldom more than one, which then has room without an allocation.
#[derive(Default)]
struct Copies {
    first: Option<ClaimCopy>,
    /// None without a first.
    others: Vec<ClaimCopy>,
}

impl Copies {
    fn iter(&self) -> impl Iterator<Item = &ClaimCopy> {
        self.first.iter().chain(&self.others)
    }

    fn add(&mut self, copy: ClaimCopy) {
        match self.first {
            None => self.first = Some(copy),
            Some(_) => self.others.push(copy),
        }
    }

    /// A copy is no longer where it was.
    fn remove(&mut self, copy: ClaimCopy) {
        if self.first == Some(copy) {
            self.first = self.others.pop();
        } else if let Some(at) = self.others.iter().position(|other| *other == copy) {
            self.others.swap_remove(at);
        }
    }
}

impl<W> Attempt<W> {
    fn is_over(&self) -> bool {
        let knows_nothing = self.copies.first.is_none() && self.waits.is_none();
        self.callers == 0 && (knows_nothing || self.end == End::Answered)
    }
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
        let Attempts { open, ended } = &mut *self.all();
        if open.len() >= ATTEMPTS_MAX && !open.contains_key(&owner) {
            // Those that nobody ended, and of which nothing can be on its way any more.
            open.retain(|_, attempt| attempt.callers > 0 || now.since(attempt.asked_at) < LATEST);
            if open.len() >= ATTEMPTS_MAX {
                let why = format!("{ATTEMPTS_MAX} attempts are under way already");
                return Err(EngineError::new(Fault::Overloaded, why));
            }
        }
        let end = if ended.contains(owner) { End::UnderWay } else { End::Open };
        let new = || Attempt { callers: 0, copies: Copies::default(), waits: None, end, asked_at: now };
        let attempt = open.entry(owner).or_insert_with(new);
        attempt.callers += 1;
        attempt.asked_at = now;
        Ok(Call { registry: self.clone(), owner, copy: Mutex::default() })
    }

    /// The attempt ends: no copy of it leaves from here on.
    pub fn end(&self, owner: OwnerId) {
        let mut all = self.all();
        all.ended.insert(owner, ());
        if let Some(attempt) = all.open.get_mut(&owner) {
            attempt.end = End::UnderWay;
        }
    }

    /// Whether a copy may arrive after an end that leaves over this connection. What left over the same one arrives before.
    pub fn may_come_late(&self, owner: OwnerId, connection: u64) -> bool {
        let all = self.all();
        let mut copies = all.open.get(&owner).into_iter().flat_map(|attempt| attempt.copies.iter());
        copies.any(|copy| *copy != ClaimCopy::Left(connection))
    }

    /// Whether an end that leaves over this connection has more to do than to give back: a copy may arrive after it, or the
    /// attempt waits.
    pub fn leaves_something(&self, owner: OwnerId, connection: u64) -> bool {
        let all = self.all();
        let Some(attempt) = all.open.get(&owner) else { return false };
        attempt.waits.is_some() || attempt.copies.iter().any(|copy| *copy != ClaimCopy::Left(connection))
    }

    /// Changes what is known of an attempt, if it is known; one that is over is forgotten.
    fn change<R>(&self, owner: OwnerId, change: impl FnOnce(&mut Attempt<W>) -> R) -> Option<R> {
        let mut all = self.all();
        let attempt = all.open.get_mut(&owner)?;
        let changed = change(attempt);
        if attempt.is_over() {
            all.open.remove(&owner);
        }
        Some(changed)
    }

    /// The store has answered the end.
    pub fn ended(&self, owner: OwnerId) {
        self.change(owner, |attempt| attempt.end = End::Answered);
    }

    /// Reads or changes how an attempt waits. One that is not known waits in no way.
    pub fn waits<R: Default>(&self, owner: OwnerId, look: impl FnOnce(&mut Option<W>) -> R) -> R {
        self.change(owner, |attempt| look(&mut attempt.waits)).unwrap_or_default()
    }

    /// The attempts that wait, if `which` of their ways to wait says so.
    pub fn waiting(&self, which: impl Fn(&W) -> bool) -> Vec<OwnerId> {
        let all = self.all();
        let waiting = all.open.iter().filter(|(_, attempt)| attempt.waits.as_ref().is_some_and(&which));
        waiting.map(|(owner, _)| *owner).collect()
    }

    /// How many attempts it keeps.
    pub fn count(&self) -> usize {
        self.all().open.len()
    }
}

/// A claim, or something else that counts as one, whose caller waits.
pub struct Call<W: Clone> {
    registry: Arc<Registry<W>>,
    owner: OwnerId,
    /// The copy that its caller waits for; none if it was not sent, or is answered.
    copy: Mutex<Option<ClaimCopy>>,
}

impl<W: Clone> Call<W> {
    fn change<T>(&self, change: impl FnOnce(&mut Attempt<W>, &mut Option<ClaimCopy>) -> T) -> T {
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.registry.change(self.owner, |attempt| change(attempt, &mut copy));
        changed.expect("an attempt is known as long as it has a caller")
    }

    /// A copy is about to leave, which may make the attempt wait there. One that left before is unanswered for good.
    ///
    /// # Errors
    /// `Ended` after the attempt's end.
    pub fn leaves(&self, waits: Option<&W>) -> Result<(), EngineError> {
        self.change(|attempt, copy| {
            if attempt.end != End::Open {
                return Err(ended_error());
            }
            attempt.copies.add(ClaimCopy::Leaving);
            *copy = Some(ClaimCopy::Leaving);
            if let Some(waits) = waits {
                attempt.waits = Some(waits.clone());
            }
            Ok(())
        })
    }

    fn moved(&self, to: Option<ClaimCopy>) {
        self.change(|attempt, copy| {
            if let Some(from) = std::mem::replace(copy, to) {
                attempt.copies.remove(from);
            }
            if let Some(to) = to {
                attempt.copies.add(to);
            }
        });
    }

    /// It is in the connection's queue: what leaves over it later arrives later. One that had no effect elsewhere may leave
    /// again.
    pub fn left(&self, connection: u64) {
        self.moved(Some(ClaimCopy::Left(connection)));
    }

    /// It was answered, or never left.
    pub fn answered(&self) {
        self.moved(None);
    }

    /// Whether the attempt has ended: no copy of it may leave.
    pub fn has_ended(&self) -> bool {
        self.change(|attempt, _| attempt.end != End::Open)
    }

    /// It got what it waited for.
    pub fn waits_no_longer(&self) {
        self.change(|attempt, _| attempt.waits = None);
    }
}

impl<W: Clone> Drop for Call<W> {
    fn drop(&mut self) {
        self.change(|attempt, copy| {
            // What has left stays unanswered; what has not never will.
            if let Some(copy) = copy.take_if(|copy| *copy == ClaimCopy::Leaving) {
                attempt.copies.remove(copy);
            }
            attempt.callers -= 1;
        });
    }
}

/// Sends something, and notes at once that it is in its connection's queue, or in line for it.
pub fn send_noted<S: Future, L: FnOnce()>(send: S, left: L) -> Noted<S, L> {
    Noted { send, left: Some(left) }
}

pin_project! {
    /// The future of [`send_noted`].
    // By hand, because an `async fn` has room for what it was given and once more for what it awaits.
    #[must_use = "futures do nothing unless polled"]
    pub struct Noted<S, L> {
        #[pin]
        send: S,
        left: Option<L>,
    }
}

impl<S: Future, L: FnOnce()> Future for Noted<S, L> {
    type Output = S::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<S::Output> {
        let this = self.project();
        // A task's budget must not delay the first poll.
        let polled = pin!(unconstrained(this.send)).poll(context);
        if let Some(left) = this.left.take() {
            left();
        }
        polled
    }
}

/// Attempts that have ended lately, of which nothing may take effect any more, with what is known of each.
#[derive(Debug)]
pub struct EndedAttempts<T = ()> {
    known: OwnerMap<T>,
    order: VecDeque<OwnerId>,
}

impl<T> Default for EndedAttempts<T> {
    fn default() -> Self {
        Self { known: OwnerMap::default(), order: VecDeque::new() }
    }
}

impl<T> EndedAttempts<T> {
    /// Remembers one, and forgets the oldest of too many.
    pub fn insert(&mut self, owner: OwnerId, what: T) {
        if self.known.insert(owner, what).is_some() {
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
        self.known.contains_key(&owner)
    }

    /// What is known of one.
    pub fn get(&self, owner: OwnerId) -> Option<&T> {
        self.known.get(&owner)
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
        attempts.may_come_late(owner, connection)
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
        assert_eq!(attempts.count(), 0);

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
        assert_eq!(attempts.count(), 0);

        // Also if the caller still waits for the answer when the end was answered.
        let (attempts, owner, call) = begin();
        call.leaves(None).unwrap();
        call.left(1);
        attempts.end(owner);
        attempts.ended(owner);
        drop(call);
        assert_eq!(attempts.count(), 0);

        let (attempts, _, call) = begin();
        call.leaves(None).unwrap();
        call.left(1);
        call.answered();
        drop(call);
        assert_eq!(attempts.count(), 0);
    }

    #[test]
    fn nothing_leaves_after_the_end() {
        let (attempts, owner, call) = begin();
        attempts.end(owner);
        attempts.ended(owner);
        assert_eq!(call.leaves(None).unwrap_err().fault, Fault::Ended);
        drop(call);
        assert_eq!(attempts.count(), 0);

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
        assert_eq!(attempts.count(), 0);
    }
}
