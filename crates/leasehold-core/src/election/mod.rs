//! Elections: one leader at a time, and everybody may know who it is.
//!
//! An [`Election`] is the exclusive lock of its name, held for a term. [`Election::campaign`] waits to become the leader,
//! [`Election::lead`] runs a body for as long as it is one, and [`Election::observe`] reports who leads without taking part.
//!
//! | you want | use |
//! |---|---|
//! | to run something in one process of a fleet, and in another one when that ends | [`Election::lead`] |
//! | to lead across several steps | [`Election::campaign`], then [`Leadership::resign`] |
//! | to end a term when the program is to stop | [`Leadership::resign`] from another task: it waits for the body |
//! | to let a certain candidate be next, without a gap | [`Leadership::yield_to`], [`Leadership::prefer`] |
//! | to let the newest or the strongest be next | [`Election::version`], [`Election::priority`], [`Leadership::prefer_highest`] |
//! | to send requests to the leader | [`Election::observe`] |
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let leases = leasehold::Leasehold::connect("memory:").await?;
//! let jobs = leases.election("scheduler").label("scheduler 2.1").lead(async |leadership| {
//!     // Cancelled the moment the lease can no longer be trusted; every write carries `leadership.fence()`.
//!     println!("leading under fence {}", leadership.fence());
//!     3
//! });
//! assert_eq!(jobs.await?, 3);
//! # leases.close().await
//! # }
//! ```
//!
//! # When does a term end?
//!
//! - The body of `lead` ends, or the leader resigns. The lock is not given back while a body still runs.
//! - The lease is lost. The body is cancelled before the store could grant the lock to the next leader.
//! - The process dies. The next leader begins when the ttl is over.
//!
//! A process can be paused between a check and a write. Only the fence helps then, and only where it is checked: see
//! [`fence`](crate::fence).

mod leadership;
mod observe;

use std::{sync::Arc, time::Duration};

use crate::{
    builder::{lock_setters, setters},
    config::between,
    core::Core,
    engine::Acks,
    error::{Error, Result},
    lock::{Lock, Retry, RunError, Waited},
    name::Name,
    owner::{Holder, PRIORITY, VERSION},
};
pub use leadership::{Leadership, Yielded};
pub use observe::{Leaders, Observed};

/// Builder of a candidacy, or of an observer; made by [`Client::election`](crate::Client::election).
///
/// Not the right tool for work that each process could do a part of: use [`Client::semaphore`](crate::Client::semaphore) or
/// [`Client::deadlines`](crate::Client::deadlines).
#[derive(Clone)]
#[must_use = "an election does nothing until somebody campaigns or observes"]
pub struct Election {
    lock: Lock,
    poll_every: Duration,
    version: Option<String>,
    priority: i32,
}

/// How often an observer asks, unless set.
const POLL_EVERY: Duration = Duration::from_secs(1);

impl Election {
    pub(crate) fn new(lock: Lock) -> Self {
        Self { lock: lock.wait_forever().keep_alive(), poll_every: POLL_EVERY, version: None, priority: 0 }
    }

    lock_setters! {
        ttl(ttl: Duration);
        wait(wait: Duration);
        retry(retry: Retry);
        label(label: impl Into<String>);
        lock_delay(delay: Duration);
        acks(acks: impl Into<Acks>);
        max_lifetime(most: Duration);
        on_wait(progress: impl Fn(&Waited<'_>) + Send + Sync + 'static);
    }

    setters! {
        /// How often [`Election::observe`] asks the store, from 10 ms to an hour. A leader for less time than that may not be
        /// seen. Default: 1 s.
        poll_every(every: Duration) => poll_every;
        /// How much this candidate is to be preferred, for [`Leadership::prefer_highest`] of the leader before it. Shown at the
        /// end of its label, and read by [`Holder::priority`]. Who waits is served in order of arrival all the same, as long as
        /// no leader asks for another order. Default: 0.
        priority(priority: i32) => priority;
    }

    /// The version of the program that stands, a word such as `2.1`. Shown at the end of its label, and read by
    /// [`Holder::version`].
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Waits to become the leader, as long as it takes unless [`Election::wait`] was called.
    ///
    /// # Cancel safety
    /// Dropping the future ends the candidacy in the background, or gives back the lead that was granted meanwhile. Its place
    /// among the candidates is lost.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let leadership = leases.election("scheduler").campaign().await?;
    /// assert!(leadership.is_held());
    /// assert!(leadership.resign().await?.was_held());
    /// # Ok(()) }
    /// ```
    pub async fn campaign(self) -> Result<Leadership> {
        Ok(Leadership::new(Box::pin(self.candidacy()?.acquire()).await?))
    }

    /// Waits to become the leader and runs `body` for one term. The body is cancelled when the lease can no longer be trusted.
    /// The lead is given back when the body has ended, also by a panic.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and gives the lead back in the background, also if a clone of the leadership is
    /// kept elsewhere.
    ///
    /// # Errors
    /// [`RunError::Lost`] when the lease ended before the body did, with the body's value if there is one;
    /// [`RunError::NotRun`] when it did not become the leader.
    pub async fn lead<T>(self, body: impl AsyncFnOnce(Leadership) -> T) -> Result<T, RunError<T>> {
        let leadership = self.campaign().await.map_err(RunError::NotRun)?;
        leadership.run(body).await
    }

    /// Reports who leads: first the present, then every change that is seen. It may skip leaders, never goes back to an earlier
    /// one, and never reports the same twice in a row. Ends when the client is closed.
    ///
    /// # Errors
    /// `invalid` for a bad name or interval. Lost contact to the store is [`Observed::Unknown`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::election::Observed;
    ///
    /// # let leases = leasehold::Leasehold::connect("memory:").await?;
    /// let mut leaders = leases.election("scheduler").poll_every(std::time::Duration::from_millis(10)).observe()?;
    /// assert!(matches!(leaders.next().await, Some(Observed::Vacant { .. })));
    /// let leadership = leases.election("scheduler").label("me").campaign().await?;
    /// let Some(Observed::Leader { holder, fence, .. }) = leaders.next().await else { panic!("nobody leads") };
    /// println!("{holder} leads under fence {fence}");
    /// assert_eq!(fence, leadership.fence());
    /// # let _ = leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Result<Leaders> {
        let (core, name) = self.checked()?;
        between("poll interval", self.poll_every, Duration::from_millis(10), Duration::from_secs(3600))?;
        Ok(Leaders::new(core, name, self.poll_every))
    }

    /// Who waits to lead, next first; at most [`WAITERS_SHOWN`](crate::engine::WAITERS_SHOWN).
    ///
    /// # Errors
    /// `invalid` for a bad name; the store's faults.
    pub async fn candidates(&self) -> Result<Vec<Holder>> {
        let (core, name) = self.checked()?;
        leadership::candidates(&core, &name).await
    }

    /// The lock, whose label ends with what others may know of this candidate.
    fn candidacy(self) -> Result<Lock> {
        let label = &self.lock.request.label;
        let mut words: Vec<String> =
            Some(label.clone()).filter(|label| !label.is_empty()).into_iter().collect();
        if let Some(version) = self.version {
            if version.is_empty() || version.contains(char::is_whitespace) {
                let name = self.lock.checked()?;
                let error = Error::invalid("version", version, "a word without spaces");
                return Err(error.about(format!("a candidate for \"{name}\"")));
            }
            words.push(format!("{VERSION}{version}"));
        }
        if self.priority != 0 {
            words.push(format!("{PRIORITY}{}", self.priority));
        }
        let label = words.join(" ");
        Ok(self.lock.label(label))
    }

    fn checked(&self) -> Result<(Arc<Core>, Name)> {
        Ok((self.lock.core.clone(), self.lock.checked()?))
    }
}
