//! Waiting for a condition by polling, never by guessing a sleep.

use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(5);

/// Polls until there is a value; `None` when `timeout` has passed. Polls at least once.
///
/// ```
/// # use std::time::Duration;
/// let mut tries = 0;
/// let answer = leasehold_testkit::poll(Duration::from_secs(1), || {
///     tries += 1;
///     (tries == 3).then_some("ready")
/// });
/// assert_eq!(answer, Some("ready"));
/// ```
pub fn poll<T>(timeout: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if started.elapsed() >= timeout {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

/// Blocks until `condition` holds.
///
/// # Panics
/// When `timeout` has passed; the message says `what` was awaited.
#[track_caller]
pub fn eventually(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let held = poll(timeout, || condition().then_some(()));
    assert!(held.is_some(), "timed out after {timeout:?}: {what}");
}

/// Waits until `condition` holds, on the clock of the runtime: with paused time, a wait for something
/// outside the runtime ends at once.
///
/// # Panics
/// When `timeout` has passed; the message says `what` was awaited, and where.
#[track_caller]
pub fn eventually_async<F, C>(timeout: Duration, what: &str, mut condition: F) -> impl Future<Output = ()>
where
    F: FnMut() -> C,
    C: Future<Output = bool>,
{
    // A panic inside the future would name this file instead of the test.
    let caller = Location::caller();
    async move {
        let started = tokio::time::Instant::now();
        while !condition().await {
            assert!(started.elapsed() < timeout, "timed out after {timeout:?} at {caller}: {what}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "timed out after 10ms: the moon is cheese")]
    fn a_condition_that_never_holds_is_named() {
        eventually(Duration::from_millis(10), "the moon is cheese", || false);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "poll.rs")]
    async fn an_async_wait_names_the_caller() {
        eventually_async(Duration::from_secs(60), "nothing", || async { false }).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_async_wait_ends_when_the_condition_holds() {
        let mut asked = 0;
        eventually_async(Duration::from_secs(60), "three questions", || {
            asked += 1;
            let done = asked == 3;
            async move { done }
        })
        .await;
        assert_eq!(asked, 3);
    }
}
