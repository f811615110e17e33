//! Bounds on what clients can ask for.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Longest wait for a TLS handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of headers.
pub(crate) const HEADER_BYTES: usize = 32 * 1024;
/// Most bytes of a path with its query.
pub(crate) const URI_BYTES: usize = 8 * 1024;
/// Longest wait of one request for a lock or a change.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// How much the service takes on. More is refused with 408, 413, 429 or 503.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Most connections at a time; more wait to be accepted.
    pub connections: usize,
    /// Largest body in bytes.
    pub body_bytes: usize,
    /// Most sessions.
    pub sessions: usize,
    /// Most locks of one session.
    pub locks_per_session: usize,
    /// Most attempts that are remembered.
    pub attempts: usize,
    /// Most executions in progress.
    pub executions: usize,
    /// Most clients that receive events.
    pub event_clients: usize,
    /// How long the headers of a request may take, from its first byte.
    pub header_time: Duration,
    /// How long a body may take.
    pub body_time: Duration,
    /// How long a connection may stay open between two requests.
    pub idle_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_000,
            body_bytes: 1024 * 1024,
            sessions: 10_000,
            locks_per_session: 10_000,
            attempts: 100_000,
            executions: 10_000,
            event_clients: 10_000,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(10),
            // Longer than the heartbeat of a session with the usual ttl, which would else meet a connection that just closes.
            idle_time: Duration::from_secs(75),
        }
    }
}

/// A number of requests a second, of which one second's worth may come at once.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: f64,
    state: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, state: Mutex::new((per_second, Instant::now())) }
    }

    /// Takes one request, or says when there is room for it.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, at) = *state;
        let elapsed = now.saturating_duration_since(at).as_secs_f64();
        let left = (left + elapsed * self.per_second).min(self.per_second);
        *state = (left, now.max(at));
        if left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - left) / self.per_second));
        }
        state.0 -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_one_second_through_at_once_and_then_its_pace() {
        let (rate, start) = (Rate::new(10), Instant::now());
        assert_eq!((0..20).filter(|_| rate.take(start).is_ok()).count(), 10);
        let pause = rate.take(start).unwrap_err();
        assert!(pause > Duration::ZERO && pause <= Duration::from_millis(100));
        let later = start + Duration::from_millis(350);
        assert_eq!((0..20).filter(|_| rate.take(later).is_ok()).count(), 3);
    }
}
