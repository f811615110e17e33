//! Time as leases need it: a clock that counts suspend.
//!
//! [`std::time::Instant`] stops while a laptop sleeps or a virtual machine is paused, the store's clock
//! does not. A lease that is timed with it would look valid long after the store gave it away, so every
//! time in this crate is a [`BootInstant`] of a [`Clock`].

use std::{
    fmt,
    num::NonZeroU64,
    ops::{Add, Sub},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

/// A point in time on a clock that counts suspend.
///
/// On Linux it is `CLOCK_BOOTTIME`, the same for all processes of a host.
// Nanoseconds counted from one, so that an `Option` of it takes no more room: clients keep many.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(NonZeroU64);

impl BootInstant {
    /// The instant `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// How long after `earlier` this is; zero if it is before.
    pub const fn since(self, earlier: BootInstant) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;
    fn add(self, by: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(nanos(by)))
    }
}

impl Sub<Duration> for BootInstant {
    type Output = BootInstant;
    fn sub(self, by: Duration) -> BootInstant {
        BootInstant::from_nanos(self.as_nanos().saturating_sub(nanos(by)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:.6}s", Duration::from_nanos(self.as_nanos()).as_secs_f64())
    }
}

/// The caller's time limit of one call, on the client's [`Clock`].
pub type Until = BootInstant;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The clock that leases are timed by.
    pub boot: BootInstant,
    /// The wall clock, in microseconds since 1970; see [`Clock::wall_us`].
    pub wall_us: u64,
}

/// Longest sleep before the clock is read again: tokio's timers do not count suspend.
const SLICE: Duration = Duration::from_millis(500);

/// Where a client reads the time.
///
/// [`Clock::system`] is the one to use. [`Clock::tokio`] follows tokio's (pausable) time, so that a whole
/// client on `memory:` becomes deterministic in a test.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// When tokio's clock was taken up; `None` for the host's.
    simulated_since: Option<Instant>,
}

/// What [`Clock::tokio`] calls its start: an hour past zero, so that tests can look back.
const SIMULATED_START: BootInstant = BootInstant::from_nanos(3_600_000_000_000);
/// What [`Clock::tokio`] calls the wall clock at its start, in microseconds since 1970.
const SIMULATED_EPOCH_US: u64 = 1_700_000_000_000_000;

impl Clock {
    /// The host's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// Tokio's clock, beginning now. Under `tokio::time::pause` it moves only when all tasks wait.
    pub fn tokio() -> Self {
        Self { simulated_since: Some(Instant::now()) }
    }

    /// Now.
    pub fn now(&self) -> BootInstant {
        self.simulated_since.map_or_else(system_now, |start| SIMULATED_START + start.elapsed())
    }

    /// Both clocks now.
    pub fn read(&self) -> Now {
        Now { boot: self.now(), wall_us: self.wall_us() }
    }

    /// The wall clock, in microseconds since 1970: good for a fence's floor and for people, never for validity.
    pub fn wall_us(&self) -> u64 {
        match self.simulated_since {
            None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64),
            Some(start) => SIMULATED_EPOCH_US + start.elapsed().as_micros() as u64,
        }
    }

    /// Sleeps until `at`, also when the host was suspended meanwhile.
    pub async fn sleep_until(&self, at: BootInstant) {
        self.bounded(at, std::future::pending::<()>()).await;
    }

    /// Runs `future` until `until`; `None` when time ran out first. The future wins a tie.
    pub fn bounded<F: Future>(&self, until: Until, future: F) -> Bounded<'_, F> {
        Bounded { clock: self, until, future, slice: None }
    }
}

pin_project! {
    /// The future of [`Clock::bounded`]. It has a timer only once it has to wait.
    #[must_use = "futures do nothing unless polled"]
    pub struct Bounded<'a, F> {
        clock: &'a Clock,
        until: Until,
        #[pin]
        future: F,
        #[pin]
        slice: Option<Sleep>,
    }
}

impl<F: Future> Future for Bounded<'_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let mut this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Some(output));
        }
        loop {
            if let Some(slice) = this.slice.as_mut().as_pin_mut() {
                ready!(slice.poll(context));
            }
            let left = this.until.since(this.clock.now());
            if left.is_zero() {
                return Poll::Ready(None);
            }
            let slice = if this.clock.simulated_since.is_some() { left } else { left.min(SLICE) };
            this.slice.set(Some(tokio::time::sleep(slice)));
        }
    }
}

impl<F> fmt::Debug for Bounded<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("until", &self.until).finish_non_exhaustive()
    }
}

fn system_now() -> BootInstant {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    // On macOS the monotonic clock goes on during sleep.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(ID);
    BootInstant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_forward() {
        let clock = Clock::system();
        let before = clock.now();
        assert!(clock.now() >= before);
        assert!(clock.wall_us() > SIMULATED_EPOCH_US);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_moves_only_when_everything_waits() {
        let clock = Clock::tokio();
        let start = clock.now();
        assert_eq!(clock.now(), start);
        clock.sleep_until(start + Duration::from_secs(3)).await;
        assert_eq!(clock.now().since(start), Duration::from_secs(3));
        assert_eq!(clock.wall_us(), SIMULATED_EPOCH_US + 3_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn bounded_gives_up_at_the_limit_and_not_before() {
        let clock = Clock::tokio();
        let until = clock.now() + Duration::from_secs(1);
        assert_eq!(clock.bounded(until, async { 7 }).await, Some(7));
        assert_eq!(clock.bounded(until, std::future::pending::<()>()).await, None);
        assert_eq!(clock.now(), until);
    }
}
