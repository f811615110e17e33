//! The guard that a holder has.

use std::{fmt, sync::Arc, time::Duration};

use tracing::Instrument;

use super::{
    Cleanup, Handle,
    state::{Bond, LeaseState},
};
use crate::{
    clock::BootInstant,
    core::Core,
    engine::{Grant, Hold, Released, Renewed},
    error::{Error, Result},
    fence::Fence,
    name::Name,
    telemetry::{Count, Event, Telemetry},
};

/// What every holder can ask of its lease, as methods of its own: a guard is no lease, so nothing is found by `Deref`.
macro_rules! lease_methods {
    (|$this:ident| $lease:expr) => {
        /// The lease as a value that can be cloned into tasks. It cannot give anything back.
        pub fn lease(&self) -> $crate::lease::Lease {
            let $this = self;
            Clone::clone($lease)
        }

        /// As [`Lease::name`](crate::Lease::name).
        pub fn name(&self) -> &$crate::Name {
            let $this = self;
            $lease.name()
        }

        /// As [`Lease::assert_held_sql`](crate::Lease::assert_held_sql).
        pub fn assert_held_sql(&self) -> String {
            let $this = self;
            $lease.assert_held_sql()
        }

        /// As [`Lease::fence`](crate::Lease::fence).
        pub fn fence(&self) -> $crate::Fence {
            let $this = self;
            $lease.fence()
        }

        /// As [`Lease::acks`](crate::Lease::acks).
        pub fn acks(&self) -> u8 {
            let $this = self;
            $lease.acks()
        }

        /// As [`Lease::remaining`](crate::Lease::remaining).
        pub fn remaining(&self) -> std::time::Duration {
            let $this = self;
            $lease.remaining()
        }

        /// As [`Lease::is_held`](crate::Lease::is_held).
        pub fn is_held(&self) -> bool {
            let $this = self;
            $lease.is_held()
        }

        /// As [`Lease::lost`](crate::Lease::lost).
        pub async fn lost(&self) {
            let $this = self;
            $lease.lost().await;
        }

        /// As [`Lease::lost_within`](crate::Lease::lost_within).
        pub async fn lost_within(&self, timeout: std::time::Duration) -> bool {
            let $this = self;
            $lease.lost_within(timeout).await
        }

        /// As [`Lease::extend`](crate::Lease::extend).
        pub async fn extend(&self) -> $crate::Result<()> {
            let $this = self;
            $lease.extend().await
        }
    };
}

pub(crate) use lease_methods;

/// A lease that is held, as its holder sees it. Cheap to clone; it cannot give the lock back.
#[derive(Clone)]
pub struct Lease {
    pub(crate) state: Arc<LeaseState>,
    pub(crate) core: Arc<Core>,
}

/// How a lease begins and goes on.
pub(crate) struct Terms {
    pub(crate) keep_alive: bool,
    pub(crate) max_lifetime: Option<Duration>,
    /// Its start is only known by a bound: one renewal makes it exact, off the caller's path.
    pub(crate) handed_over: bool,
    /// Where it is counted.
    pub(crate) telemetry: Arc<Telemetry>,
    /// Those that it is held with.
    pub(crate) bond: Option<Arc<Bond>>,
}

impl Lease {
    /// Begins a lease that was granted; the keeper watches it until [`Lease::end`].
    pub(crate) fn begin(core: &Arc<Core>, hold: Hold, grant: &Grant, terms: Terms, now: BootInstant) -> Self {
        let handed_over = terms.handed_over;
        let state = Arc::new(LeaseState::new(core, hold, grant, terms, now));
        let renew_at = if handed_over {
            Some(state.acquired_at)
        } else {
            state.is_kept_alive().then(|| grant.since + core.keeper.renew_after(&state.hold, None))
        };
        if let Some(bond) = &state.bond {
            bond.add(&state);
        }
        core.keeper.watch(state.clone(), renew_at);
        Self { state, core: core.clone() }
    }

    /// The same lease, granted anew in another mode. What was cloned of the old one has ended.
    pub(super) fn replaced(&self, hold: Hold, grant: &Grant) -> Self {
        self.end();
        let Self { state, core } = self;
        let max_lifetime = Some(state.lifetime_end.since(state.acquired_at));
        // What becomes of it from here on counts for the new mode.
        let telemetry = core.telemetry.of(state.telemetry.policy(), hold.mode.into()).clone();
        let keep_alive = state.is_kept_alive();
        let terms = Terms { keep_alive, max_lifetime, handed_over: false, telemetry, bond: None };
        Self::begin(core, hold, grant, terms, state.acquired_at)
    }

    /// Ends the lease on this side: renewals stop before anything is sent. Returns whether it was held until now.
    pub(crate) fn end(&self) -> bool {
        self.core.keeper.forget(&self.state);
        self.state.end()
    }

    /// What is held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// assert_eq!(guard.name().as_str(), "deal:42");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        &self.state.hold.name
    }

    /// The fencing token: give it to whatever you write to.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let first = leases.lock("deal:42").acquire().await?;
    /// let before = first.fence();
    /// # let _ = first.release().await?;
    /// let second = leases.lock("deal:42").acquire().await?;
    /// assert!(second.fence() > before);
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Fence {
        self.state.hold.fence
    }

    /// A statement that fails unless the lock is still held, for a transaction of your own on a `postgres://` store: see
    /// [`Fence::ASSERT_HELD_SQL`].
    pub fn assert_held_sql(&self) -> String {
        self.fence().assert_held_sql(self.name())
    }

    /// The key that is in the store while this lease is, created at the revision that the fence names, for a condition in a
    /// transaction of your own: on etcd `create(KEY) = FENCE`. `None` on stores without such keys.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// if let Some(key) = guard.lease().held_key() {
    ///     println!("create({key:?}) = \"{}\"", guard.fence());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn held_key(&self) -> Option<String> {
        self.core.engine.leases().held_key(&self.state.hold)
    }

    /// How many replicas had the lock when it was acquired; zero unless [`acks`](crate::Lock::acks) asked for some.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// assert_eq!(leases.lock("deal:42").acquire().await?.acks(), 0);
    /// # Ok(()) }
    /// ```
    pub fn acks(&self) -> u8 {
        self.state.acks
    }

    /// How long the lease can still be trusted; zero once [`is_held`](Self::is_held) is false.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").ttl(Duration::from_secs(30)).acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(20));
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.state.remaining()
    }

    /// Whether the lease can be trusted at this moment. Once `false` it stays `false`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// for step in 1..=3 {
    ///     assert!(guard.is_held(), "lost before step {step}");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.state.is_held()
    }

    /// Completes when the lease can no longer be trusted: shortly before it ends, also when the store cannot be
    /// reached, or at once when the store answers that it is gone. A store that reports losses is asked as soon as somebody
    /// else has changed a lock that is kept alive. Never completes for a lease that was given back.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").keep_alive().acquire().await?;
    /// let lease = guard.lease();
    /// tokio::select! {
    ///     () = lease.lost() => panic!("stop: somebody else may be at it"),
    ///     () = async { /* the work */ } => {}
    /// }
    /// assert!(guard.release().await?.was_held());
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) {
        self.state.lost().await;
    }

    /// Waits for [`lost`](Self::lost), no longer than `timeout`, and returns whether the lease is lost.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// assert!(!guard.lost_within(Duration::from_millis(1)).await);
    /// # Ok(()) }
    /// ```
    pub async fn lost_within(&self, timeout: Duration) -> bool {
        let clock = &self.core.clock;
        clock.bounded(clock.now() + timeout, self.lost()).await.is_some()
    }

    /// Extends the lease by its ttl from now.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lease extended in the store, which this holder then does not know of.
    ///
    /// # Errors
    /// `lost` if the lease was or is gone; `store_unreachable` if there was no answer, in which case the lease
    /// stays as it was.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let guard = leases.lock("deal:42").ttl(Duration::from_secs(30)).acquire().await?;
    /// guard.extend().await?;
    /// assert!(guard.remaining() > Duration::from_secs(20));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self) -> Result<()> {
        let hold = &self.state.hold;
        if self.state.is_held() {
            let answer = self.core.renew(hold).await;
            match answer.map_err(|error| self.core.explain(error, "extending", &hold.name))? {
                Renewed::Kept { since, .. } => {
                    self.state.telemetry.count(Count::renewed);
                    self.state.extend(since);
                }
                Renewed::Gone => self.state.lose(),
            }
        }
        if self.state.is_held() { Ok(()) } else { Err(self.lost_error()) }
    }

    pub(crate) fn lost_error(&self) -> Error {
        Error::Lost { name: self.name().clone(), fence: self.fence() }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Lease");
        shown.field("name", self.name()).field("fence", &self.fence());
        shown.field("remaining", &self.remaining()).finish()
    }
}

/// A lock that is yours until you release it, drop it, or lose it.
///
/// Give it back with [`Guard::release`]. Dropping it gives it back in the background, as well as that is
/// possible: if the program ends first, the lock stays closed until its ttl is over.
///
/// Do not use a guard alone to protect something that cannot undo a late write: pass [`fence`](Guard::fence)
/// along and let the resource check it.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct Guard {
    pub(crate) lease: Lease,
    hold_at_least: Duration,
    /// Set when the holder is done: whether the lease could be trusted until then.
    held_to_the_end: Option<bool>,
    /// Nothing is left to be done when it is dropped.
    pub(super) settled: bool,
}

impl Guard {
    pub(crate) fn new(lease: Lease, hold_at_least: Duration) -> Self {
        Self { lease, hold_at_least, held_to_the_end: None, settled: false }
    }

    /// Gives the lock back, and returns what had become of it.
    ///
    /// An expired or taken lock is an outcome, not an error. With a minimum hold time the lock stays closed until
    /// that is over.
    ///
    /// # Cancel safety
    /// Dropping the future after it was polled still gives the lock back, in the background.
    ///
    /// # Errors
    /// The outcome is unknown: the store did not answer. The release is then repeated in the background, and the
    /// lock ends with its ttl at the latest.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// # use leasehold::Released;
    /// let guard = leases.lock("deal:42").acquire().await?;
    /// match guard.release().await? {
    ///     Released::Expired | Released::Taken { .. } => println!("somebody else may have worked at the same time"),
    ///     outcome => println!("{outcome:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Released> {
        let span = tracing::debug_span!(
            "release", name = %self.name(), fence = %self.fence(), mode = self.mode().as_str(),
            policy = self.lease.state.telemetry.policy(),
        );
        if span.is_disabled() {
            return self.send_release().await;
        }
        Box::pin(self.send_release().instrument(span)).await
    }

    async fn send_release(mut self) -> Result<Released> {
        self.release_in_place().await
    }

    /// The same for one that is kept, to be asked again after an error. Dropping the future after it was polled leaves it to
    /// the guard to be asked again or dropped.
    pub(crate) async fn release_in_place(&mut self) -> Result<Released> {
        let closed = self.stop();
        let Lease { state, core } = &self.lease;
        let hold = closed.as_ref().unwrap_or(&state.hold);
        let outcome = core.release(hold).await.map_err(|error| {
            let error = core.failed(error, "releasing", &hold.name);
            state.telemetry.count(Count::release_failed);
            core.reaper.spawn(Cleanup::Release(hold.clone()));
            error
        });
        self.settled = true;
        outcome.inspect(|outcome| self.report(*outcome))
    }

    /// From here on the lock stays closed at least this long after it was acquired.
    pub(crate) fn set_hold_at_least(&mut self, least: Duration) {
        self.hold_at_least = least;
    }

    lease_methods! { |guard| &guard.lease }

    /// Whether this is a lost lock whose lock-delay must run: giving it back would end the delay.
    pub(crate) fn keeps_delay(&self) -> bool {
        self.lease.state.is_lost() && !self.lease.state.hold.lock_delay.is_zero()
    }

    /// Gives up the guard without giving up the lock: nothing renews it any more, and whoever has the handle can
    /// extend and release it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # use std::time::Duration;
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let handle = leases.lock("deploy").ttl(Duration::from_secs(300)).acquire().await?.detach();
    /// let secret = handle.expose(); // for a file that only this user can read
    /// // Later, in another process:
    /// let handle: leasehold::Handle = secret.parse()?;
    /// assert!(handle.release(&leases).await?.was_held());
    /// # Ok(()) }
    /// ```
    pub fn detach(mut self) -> Handle {
        self.settled = true;
        self.lease.core.keeper.forget(&self.lease.state);
        Handle { hold: self.lease.state.hold.clone() }
    }

    /// Ends the lease on this side. Returns what is to be given back instead, if the lock is still ours: it first stays
    /// closed for what is left of its minimum hold time.
    pub(super) fn stop(&mut self) -> Option<Hold> {
        let held = *self.held_to_the_end.get_or_insert_with(|| self.lease.end());
        let Lease { state, core } = &self.lease;
        if !held || self.hold_at_least.is_zero() {
            return None;
        }
        let remaining = (state.acquired_at + self.hold_at_least).since(core.clock.now());
        (!remaining.is_zero()).then(|| state.hold.closed_for(remaining))
    }

    pub(super) fn report(&self, outcome: Released) {
        let Lease { state, core } = &self.lease;
        let (Hold { name, fence, ttl, mode, .. }, telemetry) = (&state.hold, &state.telemetry);
        let held = core.clock.now().since(state.acquired_at);
        match outcome {
            Released::Free | Released::HandedOver { .. } | Released::Closed { .. } => {
                telemetry.count(Count::released);
                tracing::debug!(%name, %fence, ?held, ?outcome, "released");
            }
            Released::Expired | Released::Taken { .. } => {
                telemetry.count(Count::release_not_ours);
                tracing::warn!(%name, %fence, ?held, ?outcome, "released a lock that was not ours any more");
            }
        }
        if self.held_to_the_end == Some(true) {
            telemetry.held_for(held);
        }
        if !state.is_kept_alive() && held > *ttl / 2 {
            telemetry.overheld(name, held, *ttl);
        }
        telemetry.emit(|| Event::Released { name: name.clone(), fence: *fence, mode: *mode, outcome });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.give_back_in_background();
    }
}

impl Guard {
    /// What dropping it does, unless it was done before.
    pub(crate) fn give_back_in_background(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let closed = self.stop();
        let Lease { state, core } = &self.lease;
        state.telemetry.count(Count::dropped);
        if self.held_to_the_end == Some(true) {
            state.telemetry.held_for(core.clock.now().since(state.acquired_at));
        }
        if !self.keeps_delay() {
            core.reaper.spawn(Cleanup::Release(closed.unwrap_or_else(|| state.hold.clone())));
        }
    }
}
